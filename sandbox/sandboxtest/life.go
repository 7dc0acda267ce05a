package sandboxtest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

func testProbe(t *testing.T, s *suite) {
	got := s.p.Probe(t.Context())
	if !got.Ready || got.Error != "" || got.Name != s.p.Name() || got.Version == "" || got.Isolation == "" {
		t.Fatalf("probe: %+v", got)
	}
	var names []string
	level := map[string]agent.CapabilityLevel{}
	for _, c := range got.Capabilities {
		names = append(names, c.Name)
		level[c.Name] = c.Level
		if c.Level != agent.CapabilityEnforced && c.Reason == "" {
			t.Errorf("%s is %s, and nothing says why", c.Name, c.Level)
		}
	}
	if !slices.Equal(names, sandbox.Capabilities()) {
		t.Errorf("capabilities %v, want %v", names, sandbox.Capabilities())
	}
	_, exec := s.p.(sandbox.Execer)
	_, pause := s.p.(sandbox.Pauser)
	_, snapshot := s.p.(sandbox.Snapshotter)
	_, log := s.p.(sandbox.Logger)
	_, warm := s.p.(sandbox.Warmer)
	_, volumes := s.p.(sandbox.Volumes)
	for name, has := range map[string]bool{
		sandbox.CanExec: exec, sandbox.CanPause: pause, sandbox.CanSnapshot: snapshot, sandbox.CanLog: log, sandbox.CanWarm: warm, sandbox.Persistent: volumes,
	} {
		if level[name] != agent.CapabilityNone && !has {
			t.Errorf("%s is %s, and the provider has no such ability", name, level[name])
		}
	}
}

func testLife(t *testing.T, s *suite) {
	r, l := s.request(t)
	r.Args = []string{"-a", "two words"}
	h := s.create(t, r)
	created := s.state(t, h)
	if created.Phase != sandbox.Created || time.Since(created.Since).Abs() > wait {
		t.Errorf("created: %+v", created)
	}
	b := s.boot(t, h, r, l, "boot")
	if !slices.Equal(b.hello.Args, r.Args) || b.hello.Dir != sandbox.Workspace {
		t.Errorf("the driver was run with %q in %s", b.hello.Args, b.hello.Dir)
	}
	if !slices.Contains(b.hello.Env, "HOME="+sandbox.Home) {
		t.Errorf("the driver does not know its home: %q", b.hello.Env)
	}
	for name, value := range r.Variables {
		if !slices.Contains(b.hello.Env, name+"="+value) {
			t.Errorf("the driver has no variable %s=%s: %q", name, value, b.hello.Env)
		}
	}
	running := s.state(t, h)
	if running.Phase != sandbox.Running || running.Since.Before(created.Since) {
		t.Errorf("running: %+v", running)
	}
	if err := s.p.Stop(t.Context(), h, 30*time.Second); err != nil {
		t.Fatal(tell(err))
	}
	if exited := s.state(t, h); exited.Phase != s.stopped() || exited.Phase == sandbox.Exited && exited.Since.Before(running.Since) || exited.OOM {
		t.Errorf("exited: %+v", exited)
	}
	for range 2 {
		if err := s.p.Stop(t.Context(), h, time.Second); err != nil {
			t.Errorf("stop a box that is stopped: %v", tell(err))
		}
	}
	for range 2 {
		if err := s.p.Delete(t.Context(), h); err != nil {
			t.Fatal(tell(err))
		}
		s.phase(t, h, sandbox.Absent)
	}
	again := s.create(t, r)
	s.phase(t, again, sandbox.Created)
}

func testCreateTwice(t *testing.T, s *suite) {
	r, l := s.request(t)
	h := s.create(t, r)
	b := s.boot(t, h, r, l, "boot")
	later := *r
	later.Image = "skep-test-that-is-gone:latest" // what is there is what was asked for when it was made
	other := s.o.New(t)
	defer other.Close()
	got, err := other.Create(t.Context(), &later)
	if err != nil || got != h {
		t.Fatalf("created again: %s, %v; want %s", got, tell(err), h)
	}
	b.must("stat", "/")
	s.phase(t, h, sandbox.Running)
	if err := s.p.Stop(t.Context(), h, 30*time.Second); err != nil {
		t.Fatal(tell(err))
	}
	if s.o.Gone {
		return
	}
	if got, err := s.p.Create(t.Context(), r); err != nil || got != h {
		t.Errorf("created again when it had exited: %s, %v; want %s", got, tell(err), h)
	}
	s.phase(t, h, sandbox.Exited)
}

