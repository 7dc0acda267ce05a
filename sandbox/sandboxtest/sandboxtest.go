// Package sandboxtest is the suite that all providers of sandboxes pass. It makes real boxes, whose driver is the program in box: what a box can and cannot do
// is tried from within it.
package sandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// Options are of one provider.
type Options struct {
	New    func(t *testing.T) sandbox.Provider // of the same installation each time
	Image  string                              // in which the boxes are; nothing of it is run
	Driver string                              // file of the program in box, built static for the machine that the boxes are on
	// Tell returns all that the installation tells of a box to who may ask it: none of its boot payload may be there.
	Tell func(t *testing.T, h sandbox.Handle) string
	// RemoveImage removes an image that the suite has made when the test ends.
	RemoveImage func(t *testing.T, image string)
	// Runtime is of Request.Runtime.
	Runtime string
	// Lacks names what is not as elsewhere here: facts of /proc/self/status that this kind of isolation has no word for, OOM of a State, and what a box can do
	// as its helper gain says it, because it does not do it to the host.
	Lacks []string
	// Gone says that a box which is stopped is absent, and that an image is looked for when a box starts.
	Gone bool
	// Whole says that a bound of memory or processes ends the whole box, not what went over it.
	Whole bool
}

// wait is how long a test waits for what a box has to do.
const wait = 90 * time.Second

// Run runs the suite.
func Run(t *testing.T, o Options) {
	tests := []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"Probe", testProbe}, {"Life", testLife}, {"CreateTwice", testCreateTwice}, {"CreateAtOnce", testCreateAtOnce}, {"Absent", testAbsent},
		{"List", testList}, {"StartTwice", testStartTwice}, {"StartAgain", testStartAgain}, {"Exit", testExit}, {"StopPolitely", testStopPolitely},
		{"StopByForce", testStopByForce}, {"DeleteRunning", testDeleteRunning}, {"Boot", testBoot}, {"BootFails", testBootFails}, {"NoImage", testNoImage},
		{"NoRuntime", testNoRuntime}, {"NoDriver", testNoDriver},
		{"Privileges", testPrivileges}, {"Files", testFiles}, {"Network", testNetwork}, {"Pids", testPids}, {"Memory", testMemory}, {"OOM", testOOM}, {"Disk", testDisk},
		{"Pet", testPet}, {"Pause", testPause}, {"Exec", testExec}, {"Log", testLog}, {"LogFlood", testLogFlood}, {"Snapshot", testSnapshot},
		{"Warm", testWarm}, {"WarmCloses", testWarmCloses},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // most of a test is waiting for an installation
			p := o.New(t)
			t.Cleanup(func() { p.Close() })
			tt.test(t, &suite{o: o, p: p, owner: "test-" + strings.ToLower(rand.Text()[:10])})
		})
	}
}

// suite is one test's. Each has an owner of its own, so that nothing of one is seen by another.
type suite struct {
	o     Options
	p     sandbox.Provider
	owner string
}

// request is of a small box whose socket someone listens at.
func (s *suite) request(t *testing.T) (*sandbox.Request, *net.UnixListener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep") // a short path, for the sake of the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, sandbox.Socket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o666); err != nil { // the user of a box is none of the host's
		t.Fatal(err)
	}
	return &sandbox.Request{
		Owner: s.owner, ID: agent.NewSandboxID(time.Now()), Generation: 1, Image: s.o.Image, Runtime: s.o.Runtime, Sockets: dir, Driver: s.o.Driver,
		Size: agent.SandboxSize{Memory: 256 << 20, CPUs: 1.5, Pids: 128, Disk: 32 << 20}, Variables: map[string]string{"COLOUR": "green", "EMPTY": ""},
	}, l
}

// create creates the box of r, and deletes it when the test ends.
func (s *suite) create(t *testing.T, r *sandbox.Request) sandbox.Handle {
	t.Helper()
	h, err := s.p.Create(t.Context(), r)
	if err != nil {
		t.Fatalf("create: %v", tell(err))
	}
	t.Cleanup(func() { s.remove(t, h) })
	return h
}

func (s *suite) remove(t *testing.T, h sandbox.Handle) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := s.p.Delete(ctx, h); err != nil {
		t.Errorf("delete: %v", tell(err))
	}
}

// box is one that has said hello.
type box struct {
	t     *testing.T
	s     *suite
	h     sandbox.Handle
	r     *sandbox.Request
	in    *json.Decoder
	out   *json.Encoder
	hello hello
}

// What package main of box has as Hello, Ask and Reply.
type (
	hello struct {
		Boot string `json:"boot"`
		Args []string
		Env  []string
		Dir  string
	}
	ask struct {
		Do   string   `json:"do"`
		Args []string `json:"args"`
	}
	reply struct {
		Text  string            `json:"text"`
		Error string            `json:"error"`
		Facts map[string]string `json:"facts"`
		List  []string          `json:"list"`
	}
)

