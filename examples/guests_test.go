package examples

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/api/client"
)

// token returns the owner's.
func (s skep) token(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.data, "owner.token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// get asks the server as its owner.
func (s skep) get(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.server.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token(t))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %v\n%s", path, res.Status, err, b)
	}
	return string(b)
}

// waits checks that a run is at rest and no cell lives for it.
func (s skep) waits(t *testing.T, run, what string) {
	t.Helper()
	s.until(t, `waiting +for `+what, "run", "attach", run)
	if out := s.must(t, "run", "show", run); !regexp.MustCompile(`status +waiting\nwaits for +` + what).MatchString(out) {
		t.Errorf("the run waits for %s:\n%s", what, out)
	}
	if m := s.get(t, "/metrics"); !strings.Contains(m, "\nskep_cells 0\n") {
		t.Errorf("a run that waits has a cell: %s", regexp.MustCompile(`(?m)^skep_cells .*`).FindString(m))
	}
}

// counts checks how often lines are in a text.
func counts(t *testing.T, text string, n int, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if got := len(regexp.MustCompile(l).FindAllString(text, -1)); got != n {
			t.Errorf("%d times %s, want %d, in:\n%s", got, l, n, text)
		}
	}
}

// TestGuests runs what modules and Python do in runs and instances, on a real server that is killed over and over: in every wait, in the
// middle of a batch, and under those who are connected. A run of theirs goes on by replay, in a fresh process.
func TestGuests(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	t.Parallel()
	for _, isolation := range []string{"inline", "process"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--isolation", isolation, "--egress-allow", "127.0.0.1")
			s.must(t, "push", "testdata/services", "--agent", "services")
			t.Run("go-workflow", s.goWorkflow)
			t.Run("order", s.order)
			t.Run("batch", s.batch)
			t.Run("rust-counter", s.rustCounter)
			t.Run("python", s.python)
		})
	}
}

// goWorkflow goes through orders: one that is fulfilled, one that is turned down, one that is terminated.
func (s skep) goWorkflow(t *testing.T) {
	for _, name := range []string{"payments", "warehouse"} {
		s.must(t, "push", "testdata/services", "--agent", name)
	}
	s.must(t, "push", "go-workflow", "--agent", "shop")
	s.must(t, "agent", "update", "shop", "--grant-agent", "payments", "--grant-agent", "warehouse")
	order := func(input string) string {
		return strings.TrimSpace(s.must(t, "run", "shop", "fulfil", input, "--key", "main", "--detach"))
	}
	run := order(`{"item":"honey","count":3,"cents":25000,"days":0.00003}`)
	s.waits(t, run, "event approval")
	s.is(t, "7", "instance", "call", "shop", "main", "left", "honey")
	s.server.crash(t)
	s.waits(t, run, "event approval")
	s.must(t, "run", "send", run, "approval", `{"ok":true,"by":"Ada"}`, "--once", "a")
	s.until(t, `waiting +for \d{4}-`, "run", "attach", run)
	s.must(t, "run", "send", run, "approval", `{"ok":true,"by":"Ada"}`, "--once", "a")
	s.server.crash(t)
	out := s.must(t, "run", "attach", run)
	if !regexp.MustCompile(`\{"charge":"c-25000","approved":"Ada","shipped":"2\d{3}-[^"]+Z"\}\n$`).MatchString(out) {
		t.Errorf("the run:\n%s", out)
	}
	counts(t, out, 1, `step +reserve began`, `step +reserve ended`, `emit +approval\.wanted`, `received +approval`, `step +charge began`, `step +charge ended`, `step +ship ended`)
	counts(t, s.must(t, "logs", "payments"), 1, `charged 25000`)
	counts(t, s.must(t, "logs", "warehouse"), 1, `shipped honey`)
	s.is(t, "7", "instance", "call", "shop", "main", "left", "honey")
	tree := s.must(t, "inspect", run)
	for _, line := range []string{
		`step reserve`, `storage\.get`, `storage\.batch`, `wait for event approval`, `event approval`, `step charge`, `agent payments\.charge .*\(once\)`,
		`wait for 2\.592s`, `step ship`, `agent warehouse\.ship`, `life 3`,
	} {
		if !regexp.MustCompile(`─ .*` + line).MatchString(tree) {
			t.Errorf("no line with %s:\n%s", line, tree)
		}
	}
	if out := s.must(t, "replay", run); !strings.HasPrefix(out, "same: ") {
		t.Errorf("replay:\n%s", out)
	}

	// Refused, and taken back.
	run = order(`{"item":"wax","count":2,"cents":20000}`)
	s.waits(t, run, "event approval")
	s.server.crash(t)
	s.must(t, "run", "send", run, "approval", `{"ok":false,"by":"Bob"}`)
	out, code := s.run(t, "", "run", "attach", run)
	if code != 8 || !strings.Contains(out, "Bob turned the order down") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	counts(t, out, 1, `rollback of reserve began`, `rollback of reserve ended`)
	s.is(t, "10", "instance", "call", "shop", "main", "left", "wax")

	// Paid for, and terminated before the van comes: both are taken back, the latest first.
	run = order(`{"item":"tea","count":1,"cents":500}`)
	s.waits(t, run, `\d{4}-`)
	s.is(t, "9", "instance", "call", "shop", "main", "left", "tea")
	s.server.crash(t)
	s.must(t, "run", "terminate", run)
	if out, code := s.run(t, "", "run", "attach", run); code != 130 || !regexp.MustCompile(`(?s)rollback of charge ended.*rollback of reserve ended`).MatchString(out) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	counts(t, s.must(t, "logs", "payments"), 1, `refunded c-500`)
	s.is(t, "10", "instance", "call", "shop", "main", "left", "tea")
	if out := s.must(t, "replay", run); !strings.HasPrefix(out, "same: ") {
		t.Errorf("replay:\n%s", out)
	}
}