// testCreateAtOnce has many servers, as it were, create one box.
func testCreateAtOnce(t *testing.T, s *suite) {
	r, _ := s.request(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	made := map[sandbox.Handle]int{}
	for range 6 {
		wg.Go(func() {
			h, err := s.p.Create(t.Context(), r)
			if err != nil {
				t.Errorf("create: %v", tell(err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			made[h]++
		})
	}
	wg.Wait()
	for h := range made {
		t.Cleanup(func() { s.remove(t, h) })
	}
	list, err := s.p.List(t.Context(), s.owner)
	if err != nil || len(list) != 1 || len(made) != 1 {
		t.Errorf("%d boxes were made, as %v: %v", len(list), made, tell(err))
	}
}

func testAbsent(t *testing.T, s *suite) {
	r, _ := s.request(t)
	h, err := s.p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(tell(err))
	}
	for _, h := range []sandbox.Handle{h, "skep-000000000000-never-1"} {
		for range 2 {
			if err := s.p.Delete(t.Context(), h); err != nil {
				t.Errorf("delete %s, which is not there: %v", h, tell(err))
			}
		}
		s.phase(t, h, sandbox.Absent)
		if err := s.p.Stop(t.Context(), h, time.Second); err != nil {
			t.Errorf("stop %s, which is not there: %v", h, tell(err))
		}
		kind(t, "start one that is not there", s.p.Start(t.Context(), h, strings.NewReader("boot")), agent.NotFound)
	}
	if list, err := s.p.List(t.Context(), s.owner); err != nil || len(list) != 0 {
		t.Errorf("list of nothing: %v, %v", list, tell(err))
	}
}

// testList has generations and owners that the one who lists did not know of.
func testList(t *testing.T, s *suite) {
	r, l := s.request(t)
	want := map[sandbox.Handle]sandbox.Observed{}
	for _, generation := range []int64{1, 2, 77} {
		r.Generation = generation
		h := s.create(t, r)
		want[h] = sandbox.Observed{Handle: h, ID: r.ID, Generation: generation, State: sandbox.State{Phase: sandbox.Created}}
		if generation == 2 {
			s.boot(t, h, r, l, "boot")
			want[h] = sandbox.Observed{Handle: h, ID: r.ID, Generation: generation, State: sandbox.State{Phase: sandbox.Running}}
		}
	}
	foreign := &suite{o: s.o, p: s.p, owner: s.owner + "0"} // a server whose name begins the same
	fr, _ := foreign.request(t)
	fr.ID = r.ID
	foreign.create(t, fr)
	list, err := s.p.List(t.Context(), s.owner)
	if err != nil {
		t.Fatal(tell(err))
	}
	if len(list) != len(want) {
		t.Errorf("%d boxes are listed, want %d: %+v", len(list), len(want), list)
	}
	for _, got := range list {
		w, ok := want[got.Handle]
		if !ok || got.ID != w.ID || got.Generation != w.Generation || got.State.Phase != w.State.Phase || time.Since(got.Created).Abs() > wait {
			t.Errorf("listed: %+v, want %+v", got, w)
		}
	}
}

func testStartTwice(t *testing.T, s *suite) {
	b := s.start(t, "first", nil)
	kind(t, "start a box that runs", s.p.Start(t.Context(), b.h, strings.NewReader("second")), agent.Conflict)
	b.must("stat", "/")
	s.phase(t, b.h, sandbox.Running)

	r, l := s.request(t)
	h := s.create(t, r)
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- s.p.Start(t.Context(), h, strings.NewReader("one boot")) }()
	}
	first, second := <-errs, <-errs
	if (first == nil) == (second == nil) {
		t.Errorf("of two starts at once one must win: %v, %v", tell(first), tell(second))
	}
	l.SetDeadline(time.Now().Add(wait))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("%v\n%s", err, s.why(t, h))
	}
	defer conn.Close()
	line := make([]byte, 64)
	if n, err := conn.Read(line); err != nil || !strings.Contains(string(line[:n]), `"one boot"`) {
		t.Errorf("hello of a box that two started: %s (%v)", line[:n], err)
	}
}

func testStartAgain(t *testing.T, s *suite) {
	b := s.start(t, "first", nil)
	if err := s.p.Stop(t.Context(), b.h, 30*time.Second); err != nil {
		t.Fatal(tell(err))
	}
	want := agent.Conflict
	if s.o.Gone {
		want = agent.NotFound
	}
	kind(t, "start a box that has ended", s.p.Start(t.Context(), b.h, strings.NewReader("second")), want)
	s.phase(t, b.h, s.stopped())
}

func testExit(t *testing.T, s *suite) {
	for _, code := range []int{0, 42} {
		b := s.start(t, "boot", nil)
		b.last("exit", fmt.Sprint(code))
		if got := s.until(t, b.h, sandbox.Exited); got.Code != code || got.OOM {
			t.Errorf("exited with %d: %+v", code, got)
		}
	}
}

