package mcp_test

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/mcp"
)

// badly is the record of the hostile server.
func badly(t *testing.T, mode string) agent.ToolServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return agent.ToolServer{Kind: agent.MCPStdio, Command: []string{self}, Env: map[string]string{"HOSTILE": mode}}
}

func TestAnswersThatAreTooLarge(t *testing.T) {
	s := open(t, badly(t, "yes"), nil, nil)
	call(t, s, "ok", "", nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := s.Call(t.Context(), "big", nil, nil)
	wantError(t, err, agent.Exhausted, false, "it.big", "64 MiB")
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 400<<20 {
		t.Errorf("the process has grown by %d MiB", grown>>20)
	}
	until(t, "the failure is noted", func() bool { st := s.Status(); return st.State == agent.ServerFailed && !st.Retry.IsZero() })
	_, err = s.Call(t.Context(), "ok", nil, nil)
	wantError(t, err, agent.Exhausted, true, "64 MiB", "tried again in")
}

func TestAnswersThatDoNotCome(t *testing.T) {
	rec := badly(t, "yes")
	rec.Timeout = 300 * time.Millisecond
	s := open(t, rec, nil, nil)
	_, err := s.Call(t.Context(), "never", nil, nil)
	wantError(t, err, agent.Unavailable, false, "server it", "it.never", "300ms")
	call(t, s, "ok", "", nil) // it goes on
	_, err = s.Call(t.Context(), "endless", nil, nil)
	wantError(t, err, agent.Unavailable, false, "it.endless", "300ms")
	until(t, "the server that is stuck is stopped", func() bool { return s.Status().State == agent.ServerFailed })
	if e := s.Status().Error; !strings.Contains(e, "began a message and did not end it") {
		t.Error(e)
	}
}

// TestStuck has whoever calls end the call before the server's own time is over, as the catalogue does.
func TestStuck(t *testing.T) {
	rec := badly(t, "yes")
	rec.Timeout = 600 * time.Millisecond
	s := open(t, rec, nil, nil)
	ctx, clock := tools.Within(t.Context(), 400*time.Millisecond, agent.Errorf(agent.Unavailable, "it is late"))
	defer clock.Stop()
	_, err := s.Call(ctx, "endless", nil, nil)
	wantError(t, err, agent.Unavailable, false, "it is late")
	until(t, "the server that is stuck is stopped", func() bool { return s.Status().State == agent.ServerFailed })
}

func TestGarbage(t *testing.T) {
	s := open(t, badly(t, "banner"), nil, nil)
	if got := call(t, s, "chatty", "", nil); !got.Text || string(got.Value) != `"fine"` {
		t.Errorf("got %s", got.Value)
	}
	if e := s.Status().Stderr; !strings.Contains(e, "Welcome to the server!") || !strings.Contains(e, "a line of a log") {
		t.Errorf("kept is %q", e)
	}
	_, err := s.Call(t.Context(), "garbage", nil, nil)
	wantError(t, err, agent.Unavailable, false, "it.garbage", "more than 1 MiB on its standard output that is not MCP")
	s = open(t, badly(t, "noise"), nil, nil)
	_, err = s.Tools(t.Context())
	wantError(t, err, agent.Unavailable, true, "that is not MCP")
}

func TestPrograms(t *testing.T) {
	for _, tt := range []struct {
		mode  string
		words []string
	}{
		{"exit", []string{"server it ended with exit code 3", "no configuration was found", "tried again in 1s"}},
		{"silent", []string{"server it was not ready after 500ms"}},
	} {
		s := open(t, badly(t, tt.mode), &mcp.Options{Start: 500 * time.Millisecond}, nil)
		_, err := s.Call(t.Context(), "ok", nil, nil)
		wantError(t, err, agent.Unavailable, true, tt.words...)
	}
	s := open(t, badly(t, "old"), nil, nil)
	call(t, s, "ok", "", nil)
	if st := s.Status(); st.Protocol != "2025-06-18" || st.Version != "6.6.6" || st.State != agent.ServerReady {
		t.Errorf("status: %+v", st)
	}
	s = open(t, agent.ToolServer{Kind: agent.MCPStdio, Command: []string{"no-such-program"}}, nil, nil)
	_, err := s.Call(t.Context(), "ok", nil, nil)
	wantError(t, err, agent.Unavailable, true, `there is no program "no-such-program"`)
}

func TestCrash(t *testing.T) {
	var changed atomic.Int32
	s := open(t, badly(t, "yes"), nil, func() { changed.Add(1) })
	pid, err := strconv.Atoi(string(call(t, s, "pid", "", nil).Value))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		_, err := s.Call(t.Context(), "never", nil, nil)
		got <- err
	}()
	call(t, s, "ok", "", nil) // the one before has been sent
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-got, agent.Unavailable, false, "the call of it.never was lost", "server it was killed by signal 9")
	until(t, "the failure is noted", func() bool { return s.Status().State == agent.ServerFailed && changed.Load() > 0 })
	_, err = s.Call(t.Context(), "ok", nil, nil)
	wantError(t, err, agent.Unavailable, true, "killed by signal 9", "tried again in 1s")
	until(t, "it is started again", func() bool { _, err := s.Call(t.Context(), "ok", nil, nil); return err == nil })
	if st := s.Status(); st.Restarts != 1 || st.State != agent.ServerReady {
		t.Errorf("status: %+v", st)
	}
	_, err = s.Call(t.Context(), "crash", nil, nil)
	wantError(t, err, agent.Unavailable, false, "exit code 2", "panic: the disk is on fire")
	until(t, "the second failure is noted", func() bool { return s.Status().State == agent.ServerFailed })
	if st := s.Status(); time.Until(st.Retry) < 1200*time.Millisecond {
		t.Errorf("it is tried again in %s", time.Until(st.Retry))
	}
}