// order has a run depend on the order of maps, on math/rand and on select, between events and marks of steps.
func (s skep) order(t *testing.T) {
	s.must(t, "push", "testdata/replayed", "--agent", "replayed")
	run := strings.TrimSpace(s.must(t, "run", "replayed", "order", "--key", "k", "--detach"))
	s.waits(t, run, "event proceed")
	s.server.crash(t)
	s.must(t, "run", "send", run, "proceed")
	out := strings.TrimSpace(s.must(t, "run", "attach", run))
	type drawn struct {
		Map    []int
		Rand   []uint64
		Select string
	}
	var got [2]drawn
	if err := json.Unmarshal([]byte(out[strings.LastIndex(out, "\n")+1:]), &got); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	// What the first life wrote down before its process died is what the last one drew.
	for i, n := range got[0].Map {
		if i%10 == 0 {
			s.is(t, fmt.Sprint(got[0].Rand[n%len(got[0].Rand)]), "instance", "storage", "get", "replayed", "k", fmt.Sprintf("drawn/%d", n))
		}
	}
	if cmp.Equal(got[0].Map, got[1].Map) || cmp.Equal(got[0].Rand, got[1].Rand) || got[0].Select == got[1].Select || len(got[1].Select) != 40 {
		t.Errorf("it draws the same all the time: %v", got)
	}
	if out := s.must(t, "replay", run); !strings.HasPrefix(out, "same: ") {
		t.Errorf("replay:\n%s", out)
	}
}

// place answers what it is asked, when it is open.
type place struct {
	mu    sync.Mutex
	asked map[string]int
	came  chan string
	open  chan struct{}
}

func (p *place) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.URL.Path]++
	first := p.asked[r.URL.Path] == 1
	p.mu.Unlock()
	if first {
		p.came <- r.URL.Path
	}
	if r.URL.Path != "/quick" {
		select {
		case <-p.open:
		case <-r.Context().Done():
		}
	}
	_, _ = io.WriteString(w, "answers")
}

// openPlace has the agent services ask a place that answers from when it is opened.
func (s skep) openPlace(t *testing.T) *place {
	p := &place{asked: map[string]int{}, came: make(chan string, 10), open: make(chan struct{})}
	web := httptest.NewServer(p)
	t.Cleanup(web.Close)
	s.must(t, "agent", "update", "services", "--config", "place="+web.URL, "--grant-http", web.URL)
	return p
}