func testStopPolitely(t *testing.T, s *suite) {
	b := s.start(t, "boot", nil)
	begun := time.Now()
	if err := s.p.Stop(t.Context(), b.h, time.Minute); err != nil {
		t.Fatal(tell(err))
	}
	if took := time.Since(begun); took > 40*time.Second {
		t.Errorf("a driver that ends when told took %s to end", took)
	}
	if got := s.state(t, b.h); got.Phase != s.stopped() || got.Phase == sandbox.Exited && got.Code != 7 {
		t.Errorf("stopped: %+v", got)
	}
}

func testStopByForce(t *testing.T, s *suite) {
	b := s.start(t, "boot", func(r *sandbox.Request) { r.Args = []string{"-stubborn"} })
	begun := time.Now()
	if err := s.p.Stop(t.Context(), b.h, 1500*time.Millisecond); err != nil {
		t.Fatal(tell(err))
	}
	if took := time.Since(begun); took < 1500*time.Millisecond || took > 40*time.Second {
		t.Errorf("a driver that does not end took %s to end", took)
	}
	if got := s.state(t, b.h); got.Phase != s.stopped() || got.Phase == sandbox.Exited && got.Code != 137 {
		t.Errorf("stopped: %+v", got)
	}
}

func testDeleteRunning(t *testing.T, s *suite) {
	b := s.start(t, "boot", func(r *sandbox.Request) { r.Args = []string{"-stubborn"} })
	var wg sync.WaitGroup
	for range 4 { // a sweep, and who asked for it
		wg.Go(func() {
			if err := s.p.Delete(t.Context(), b.h); err != nil {
				t.Errorf("delete: %v", tell(err))
			}
			s.phase(t, b.h, sandbox.Absent)
		})
	}
	wg.Wait()
}

// testBoot has a payload that is longer than any pipe holds, and looks for it wherever it could be.
func testBoot(t *testing.T, s *suite) {
	const secret = "SKEP-BOOT-SECRET"
	payload := secret + strings.Repeat("x", 300<<10) + "\n"
	b := s.start(t, payload, nil)
	if b.hello.Boot != payload {
		t.Errorf("the driver was given %d bytes, want %d", len(b.hello.Boot), len(payload))
	}
	for _, line := range b.ask("processes").List {
		if strings.Contains(line, secret) {
			t.Errorf("a process shows it: %.200s", line)
		}
	}
	if strings.Contains(s.o.Tell(t, b.h), secret) {
		t.Error("what can be asked of the box shows it")
	}
	if l, ok := s.p.(sandbox.Logger); ok {
		if log, err := l.Log(t.Context(), b.h, 1<<20); err != nil || strings.Contains(string(log), secret) {
			t.Errorf("the log shows it, or cannot be read: %v", tell(err))
		}
	}
}

// testBootFails has a payload that cannot be read to its end: a box does not stay there half booted.
func testBootFails(t *testing.T, s *suite) {
	r, _ := s.request(t)
	h := s.create(t, r)
	half := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("the rest is gone")))
	if err := s.p.Start(t.Context(), h, half); err == nil || !strings.Contains(err.Error(), "the rest is gone") {
		t.Errorf("start: %v", tell(err))
	}
	s.phase(t, h, s.stopped())
}

func testNoImage(t *testing.T, s *suite) {
	r, _ := s.request(t)
	r.Image = "skep-test-never-made:latest"
	h, err := s.p.Create(t.Context(), r)
	if s.o.Gone && err == nil {
		err = s.p.Start(t.Context(), h, strings.NewReader("boot"))
	}
	kind(t, "an image that is not there", err, agent.NotFound)
	if e := agent.AsError(err); e != nil && (!strings.Contains(e.Msg, r.Image) || !strings.Contains(e.Hint, "skep image build")) {
		t.Errorf("it does not say which, or what to do: %s / %s", e.Msg, e.Hint)
	}
	if list, err := s.p.List(t.Context(), s.owner); err != nil || len(list) != 0 {
		t.Errorf("something was made: %v, %v", list, tell(err))
	}
}

func testNoRuntime(t *testing.T, s *suite) {
	r, _ := s.request(t)
	r.Runtime = "skep-test-no-such-runtime"
	_, err := s.p.Create(t.Context(), r)
	kind(t, "a runtime that is not there", err, agent.Invalid)
}

func testNoDriver(t *testing.T, s *suite) {
	s.has(t, sandbox.SocketMount)
	r, _ := s.request(t)
	r.Driver += ".gone"
	h, err := s.p.Create(t.Context(), r)
	if err == nil {
		t.Cleanup(func() { s.remove(t, h) })
		err = s.p.Start(t.Context(), h, strings.NewReader("boot"))
	}
	if e := agent.AsError(err); e == nil || e.Kind != agent.Invalid && e.Kind != agent.Unavailable {
		t.Errorf("a driver that is not there: %v", tell(err))
	}
}