// start makes and starts a box; change may change what is asked for.
func (s *suite) start(t *testing.T, boot string, change func(*sandbox.Request)) *box {
	t.Helper()
	r, l := s.request(t)
	if change != nil {
		change(r)
	}
	h := s.create(t, r)
	return s.boot(t, h, r, l, boot)
}

func (s *suite) boot(t *testing.T, h sandbox.Handle, r *sandbox.Request, l *net.UnixListener, boot string) *box {
	t.Helper()
	if err := s.p.Start(t.Context(), h, strings.NewReader(boot)); err != nil {
		t.Fatalf("start: %v", tell(err))
	}
	l.SetDeadline(time.Now().Add(wait))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("the box does not dial: %v\n%s", err, s.why(t, h))
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * wait))
	b := &box{t: t, s: s, h: h, r: r, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
	if err := b.in.Decode(&b.hello); err != nil {
		t.Fatalf("the box says no hello: %v\n%s", err, s.why(t, h))
	}
	return b
}

// why is what can be found out about a box that does not do what it should.
func (s *suite) why(t *testing.T, h sandbox.Handle) string {
	state, err := s.p.Inspect(t.Context(), h)
	b, _ := json.Marshal(state)
	if err != nil {
		b = []byte(err.Error())
	}
	if l, ok := s.p.(sandbox.Logger); ok {
		said, _ := l.Log(t.Context(), h, 4<<10)
		b = append(append(b, '\n'), said...)
	}
	return string(b)
}

// ask has the box do something, and returns what came of it. A box that is gone fails the test.
func (b *box) ask(do string, args ...string) reply {
	b.t.Helper()
	var r reply
	err := b.out.Encode(ask{Do: do, Args: args})
	if err == nil {
		err = b.in.Decode(&r)
	}
	if err != nil {
		b.t.Fatalf("the box did not answer to %s %q: %v\n%s", do, args, err, b.s.why(b.t, b.h))
	}
	return r
}

// must has the box do what it can do.
func (b *box) must(do string, args ...string) string {
	b.t.Helper()
	r := b.ask(do, args...)
	if r.Error != "" {
		b.t.Fatalf("%s %q in the box: %s %s", do, args, r.Error, r.Text)
	}
	return r.Text
}

// cannot has the box do what it must not be able to do.
func (b *box) cannot(do string, args ...string) {
	b.t.Helper()
	if r := b.ask(do, args...); r.Error == "" {
		b.t.Errorf("the box could %s %q: %s", do, args, r.Text)
	}
}

// last has the box do something that it does not live through.
func (b *box) last(do string, args ...string) {
	b.t.Helper()
	if err := b.out.Encode(ask{Do: do, Args: args}); err != nil {
		b.t.Fatal(err)
	}
}

func (s *suite) state(t *testing.T, h sandbox.Handle) sandbox.State {
	t.Helper()
	got, err := s.p.Inspect(t.Context(), h)
	if err != nil {
		t.Fatalf("inspect: %v", tell(err))
	}
	return got
}

// until waits until a box is in a phase.
func (s *suite) until(t *testing.T, h sandbox.Handle, want sandbox.Phase) sandbox.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	for {
		got := s.state(t, h)
		if got.Phase == want {
			return got
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the box is in phase %d, not in %d\n%s", got.Phase, want, s.why(t, h))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stopped is the phase of a box that was stopped. It has an exit status unless it is Absent.
func (s *suite) stopped() sandbox.Phase {
	if s.o.Gone {
		return sandbox.Absent
	}
	return sandbox.Exited
}

func (s *suite) phase(t *testing.T, h sandbox.Handle, want sandbox.Phase) {
	t.Helper()
	if got := s.state(t, h); got.Phase != want {
		t.Errorf("the box is in phase %d, not in %d\n%s", got.Phase, want, s.why(t, h))
	}
}

// has skips a test of a capability that the provider does not have, and says so.
func (s *suite) has(t *testing.T, name string) {
	t.Helper()
	for _, c := range s.p.Probe(t.Context()).Capabilities {
		if c.Name == name && c.Level != agent.CapabilityEnforced {
			t.Skipf("%s is %s: %s", name, c.Level, c.Reason)
		}
	}
}

// kind fails a test whose error is not of that kind, or does not say what to do.
func kind(t *testing.T, what string, err error, want agent.Kind) {
	t.Helper()
	e := agent.AsError(err)
	switch {
	case err == nil:
		t.Errorf("%s: no error, want %s", what, want)
	case e == nil || e.Kind != want:
		t.Errorf("%s: %v, want %s", what, tell(err), want)
	case e.Hint == "":
		t.Errorf("%s: %v has no hint", what, err)
	}
}

// tell is err and its kind.
func tell(err error) error {
	if e := agent.AsError(err); e != nil {
		return errors.New(e.Kind.String() + ": " + e.Error())
	}
	return err
}