// batch kills the server while a batch of a run is under way, of which some parts have been answered.
func (s skep) batch(t *testing.T) {
	p := s.openPlace(t)
	s.must(t, "push", "testdata/replayed", "--agent", "replayed")
	s.must(t, "agent", "update", "replayed", "--grant-agent", "services")
	run := strings.TrimSpace(s.must(t, "run", "replayed", "parts", `["quick","slow","slower"]`, "--key", "k", "--detach"))
	for range 3 {
		<-p.came
	}
	s.until(t, `charged 7`, "logs", "services", "-f")
	s.server.crash(t)
	close(p.open)
	out := s.must(t, "run", "attach", run)
	if !strings.HasSuffix(out, `["c-7","quick answers 1","slow answers 1","slower answers 1"]`+"\n") {
		t.Errorf("the run:\n%s", out)
	}
	counts(t, out, 1, `\[c-7 quick answers 1 slow answers 1 slower answers 1\]`)
	counts(t, s.must(t, "logs", "services"), 1, `charged 7`)
	for _, key := range []string{"quick", "slow", "slower"} {
		s.is(t, "1", "instance", "call", "services", key, "asked")
	}
	if out := s.must(t, "replay", run); !strings.HasPrefix(out, "same: ") {
		t.Errorf("replay:\n%s", out)
	}
}

