package examples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// until runs a command that follows something, to the first line that the expression finds, and returns that line.
func (s skep) until(t *testing.T, line string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, args...)
	cmd.Env = append(os.Environ(), s.env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	want, seen := regexp.MustCompile(line), ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if want.MatchString(lines.Text()) {
			return lines.Text()
		}
		seen += lines.Text() + "\n"
	}
	t.Fatalf("skep %s: no line with %s:\n%s", strings.Join(args, " "), line, seen)
	return ""
}

// is compares what a command prints, as JSON where it is JSON.
func (s skep) is(t *testing.T, want string, args ...string) {
	t.Helper()
	if diff := cmp.Diff(value(want), value(s.must(t, args...))); diff != "" {
		t.Errorf("skep %s (-want +got):\n%s", strings.Join(args, " "), diff)
	}
}

// TestReminderBot goes the way of docs/guide/reminders.md, with a webhook that is down first.
func TestReminderBot(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	var up atomic.Bool
	got := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got <- string(body)
	}))
	defer hook.Close()
	s := start(t, "--egress-allow", "127.0.0.1")
	s.must(t, "push", "reminder-bot", "--agent", "reminders")
	ada := func(method, input string) string {
		return s.must(t, "instance", "call", "reminders", "ada", method, input)
	}

	ada("remind", `{"text":"tea","in":0.1}`)
	s.until(t, `emit +reminder \{"to":"ada","text":"tea","number":1\}`, "instance", "events", "reminders", "ada", "-f")
	ada("remind", `{"text":"party","at":"2099-01-31T09:00:00Z"}`)
	ada("remind", `{"text":"party","at":"2099-01-31T10:00:00Z"}`) // moves it
	ada("remind", `{"text":"standup","cron":"0 9 * * 1-5","zone":"Europe/Berlin"}`)
	if out := s.must(t, "alarm", "list", "reminders", "ada"); !strings.Contains(out, "0 9 * * 1-5 Europe/Berlin") || strings.Count(out, "party") != 2 {
		t.Errorf("alarms:\n%s", out) // its name, and its payload
	}
	if out := ada("forget", "standup") + ada("forget", "standup"); out != "true\nfalse\n" {
		t.Errorf("forgotten: %s", out)
	}
	s.is(t, `[{"name":"party","at":"2099-01-31T10:00:00.000Z"}]`, "instance", "call", "reminders", "ada", "list")

	// A reminder that fails is tried again, and kept.
	s.must(t, "agent", "update", "reminders", "--config", "webhook="+hook.URL, "--grant-http", hook.URL)
	ada("remind", `{"text":"walk","in":0}`)
	s.until(t, `alarm +walk, .*attempt 3, failed for the last time: .* answered 503`, "instance", "events", "reminders", "ada", "-f")
	if out := s.must(t, "alarm", "list", "reminders", "ada"); !regexp.MustCompile(`walk .* dead after 3: `).MatchString(out) {
		t.Errorf("alarms:\n%s", out)
	}
	up.Store(true)
	s.must(t, "alarm", "retry", "reminders", "ada", "walk")
	if text := <-got; text != "ada: walk" {
		t.Errorf("the webhook got %q", text)
	}
	s.until(t, `emit +reminder .*"walk","number":2`, "instance", "events", "reminders", "ada", "-f")

	// What was set outlives the server, and rings once.
	ada("remind", `{"text":"cake","in":1}`)
	s.server.crash(t)
	s.until(t, `emit +reminder .*"cake","number":3`, "instance", "events", "reminders", "ada", "-f")
	ada("remind", `{"text":"end","in":0}`)
	s.until(t, `emit +reminder .*"end","number":4`, "instance", "events", "reminders", "ada", "-f")
}

// TestChatRoom goes the way of docs/guide/chat-room.md: a plain WebSocket, two clients of skep-client, and a server that is killed.
func TestChatRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("../sdk/client-js/node_modules/ws")
	}
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	s := start(t, "--origin", "http://localhost:8000")
	s.must(t, "push", "chat-room", "--agent", "room")
	s.must(t, "instance", "call", "room", "lobby", "say", `{"who":"Ada","text":"anybody here?"}`)
	if out, code := s.run(t, "", "instance", "call", "room", "lobby", "say", `{"who":"Ada","text":" "}`); code != 8 || !strings.Contains(out, "1 to 1000 characters") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	token := strings.TrimSpace(s.must(t, "token", "create", "page", "--role", "developer"))

	cmd := exec.CommandContext(t.Context(), node, "testdata/chat.mjs", "http://"+s.server.addr)
	cmd.Env = append(os.Environ(), "TOKEN="+token)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last = lines.Text(); last == "restart" {
			s.server.crash(t)
			s.must(t, "instance", "call", "room", "lobby", "say", `{"who":"Cli","text":"I was quick"}`)
			fmt.Fprintln(in, "go on")
		}
	}
	if err := cmd.Wait(); err != nil || last != "ok" {
		t.Errorf("%v, after %s", err, last)
	}
	var history []struct{ Who, Text string }
	if err := json.Unmarshal([]byte(s.must(t, "instance", "call", "room", "lobby", "history", `{"most":2}`)), &history); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(history); got != "[{Cli I was quick} {Ada welcome back}]" {
		t.Errorf("history: %s", got)
	}
}