func TestIdleAndClose(t *testing.T) {
	rec := badly(t, "stays") // at the end of its input
	s := open(t, rec, &mcp.Options{Idle: 50 * time.Millisecond}, nil)
	pid, _ := strconv.Atoi(string(call(t, s, "pid", "", nil).Value))
	child, _ := strconv.Atoi(string(call(t, s, "child", "", nil).Value))
	until(t, "it rests", func() bool { return s.Status().State == agent.ServerIdle })
	for _, p := range []int{pid, child} {
		until(t, "the processes are gone", func() bool { return syscall.Kill(p, 0) == syscall.ESRCH || zombie(p) })
	}
	child, _ = strconv.Atoi(string(call(t, s, "child", "", nil).Value)) // it is started again
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the child is gone", func() bool { return syscall.Kill(child, 0) == syscall.ESRCH || zombie(child) })
	_, err := s.Call(t.Context(), "ok", nil, nil)
	wantError(t, err, agent.Unavailable, true, "is closed")
}

// zombie reports whether a process has ended and awaits its parent, who is not this one.
func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestSecretsOfPrograms(t *testing.T) {
	t.Setenv("SKEP_TOKEN", "nobody is to see this")
	rec := badly(t, "yes")
	rec.Env["SAY"] = "Bearer ${secret:key}"
	o := &mcp.Options{Secret: secret(t, "key", "", "s3cr3t-value")}
	s := open(t, rec, o, nil)
	var env []string
	res := call(t, s, "env", "", nil)
	var text string
	if err := json.Unmarshal(res.Value, &text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(text, "\n") {
		name, _, _ := strings.Cut(line, "=")
		env = append(env, name)
	}
	slices.Sort(env)
	if want := []string{"HOME", "HOSTILE", "LANG", "PATH", "SAY"}; !slices.Equal(env, want) {
		t.Errorf("the environment is %v", env)
	}
	if got := call(t, s, "say", "", nil); string(got.Value) != `"Bearer [secret]"` {
		t.Errorf("got %s", got.Value)
	}
	for _, text := range []string{"${secret:Oauth:it}", "${secret:", "${secret:../x}"} {
		rec.Env["SAY"] = text
		if _, err := mcp.Open(t.Context(), rec, o, nil); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLists(t *testing.T) {
	s := open(t, badly(t, "odd"), nil, nil)
	got := list(t, s)
	if len(got) != 3 || got["ok"].Digest == "" || got["tree"].Digest == "" {
		t.Errorf("got %v", got)
	}
	h := got["hints"].Hints
	if h == nil || h.ReadOnly == nil || *h.ReadOnly || h.Destructive != nil || h.Idempotent == nil || !*h.Idempotent || h.OpenWorld != nil {
		t.Errorf("hints: %+v", h)
	}
	if got["ok"].Hints != nil {
		t.Error("there are hints where the server gave none")
	}
	st := s.Status()
	notes := strings.Join(st.Notes, "\n")
	for _, w := range []string{
		`"list" was left out: its input schema is not an object`, `"nothing" was left out: its input schema is missing`, `"cycle" was left out: its input schema refers to itself without end`,
		`"remote" was left out`, "nothing is fetched", `"huge" was left out: its input schema has`, `"talks" was left out: its description has`, `"deep" was left out: its input schema is nested`,
		`"wrong" was left out`, `"two words" was left out`, `"ok" was left out: there is another`,
	} {
		if !strings.Contains(notes, w) {
			t.Errorf("%q is not in the notes:\n%s", w, notes)
		}
	}
	if st.Tools != 3 {
		t.Errorf("status: %+v", st)
	}
	_, err := open(t, badly(t, "many"), &mcp.Options{Bounds: mcp.Bounds{Tools: 1000}}, nil).Tools(t.Context())
	wantError(t, err, agent.Exhausted, false, "offers 1200 tools and more, and at most 1000 are taken")
	_, err = open(t, badly(t, "pages"), nil, nil).Tools(t.Context())
	wantError(t, err, agent.Unavailable, false, "never ends the list")
}

func TestResults(t *testing.T) {
	s := open(t, badly(t, "yes"), nil, nil)
	if got := call(t, s, "big number", "", nil); string(got.Value) != `{"n":12345678901234567890}` || got.Text {
		t.Errorf("got %s", got.Value)
	}
	if got := call(t, s, "echo", `{"b":1.0,"a":[null]}`, nil); string(got.Value) != `{"b":1.0,"a":[null]}` {
		t.Errorf("got %s", got.Value)
	}
	got := call(t, s, "parts", "", nil)
	if want := `["one",{"$blob":0},{"$blob":1},{"type":"resource_link","uri":"file:///c","name":"c"}]`; string(got.Value) != want || len(got.Blobs) != 2 ||
		string(got.Blobs[0].Body) != "hi" || got.Blobs[0].Type != "image/png" || got.Blobs[1].Name != "b.bin" {
		t.Errorf("got %s %+v", got.Value, got.Blobs)
	}
	_, err := s.Call(t.Context(), "error", nil, nil)
	wantError(t, err, agent.Failed, false, "it is out of paper")
	_, err = s.Call(t.Context(), "ok", json.RawMessage(`[]`), nil)
	wantError(t, err, agent.Invalid, true, "no JSON object")
	n := 0
	call(t, s, "flood", "", &tools.CallOptions{Progress: func(tools.Progress) { n++ }})
	if n > 500 {
		t.Errorf("progress was told of %d times", n)
	}
}