// watch connects with an instance, whose frames come by the channel.
func (s skep) watch(t *testing.T, agent, key string, frames chan<- string) *client.Socket {
	t.Helper()
	c := client.New("http://"+s.server.addr, s.token(t), nil)
	ws, err := c.Connect(t.Context(), agent, key, &client.SocketOptions{OnMessage: func(b []byte, _ bool) { frames <- string(b) }})
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func gets(t *testing.T, frames <-chan string, want string) {
	t.Helper()
	select {
	case got := <-frames:
		if got != want {
			t.Errorf("a client got %s, want %s", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("a client does not get %s", want)
	}
}

// rustCounter has clients of a counter in Rust, and days that close while the server is killed.
func (s skep) rustCounter(t *testing.T) {
	needs(t, "hello-rust")
	s.must(t, "push", "rust-counter", "--agent", "counter")
	closes := time.Now().UTC().Add(8 * time.Second)
	s.must(t, "agent", "update", "counter", "--config", closes.Format("closes=5 4 15 2 1 *"))
	frames := make(chan string, 10)
	next := func(want string) { t.Helper(); gets(t, frames, want) }
	ws := s.watch(t, "counter", "visits", frames)
	next("0")
	if err := ws.SendText("2"); err != nil {
		t.Fatal(err)
	}
	next("2")
	s.is(t, "5", "instance", "call", "counter", "visits", "add", "3")
	next("5")
	if out := s.must(t, "alarm", "list", "counter", "visits"); strings.Count(out, "midnight") != 1 {
		t.Errorf("alarms:\n%s", out)
	}
	s.server.crash(t)
	_ = ws.Close() // it has gone with the server
	s.until(t, `emit +closed \{"sum":5\}`, "instance", "events", "counter", "visits", "-f")
	other := s.watch(t, "counter", "visits", frames)
	next("0")
	if err := other.SendText("x"); err != nil { // the turn is undone
		t.Fatal(err)
	}
	if err := other.SendText("4"); err != nil {
		t.Fatal(err)
	}
	next("4")
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	s.until(t, `emit +left \{"code":1000,"watch":0\}`, "instance", "events", "counter", "visits", "-f")
	s.is(t, "4", "instance", "call", "counter", "visits", "total")
	var days [][2]int
	if err := json.Unmarshal([]byte(s.must(t, "instance", "call", "counter", "visits", "days")), &days); err != nil || len(days) != 1 || days[0][1] != 5 {
		t.Errorf("days are %v, %v", days, err)
	}
	if out := s.must(t, "alarm", "list", "counter", "visits"); strings.Count(out, "midnight") != 1 { // onStart ran once
		t.Errorf("alarms:\n%s", out)
	}
}

// python has an instance and runs in Python do what those in other languages do.
func (s skep) python(t *testing.T) {
	needs(t, "hello-python")
	s.must(t, "push", "testdata/orders", "--agent", "orders")
	s.must(t, "agent", "update", "orders", "--grant-agent", "services")
	run := func(function, input string) string {
		return strings.TrimSpace(s.must(t, "run", "orders", function, input, "--key", "main", "--detach"))
	}
	id := run("fulfil", `{"item":"honey","count":3,"cents":25000}`)
	s.waits(t, id, "event approval")
	s.is(t, "7", "instance", "call", "orders", "main", "stock", "honey")
	s.server.crash(t)
	s.must(t, "run", "send", id, "approval", `{"ok":true,"by":"Ada"}`)
	s.until(t, `waiting +for \d{4}-`, "run", "attach", id)
	s.server.crash(t)
	out := s.must(t, "run", "attach", id)
	if !strings.HasSuffix(out, `{"receipt":"c-25000","by":"Ada","same":true,"sold":[{"item":"honey","cents":25000}]}`+"\n") {
		t.Errorf("the run:\n%s", out)
	}
	counts(t, out, 1, `step +reserve began`, `step +reserve ended`, `emit +approval\.wanted`, `step +charge began`, `step +charge ended`, `fulfilled honey`)
	counts(t, s.must(t, "logs", "services"), 1, `charged 25000`)
	if out := s.must(t, "replay", id); !strings.HasPrefix(out, "same: ") {
		t.Errorf("replay:\n%s", out)
	}
	tree := s.must(t, "inspect", id)
	counts(t, tree, 1, `─ step reserve`, `─ #\d+ wait for event approval`, `─ step charge`, `─ #\d+ agent services\.charge .*\(once\)`)

	// Turned down; terminated; too little.
	id = run("fulfil", `{"item":"wax","count":2,"cents":20000}`)
	s.waits(t, id, "event approval")
	s.must(t, "run", "send", id, "approval", `{"ok":false,"by":"Bob"}`)
	if out, code := s.run(t, "", "run", "attach", id); code != 8 || !regexp.MustCompile(`(?s)rollback of reserve ended.*main\.py:\d+:\d+: ValueError: Bob turned the order down`).MatchString(out) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	id = run("fulfil", `{"item":"wax","count":2,"cents":200,"wait":86400}`)
	s.must(t, "run", "send", id, "approval", `{"ok":true,"by":"Ada"}`)
	s.waits(t, id, `\d{4}-`)
	s.must(t, "run", "terminate", id)
	if out, code := s.run(t, "", "run", "attach", id); code != 130 || !regexp.MustCompile(`(?s)rollback of charge ended.*rollback of reserve ended`).MatchString(out) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	counts(t, s.must(t, "logs", "services"), 1, `refunded c-200`)
	s.is(t, "10", "instance", "call", "orders", "main", "stock", "wax")
	if out, code := s.run(t, "", "run", "orders", "fulfil", `{"item":"wax","count":20,"cents":1}`, "--key", "main"); code != 8 || !strings.Contains(out, "only 10 of wax are left") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	// A batch across a crash, and a run that waits for another.
	p := s.openPlace(t)
	id = run("parts", `["p-quick","p-slow"]`)
	<-p.came
	<-p.came
	s.until(t, `charged 8`, "logs", "services", "-f")
	s.server.crash(t)
	close(p.open)
	if out := s.must(t, "run", "attach", id); !strings.HasSuffix(out, `["c-8","p-quick answers 1","p-slow answers 1"]`+"\n") {
		t.Errorf("the run:\n%s", out)
	}
	counts(t, s.must(t, "logs", "services"), 1, `charged 8`)
	id = run("nested", `"tea"`)
	s.until(t, `waiting +for run`, "run", "attach", id)
	if out := s.must(t, "run", "attach", id); !strings.HasSuffix(out, `["TEA","main",true]`+"\n") {
		t.Errorf("the run:\n%s", out)
	}

	// The instance: its state, alarms, connections and children.
	s.is(t, `[10,"later",[],false]`, "instance", "call", "orders", "main", "both")
	frames := make(chan string, 10)
	ws := s.watch(t, "orders", "main", frames)
	if state, version := ws.State(); string(state) != `{"orders":1}` || version < 2 {
		t.Errorf("the state is %s, version %d", state, version)
	}
	gets(t, frames, "welcome to main")
	if err := ws.SendText("hello"); err != nil {
		t.Fatal(err)
	}
	gets(t, frames, `{"echo":"hello","attached":{"n":1}}`)
	if got, err := ws.Call(t.Context(), "remind", "tea"); err != nil || string(got) != `"tea"` {
		t.Errorf("%s, %v", got, err)
	}
	gets(t, frames, `{"text":"tea"}`)
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
	s.until(t, `emit +rang \{"text": ?"tea"\}`, "instance", "events", "orders", "main", "-f")
	s.until(t, `emit +rang \{"text": ?"later"\}`, "instance", "events", "orders", "part", "-f")
}
