package sandboxtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

func testPause(t *testing.T, s *suite) {
	s.has(t, sandbox.CanPause)
	p := s.p.(sandbox.Pauser)
	b := s.start(t, "boot", nil)
	if err := p.Pause(t.Context(), b.h); err != nil {
		t.Fatal(tell(err))
	}
	s.phase(t, b.h, sandbox.Paused)
	answered := make(chan reply, 1)
	go func() { answered <- b.ask("stat", "/") }()
	select {
	case r := <-answered:
		t.Errorf("a box that holds still answers: %+v", r)
	case <-time.After(300 * time.Millisecond):
	}
	if err := p.Resume(t.Context(), b.h); err != nil {
		t.Fatal(tell(err))
	}
	select {
	case <-answered:
	case <-time.After(wait):
		t.Fatal("a box that was resumed does not answer")
	}
	if err := p.Pause(t.Context(), b.h); err != nil {
		t.Fatal(tell(err))
	}
	if err := s.p.Stop(t.Context(), b.h, 30*time.Second); err != nil { // it hears TERM all the same
		t.Fatal(tell(err))
	}
	if got := s.state(t, b.h); got.Phase != sandbox.Exited || got.Code != 7 {
		t.Errorf("stopped while it held still: %+v", got)
	}

	b = s.start(t, "boot", nil)
	if err := p.Pause(t.Context(), b.h); err != nil {
		t.Fatal(tell(err))
	}
	s.remove(t, b.h)
	s.phase(t, b.h, sandbox.Absent)
}

func testExec(t *testing.T, s *suite) {
	s.has(t, sandbox.CanExec)
	x := s.p.(sandbox.Execer)
	b := s.start(t, "boot", nil)
	var out, errOut bytes.Buffer
	code, err := x.Exec(t.Context(), b.h, []string{sandbox.Driver, "hello"}, &out, &errOut)
	if err != nil || code != 3 || out.String() != "out\n" || errOut.String() != "err\n" {
		t.Errorf("exec: %d, %v; out %q, err %q", code, tell(err), &out, &errOut)
	}
	out.Reset()
	if code, err := x.Exec(t.Context(), b.h, []string{"/no/such/program"}, &out, &out); err == nil && code == 0 {
		t.Errorf("a program that is not there ended well: %s", &out)
	}
	if err := s.p.Stop(t.Context(), b.h, 30*time.Second); err != nil {
		t.Fatal(tell(err))
	}
	_, err = x.Exec(t.Context(), b.h, []string{sandbox.Driver, "hello"}, &out, &errOut)
	if e := agent.AsError(err); e == nil || e.Kind != agent.Conflict && (!s.o.Gone || e.Kind != agent.NotFound) {
		t.Errorf("exec in a box that has exited: %v", tell(err))
	}
}

func testLog(t *testing.T, s *suite) {
	s.has(t, sandbox.CanLog)
	l := s.p.(sandbox.Logger)
	b := s.start(t, "boot", nil)
	for i := range 50 {
		b.must("say", fmt.Sprintf("line %d of it", i))
	}
	want := "line 48 of it\nline 49 of it\n"
	var got []byte
	for end := time.Now().Add(wait); ; {
		var err error
		if got, err = l.Log(t.Context(), b.h, int64(len(want))); err != nil {
			t.Fatal(tell(err))
		}
		if string(got) == want || time.Now().After(end) {
			break
		}
	}
	if string(got) != want {
		t.Errorf("log: %q, want %q", got, want)
	}
	all, err := l.Log(t.Context(), b.h, 1<<20)
	if err != nil || strings.Count(string(all), "of it") != 50 {
		t.Errorf("log: %q, %v", all, tell(err))
	}
	b.last("exit", "0")
	s.until(t, b.h, sandbox.Exited)
	if again, err := l.Log(t.Context(), b.h, 1<<20); err != nil || !bytes.Equal(again, all) {
		t.Errorf("log of a box that has exited: %q, %v", again, tell(err))
	}
}

