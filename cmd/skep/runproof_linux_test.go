package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// served is a server in a process of its own, over a directory that outlives it.
type served struct {
	*liveServer
	t    *testing.T
	args []string
	cmd  *exec.Cmd
	log  *safeBuffer
}

func serveApart(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{t: t, args: args, liveServer: &liveServer{dir: filepath.Join(t.TempDir(), "data")}, log: &safeBuffer{}}
	s.start()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("%s", s.log.Bytes())
		}
	})
	return s
}

func (s *served) env() []string {
	home := filepath.Dir(s.dir)
	return append(os.Environ(), "SKEP_DATA="+s.dir, "SKEP_URL=", "SKEP_TOKEN=", "HOME="+home, "SKEP_VAULT_KEY=file:"+filepath.Join(home, "key"))
}

var listens = regexp.MustCompile(`listens on (http://[0-9.:]+)`)

// start starts it, and waits until it listens.
func (s *served) start() {
	s.t.Helper()
	s.cmd = exec.Command("skep", append([]string{"serve", "--listen", "127.0.0.1:0", "--egress-allow", "127.0.0.1"}, s.args...)...)
	out := &safeBuffer{}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = s.env(), out, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.until("the server listens", func() bool {
		m := listens.FindSubmatch(out.Bytes())
		if m == nil {
			return false
		}
		s.url = string(m[1])
		return true
	})
	token, err := os.ReadFile(filepath.Join(s.dir, tokenFile))
	if err != nil {
		s.t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	s.Client = client.New(s.url, s.token, nil)
}

// kill ends it without giving it notice.
func (s *served) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// until looks again and again.
func (s *served) until(what string, there func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !there() {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: that did not come; the server says:\n%s", what, s.log.Bytes())
		}
		select {
		case <-s.t.Context().Done():
			s.t.Fatal(s.t.Context().Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// reaches waits until a run stands so, and returns it.
func (s *served) reaches(id agent.RunID, what string, so func(agent.Run) bool) (run agent.Run) {
	s.t.Helper()
	s.until(fmt.Sprintf("run %s %s", id, what), func() bool {
		var err error
		if run, err = s.Run(s.t.Context(), id); err != nil {
			s.t.Fatal(err)
		}
		return so(run) || run.Status.Terminal()
	})
	if !so(run) {
		s.t.Fatalf("run %s is %s, and not %s: %+v", id, run.Status, what, run.Error)
	}
	return run
}

func stands(status agent.RunStatus) func(agent.Run) bool {
	return func(r agent.Run) bool { return r.Status == status }
}

func (s *served) begin(function, key, input string) agent.RunID {
	s.t.Helper()
	run, err := s.StartRun(s.t.Context(), client.NewRun{Agent: "a", Function: function, Key: key, Input: json.RawMessage(input)})
	if err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

// skep runs the command against the server, and returns what it prints.
func (s *served) skep(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("skep", args...)
	cmd.Env = s.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("skep %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// killWorkers kills the processes that the server runs cells in, and waits until it has noticed: what is sent to one that is dead is lost
// with it, too.
func (s *served) killWorkers() {
	s.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	killed := 0
	for _, list := range lists {
		b, _ := os.ReadFile(list) // of a thread that may have ended
		for _, field := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				s.t.Fatal(err)
			}
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.HasSuffix(line, []byte("\x00"+workerVerb+"\x00")) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
					killed++
					reaped(s.t, pid)
				}
			}
		}
	}
	if killed == 0 {
		s.t.Fatal("the server has no worker")
	}
}

// reaped returns once a process that was killed has been waited for.
func reaped(t *testing.T, pid int) {
	t.Helper()
	for tick := time.Tick(time.Millisecond); ; {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, fs.ErrNotExist) {
			return
		}
		select {
		case <-tick:
		case <-t.Context().Done():
			t.Fatal("a process that was killed is still there")
		}
	}
}

// gate is an upstream whose answers to some requests wait until they are let through.
type gate struct {
	*httptest.Server
	came chan string // of a request that waits: method and path

	mu      sync.Mutex
	holding bool
	counts  map[string]int
}

func newGate(t *testing.T) *gate {
	g := &gate{came: make(chan string, 16), holding: true, counts: map[string]int{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		_, _ = io.Copy(io.Discard, r.Body)
		g.mu.Lock()
		g.counts[what]++
		hold := g.holding
		g.mu.Unlock()
		if hold {
			g.came <- what
			<-r.Context().Done()
			return
		}
		_, _ = fmt.Fprint(w, what)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gate) hold(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = on
}

func (g *gate) count(what string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts[what]
}

// The life of a run whose cells are in worker processes: it waits, wakes in another process than it slept in, loses one under it, and the
// server.
func TestRunInWorkers(t *testing.T) {
	g := newGate(t)
	s := serveApart(t, "--isolation", "process")
	s.agentOf(t, "a", `
		import { emit, storage, waitForEvent } from "skep";
		export async function life() {
			const lot = Math.random();
			await storage.set("n", ((await storage.get("n")) ?? 0) + 1);
			const one = await waitForEvent("one");
			emit("woken", one);
			const got = await (await fetch("`+g.URL+`/read")).text();
			emit("read", got);
			const two = await waitForEvent("two");
			return { one, two, got, n: await storage.get("n"), lot: lot > 0 };
		}
		export async function stuck() { return await (await fetch("`+g.URL+`/stuck")).text(); }`, `{"http":["`+g.URL+`"]}`)

	id := s.begin("life", "k", "null")
	s.reaches(id, "waits", stands(agent.Waiting))
	s.killWorkers() // which takes nothing from a run that has no cell
	if _, err := s.SendEvent(t.Context(), id, "one", "", json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	receive(t, g.came)
	g.hold(false)
	s.killWorkers() // under the run
	run := s.reaches(id, "waits again", func(r agent.Run) bool { return r.Status == agent.Waiting && r.Wait != nil && r.Wait.Name == "two" })
	if run.Lives != 3 {
		t.Errorf("the run has had %d lives", run.Lives)
	}
	s.kill()
	s.start()
	if _, err := s.SendEvent(t.Context(), id, "two", "", json.RawMessage(`2`)); err != nil {
		t.Fatal(err)
	}
	run = s.reaches(id, "ends", stands(agent.Completed))
	if got, want := string(run.Output.Body), `{"one":1,"two":2,"got":"GET /read","n":1,"lot":true}`; got != want || run.Lives != 4 {
		t.Errorf("output %s, want %s; %d lives", got, want, run.Lives)
	}
	tree := s.skep("inspect", string(id))
	if strings.Count(tree, "─ crash ") != 1 || !strings.Contains(tree, "crash life 2: the worker process ended") {
		t.Errorf("one life was lost:\n%s", tree)
	}
	if kinds := s.kinds(id); kinds["woken"] != 1 || kinds["read"] != 1 {
		t.Errorf("events %v", kinds)
	}

	// What is lost twice in a row is stopped, and says what happened.
	g.hold(true)
	id = s.begin("stuck", "k", "null")
	for range 2 {
		receive(t, g.came)
		s.killWorkers()
	}
	run = s.reaches(id, "is stopped", stands(agent.RunFailed))
	for _, want := range []string{"lost twice in a row", "life 1: the worker process ended", "the worker process ended"} {
		if run.Error == nil || run.Error.Kind != agent.Exhausted || !strings.Contains(run.Error.Msg, want) {
			t.Errorf("error %+v, want %q", run.Error, want)
		}
	}
	if n := g.count("GET /stuck"); n != 2 || run.Lives != 2 {
		t.Errorf("%d requests, %d lives", n, run.Lives)
	}
}

// kinds counts a run's events by what they are called.
func (s *served) kinds(id agent.RunID) map[string]int {
	s.t.Helper()
	n := map[string]int{}
	for e, err := range s.Events(s.t.Context(), client.RunLog(id), 0, false) {
		if err != nil {
			s.t.Fatal(err)
		}
		name := e.Name
		if name == "" {
			name = e.Kind.String()
		}
		n[name]++
	}
	return n
}

// A server is killed while a request is under way that must not be made twice. What became of it a person says: by the command line, or by
// the interface beneath.
func TestRunIsUncertain(t *testing.T) {
	g := newGate(t)
	s := serveApart(t)
	s.agentOf(t, "a", `
		import { emit } from "skep";
		export async function pay(path) {
			emit("paying", path);
			const res = await fetch("`+g.URL+`/pay/" + path + "?key=hidden", { method: "POST", body: "5" });
			return [res.status, await res.text()];
		}`, `{"http":["`+g.URL+`"]}`)
	ids := map[string]agent.RunID{}
	for _, key := range []string{"answer", "retry", "fail", "api"} {
		ids[key] = s.begin("pay", key, `"`+key+`"`)
	}
	for range ids {
		receive(t, g.came)
	}
	s.kill()
	s.start()
	g.hold(false)
	for key, id := range ids {
		run := s.reaches(id, "is uncertain", stands(agent.Uncertain))
		if want := "http.open POST " + g.URL + "/pay/" + key + "?key="; run.Wait == nil || run.Wait.For != "answer" || run.Wait.Name != want {
			t.Errorf("%s: the run waits for %+v, want %s", key, run.Wait, want)
		}
		if n := g.count("POST /pay/" + key); n != 1 {
			t.Errorf("%s: %d requests", key, n)
		}
	}
	shown := s.skep("run", "show", string(ids["answer"]))
	for _, want := range []string{"uncertain", "POST " + g.URL + "/pay/answer", "skep run resolve"} {
		if !strings.Contains(shown, want) || strings.Contains(shown, "hidden") {
			t.Errorf("no %q in:\n%s", want, shown)
		}
	}
	if tree := s.skep("inspect", string(ids["answer"])); !strings.Contains(tree, "not known") || !strings.Contains(tree, "(once)") {
		t.Errorf("the tree does not say what is not known:\n%s", tree)
	}
	s.skep("run", "resolve", string(ids["answer"]), "--answer", `{"status":202,"body":"they say so"}`)
	s.skep("run", "resolve", string(ids["retry"]), "--retry")
	s.skep("run", "resolve", string(ids["fail"]), "--fail", "it was declined")
	call := s.reaches(ids["api"], "is uncertain", stands(agent.Uncertain)).Wait.Call
	for _, bad := range []agent.Resolution{{Call: call + 1, Action: "retry"}, {Call: call, Action: "guess"}, {Call: call, Action: "answer", Output: json.RawMessage(`7`)}} {
		if _, err := s.ResolveRun(t.Context(), ids["api"], bad); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := s.ResolveRun(t.Context(), ids["api"], agent.Resolution{Call: call, Action: "answer", Output: json.RawMessage(`{"status":200,"body":{"ok":true}}`)}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"answer": `[202,"they say so"]`, "retry": `[200,"POST /pay/retry"]`, "api": `[200,"{\"ok\":true}"]`} {
		if run := s.reaches(ids[key], "ends", stands(agent.Completed)); string(run.Output.Body) != want {
			t.Errorf("%s: %s, want %s", key, run.Output.Body, want)
		}
	}
	if run := s.reaches(ids["fail"], "fails", stands(agent.RunFailed)); !strings.Contains(run.Error.Msg, "it was declined") {
		t.Errorf("error %+v", run.Error)
	}
	for key := range ids {
		want := 1
		if key == "retry" {
			want = 2
		}
		if n := g.count("POST /pay/" + key); n != want {
			t.Errorf("%s: %d requests, want %d", key, n, want)
		}
		if n := s.kinds(ids[key])["paying"]; n != 1 {
			t.Errorf("%s: an event is there %d times", key, n)
		}
	}
	if _, err := s.ResolveRun(t.Context(), ids["retry"], agent.Resolution{Call: call, Action: "retry"}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("a run that has ended: %v", err)
	}
}