// TestTwoDayWorkflow goes the way of docs/guide/workflows.md, with days that take two seconds in all, and a server that is killed in each wait.
func TestTwoDayWorkflow(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	s := start(t)
	s.must(t, "push", "two-day-workflow/payments.ts", "--agent", "payments")
	s.must(t, "push", "two-day-workflow", "--agent", "orders")
	s.must(t, "agent", "update", "orders", "--grant-agent", "payments")
	order := func(input string) string {
		return strings.TrimSpace(s.must(t, "run", "orders", "run", input, "--key", "shop", "--detach"))
	}
	yes, no := `{"by":"Ada","approved":true}`, `{"by":"Bob","approved":false}`

	run := order(`{"item":"honey","price":12,"returns":"2 seconds"}`)
	s.until(t, `waiting +for event approval`, "run", "attach", run)
	s.is(t, `["reserved/honey"]`, "instance", "call", "orders", "shop", "stock")
	s.server.crash(t)
	s.must(t, "run", "send", run, "approval", yes)
	s.until(t, `waiting +for \d{4}-`, "run", "attach", run)
	s.server.crash(t)
	out := s.must(t, "run", "attach", run)
	if !regexp.MustCompile(`\{"item":"honey","receipt":"[0-9a-f-]{36}","approvedBy":"Ada"\}\n$`).MatchString(out) || strings.Count(out, "charge ended") != 1 {
		t.Errorf("the run:\n%s", out)
	}
	s.is(t, `["sold/honey"]`, "instance", "call", "orders", "shop", "stock")
	tree := s.must(t, "inspect", run)
	for _, line := range []string{`step reserve`, `wait for event approval`, `event approval`, `step charge`, `agent payments.charge .*\(once\)`, `step close`} {
		if !regexp.MustCompile(`─ .*` + line).MatchString(tree) {
			t.Errorf("no line with %s:\n%s", line, tree)
		}
	}
	if out := s.must(t, "replay", run); !strings.HasPrefix(out, "same: ") {
		t.Errorf("replay:\n%s", out)
	}

	code, err := os.ReadFile("two-day-workflow/main.ts")
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "main.ts")
	if err := os.WriteFile(other, []byte(strings.Replace(string(code), `>("approval"`, `>("confirm"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := s.run(t, "", "replay", run, "--with", other); code != 9 || !strings.HasPrefix(out, "different: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	// Refused: what was reserved is free again.
	run = order(`{"item":"wax","price":5}`)
	s.until(t, `waiting +for event approval`, "run", "attach", run)
	s.must(t, "run", "send", run, "approval", no)
	out, exit := s.run(t, "", "run", "attach", run)
	if exit != 8 || !strings.Contains(out, "rollback of reserve ended") || !strings.Contains(out, "Bob did not approve") {
		t.Errorf("exit code %d\n%s", exit, out)
	}
	s.is(t, `["sold/honey"]`, "instance", "call", "orders", "shop", "stock")

	// Tried again until it works; and taken back while it waits for the day after tomorrow.
	s.must(t, "agent", "update", "payments", "--config", "down=yes")
	run = order(`{"item":"tea","price":5}`)
	s.must(t, "run", "send", run, "approval", yes)
	s.until(t, `step +charge failed .*payments are down`, "run", "attach", run)
	s.must(t, "agent", "update", "payments", "--config", "down=")
	s.until(t, `step +charge ended`, "run", "attach", run)
	s.until(t, `waiting +for \d{4}-`, "run", "attach", run)
	s.must(t, "run", "terminate", run)
	if out, code := s.run(t, "", "run", "attach", run); code != 130 || !regexp.MustCompile(`(?s)rollback of charge ended.*rollback of reserve ended`).MatchString(out) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out := s.must(t, "logs", "payments"); strings.Count(out, "refunded ") != 1 {
		t.Errorf("payments:\n%s", out)
	}
	s.is(t, `["sold/honey"]`, "instance", "call", "orders", "shop", "stock")

	// The server dies while money is asked for: nobody knows whether it was taken, until somebody says so.
	s.must(t, "agent", "update", "payments", "--config", "slow=20000")
	run = order(`{"item":"cake","price":9,"returns":"0 seconds"}`)
	s.must(t, "run", "send", run, "approval", yes)
	s.until(t, `step +charge began`, "run", "attach", run)
	s.server.crash(t)
	s.until(t, `uncertain +for what became of call \d+, agent payments.charge`, "run", "attach", run)
	s.must(t, "agent", "update", "payments", "--config", "slow=0")
	s.must(t, "run", "resolve", run, "--answer", `{"receipt":"r-17"}`)
	if out := s.must(t, "run", "attach", run); !strings.HasSuffix(out, `{"item":"cake","receipt":"r-17","approvedBy":"Ada"}`+"\n") {
		t.Errorf("the run:\n%s", out)
	}

	// The same again from a step on: the approval is not asked for again.
	again := strings.TrimSpace(s.must(t, "run", "restart", run, "--from", "charge"))
	if out := s.must(t, "run", "attach", again); strings.Contains(out, "r-17") || !strings.Contains(out, `"approvedBy":"Ada"`) {
		t.Errorf("the run:\n%s", out)
	}
}