// testLogFlood has a driver that fills the disk of the host, if it can.
func testLogFlood(t *testing.T, s *suite) {
	s.has(t, sandbox.CanLog)
	b := s.start(t, "boot", nil)
	line := strings.Repeat("x", 64<<10)
	for range 96 {
		b.must("say", line)
	}
	b.must("say", "the end")
	b.last("exit", "0")
	s.until(t, b.h, sandbox.Exited)
	got, err := s.p.(sandbox.Logger).Log(t.Context(), b.h, 64<<20)
	if err != nil || len(got) > 3<<20 || !strings.HasSuffix(string(got), "the end\n") {
		t.Errorf("of six megabytes %d bytes are kept, which end with %q: %v", len(got), got[max(0, len(got)-10):], tell(err))
	}
}

func testWarm(t *testing.T, s *suite) {
	s.has(t, sandbox.CanWarm)
	p := s.p.(sandbox.Warmer)
	r, l := s.request(t)
	h := s.create(t, r)
	for range 2 {
		if err := p.Warm(t.Context(), h); err != nil {
			t.Fatal(tell(err))
		}
	}
	s.phase(t, h, sandbox.Running)
	b := s.boot(t, h, r, l, "boot")
	if b.hello.Boot != "boot" {
		t.Errorf("it was booted with %q", b.hello.Boot)
	}
	kind(t, "warm a box that was booted", p.Warm(t.Context(), h), agent.Conflict)
	kind(t, "start a box that was booted", s.p.Start(t.Context(), h, strings.NewReader("again")), agent.Conflict)

	r, _ = s.request(t)
	h = s.create(t, r)
	if err := p.Warm(t.Context(), h); err != nil {
		t.Fatal(tell(err))
	}
	if err := s.p.Stop(t.Context(), h, 0); err != nil {
		t.Fatal(tell(err))
	}
	kind(t, "start a box that has ended while it waited", s.p.Start(t.Context(), h, strings.NewReader("boot")), agent.Conflict)
	kind(t, "warm a box that has ended", p.Warm(t.Context(), h), agent.Conflict)
	s.remove(t, h)
	kind(t, "warm a box that is not there", p.Warm(t.Context(), h), agent.NotFound)
}

// testWarmCloses has the server go away while a box waits.
func testWarmCloses(t *testing.T, s *suite) {
	s.has(t, sandbox.CanWarm)
	r, l := s.request(t)
	h := s.create(t, r)
	gone := s.o.New(t)
	if err := gone.(sandbox.Warmer).Warm(t.Context(), h); err != nil {
		t.Fatal(tell(err))
	}
	kind(t, "start a box that another has wait", s.p.Start(t.Context(), h, strings.NewReader("mine")), agent.Conflict)
	if err := gone.Close(); err != nil {
		t.Fatal(tell(err))
	}
	l.SetDeadline(time.Now().Add(wait))
	conn, err := l.Accept() // the program in box boots with what it was given
	if err != nil {
		t.Fatalf("its input did not end: %v\n%s", err, s.why(t, h))
	}
	defer conn.Close()
	line := make([]byte, 4096)
	if n, err := conn.Read(line); err != nil || !strings.Contains(string(line[:n]), `"boot":""`) {
		t.Errorf("hello of a box that nobody has booted: %s (%v)", line[:n], err)
	}
}

func testSnapshot(t *testing.T, s *suite) {
	s.has(t, sandbox.CanSnapshot)
	b := s.start(t, "boot", nil)
	b.must("write", "/tmp/left", "over")
	image := s.owner + "-snapshot:latest"
	if err := s.p.(sandbox.Snapshotter).Snapshot(t.Context(), b.h, image); err != nil {
		t.Fatal(tell(err))
	}
	if s.o.RemoveImage != nil {
		s.o.RemoveImage(t, image)
	}
	b.must("stat", "/")
	b = s.start(t, "boot", func(r *sandbox.Request) { r.Image = image })
	b.must("stat", "/etc")
	b.cannot("stat", "/tmp/left")
}
