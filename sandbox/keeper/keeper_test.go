package keeper_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/keeper"
)

func open(t *testing.T, k *running, w keeper.Want) *keeper.Box {
	t.Helper()
	b, err := k.Open(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func does(t *testing.T, b *keeper.Box, line, want string) {
	t.Helper()
	if got, err := sh(t.Context(), b, line); err != nil || strings.TrimSpace(got) != want {
		t.Errorf("%s: %q, %v; want %q", line, got, err, want)
	}
}

func wantKind(t *testing.T, err error, kind agent.Kind, says string) {
	t.Helper()
	if err == nil || agent.KindOf(err) != kind || !strings.Contains(err.Error(), says) {
		t.Errorf("%v (%s), want %s that says %q", err, agent.KindOf(err), kind, says)
	}
}

// Cattle are made for a run, once however many ask, and go with it.
func TestCattle(t *testing.T) {
	w := newWorld(t)
	env := w.env(func(e *agent.Environment) {
		e.Variables, e.Setup = map[string]string{"COLOUR": "blue"}, "echo set up >> log"
	})
	var told []agent.SandboxState
	var mu sync.Mutex
	k := w.start(func(o *keeper.Options) {
		o.Changed = func(_ context.Context, sb agent.Sandbox) { mu.Lock(); told = append(told, sb.State); mu.Unlock() }
	})
	var wg sync.WaitGroup
	ids := make([]agent.SandboxID, 4)
	for i := range ids {
		wg.Go(func() {
			b, err := k.Open(t.Context(), want(env, "run/1", agent.Cattle))
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = b.Record().ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatal(ids)
		}
	}
	b := open(t, k, want(env, "run/1", agent.Cattle))
	if sb := b.Record(); sb.State != agent.SandboxReady || sb.Generation != 1 || sb.Environment != "e@1" || sb.Provider != "engine" || sb.Started.IsZero() {
		t.Errorf("%+v", sb)
	}
	does(t, b, "cat log; echo $COLOUR", "set up\nblue")
	other := open(t, k, want(env, "run/2", agent.Cattle))
	if other.Record().ID == ids[0] {
		t.Error("two runs have one sandbox")
	}
	got, err := k.Get(t.Context(), agent.DefaultApp, ids[0])
	if err != nil {
		t.Fatal(err)
	}
	does(t, got, "cat log", "set up")
	_, err = k.Get(t.Context(), "shop", ids[0])
	wantKind(t, err, agent.NotFound, "no sandbox")

	if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
		t.Fatal(err)
	}
	_, err = sh(t.Context(), b, "true") // it is cut off at once
	wantKind(t, err, agent.Unavailable, "is gone")
	if !errors.Is(err, keeper.ErrLost) {
		t.Error(err)
	}
	_, err = k.Get(t.Context(), agent.DefaultApp, ids[0])
	wantKind(t, err, agent.NotFound, "no sandbox")
	for range 2 {
		if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Delete(t.Context(), agent.DefaultApp, other.Record().ID); err != nil {
		t.Fatal(err)
	}
	w.empty()
	mu.Lock()
	defer mu.Unlock()
	if len(told) == 0 || told[0] != agent.SandboxWanted || told[len(told)-1] != agent.SandboxDeleting {
		t.Error(told)
	}
}

// A pet keeps what it has over stops, and its next run has what is its own.
func TestPet(t *testing.T) {
	w := newWorld(t)
	clock := &clock{now: time.Now()}
	w.now = clock.get
	env := w.env(func(e *agent.Environment) { e.Idle = time.Minute })
	var mu sync.Mutex
	var doors []agent.RunID
	k := w.start(func(o *keeper.Options) {
		o.Every = 10 * time.Millisecond
		o.Door = func(sb agent.Sandbox, _ agent.Environment) (http.Handler, string, error) {
			mu.Lock()
			defer mu.Unlock()
			doors = append(doors, sb.Run)
			return http.NotFoundHandler(), "", nil
		}
		o.Welcome = func(_ context.Context, sb agent.Sandbox, _ agent.Environment) (driver.WelcomeBody, error) {
			return driver.WelcomeBody{Env: map[string]string{"RUN": string(sb.Run)}}, nil
		}
	})
	wanted := want(env, "agent/1", agent.Pet)
	wanted.Run = "R1"
	b := open(t, k, wanted)
	does(t, b, "echo kept > file; echo $RUN", "R1")
	wanted.Run = "R2"
	b = open(t, k, wanted)
	does(t, b, "cat file; echo $RUN", "kept\nR2")
	mu.Lock()
	if last := doors[len(doors)-1]; last != "R2" {
		t.Error(doors)
	}
	mu.Unlock()
	if err := k.Release(t.Context(), agent.DefaultApp, "agent/1"); err != nil {
		t.Fatal(err)
	}
	id := b.Record().ID
	if rec, err := w.store.Sandbox(t.Context(), id); err != nil || rec.Run != "" || rec.State != agent.SandboxReady {
		t.Errorf("%+v %v", rec, err)
	}
	clock.add(time.Minute)
	wait(t, "it has stopped", func() bool {
		rec, err := w.store.Sandbox(t.Context(), id)
		return err == nil && rec.State == agent.SandboxStopped && rec.Handle == ""
	})
	if list := w.engine.handles(); len(list) != 0 {
		t.Error(list)
	}
	_, err := sh(t.Context(), b, "true")
	if !errors.Is(err, keeper.ErrLost) || !strings.Contains(err.Error(), "nobody has used it for 1m") {
		t.Error(err)
	}
	woken, err := k.Get(t.Context(), agent.DefaultApp, id)
	if err != nil {
		t.Fatal(err)
	}
	if sb := woken.Record(); sb.Generation != 2 || sb.ID != id {
		t.Errorf("%+v", sb)
	}
	does(t, woken, "cat file", "kept")
	if err := k.Delete(t.Context(), agent.DefaultApp, id); err != nil {
		t.Fatal(err)
	}
	w.empty()
}

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) get() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// What ends a sandbox of nobody: its idle time, its life, and that what it was for has gone.
func TestExpiry(t *testing.T) {
	for _, c := range []struct {
		name string
		keep agent.SandboxKeep
		env  func(*agent.Environment)
		pass time.Duration
		gone bool
	}{
		{"idle cattle", agent.Cattle, func(e *agent.Environment) { e.Idle = time.Minute }, time.Minute, false},
		{"old cattle", agent.Cattle, func(e *agent.Environment) { e.Idle = 90 * 24 * time.Hour }, 24 * time.Hour, false},
		{"old pet", agent.Pet, func(e *agent.Environment) { e.Life, e.Idle = time.Hour, 2*time.Hour }, time.Hour, false},
		{"cattle of nobody", agent.Cattle, nil, 0, true},
		{"pet of nobody", agent.Pet, nil, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			clock := &clock{now: time.Now()}
			w.now = clock.get
			gone := make(chan struct{})
			k := w.start(func(o *keeper.Options) {
				o.Every = 10 * time.Millisecond
				o.Gone = func(context.Context, agent.Sandbox) (bool, error) {
					select {
					case <-gone:
						return true, nil
					default:
						return false, nil
					}
				}
			})
			b := open(t, k, want(w.env(c.env), "x/1", c.keep))
			does(t, b, "echo 1", "1")
			if c.pass > 0 {
				clock.add(c.pass - time.Second)
			}
			if list := w.records(); len(list) != 1 || list[0].State != agent.SandboxReady {
				t.Errorf("%+v", list)
			}
			clock.add(2 * time.Second)
			if c.gone {
				close(gone)
			}
			w.empty()
		})
	}
}

// A run that waits, for a person say, keeps what it works in, however long nothing happens there.
func TestRunUnderWay(t *testing.T) {
	for _, keep := range []agent.SandboxKeep{agent.Cattle, agent.Pet} {
		t.Run(keep.String(), func(t *testing.T) {
			w := newWorld(t)
			clock := &clock{now: time.Now()}
			w.now = clock.get
			asked, ended := make(chan struct{}, 100), make(chan struct{})
			k := w.start(func(o *keeper.Options) {
				o.Every = 10 * time.Millisecond
				o.InUse = func(_ context.Context, sb agent.Sandbox) (bool, error) {
					if sb.Run != "R-x/1" {
						t.Error(sb.Run)
					}
					asked <- struct{}{}
					select {
					case <-ended:
						return false, nil
					default:
						return true, nil
					}
				}
			})
			b := open(t, k, want(w.env(func(e *agent.Environment) { e.Idle = time.Minute }), "x/1", keep))
			for range 3 {
				clock.add(time.Minute)
				<-asked
			}
			does(t, b, "echo 1", "1")
			close(ended)
			clock.add(time.Minute)
			wait(t, "its box is gone", func() bool { return len(w.engine.handles()) == 0 })
			if !errors.Is(b.Do(t.Context(), driver.DoProcesses, nil, nil), keeper.ErrLost) {
				t.Error("it can be used")
			}
		})
	}
}

// A server that starts again has the boxes that it had, and drivers come back without a loss.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	env := w.env(func(e *agent.Environment) { e.Setup = "echo once >> log" })
	k := w.start(nil)
	b := open(t, k, want(env, "run/1", agent.Cattle))
	does(t, b, "echo 1", "1")
	k.stop()
	_, err := k.Open(t.Context(), want(env, "run/1", agent.Cattle))
	wantKind(t, err, agent.Unavailable, "stopping")

	k = w.start(nil)
	again := open(t, k, want(env, "run/1", agent.Cattle))
	if got, was := again.Record(), b.Record(); got.ID != was.ID || got.Generation != was.Generation {
		t.Errorf("%+v after %+v", got, was)
	}
	does(t, again, "cat log", "once")
	if n := w.engine.gave; n != 1 {
		t.Errorf("%d boxes were made", n)
	}
	if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
		t.Fatal(err)
	}
	w.empty()
}

func TestMost(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	k := w.start(func(o *keeper.Options) { o.Most = 1 })
	open(t, k, want(env, "run/1", agent.Cattle))
	_, err := k.Open(t.Context(), want(env, "run/2", agent.Cattle))
	wantKind(t, err, agent.Exhausted, "1 are allowed")
	if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
		t.Fatal(err)
	}
	w.empty()
	open(t, k, want(env, "run/2", agent.Cattle))
}

// The pool has boxes before anybody asks, which are made for nobody; they go when the environment has another revision.
func TestPool(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	k := w.start(func(o *keeper.Options) { o.Pool, o.Every = 2, 10*time.Millisecond })
	first := open(t, k, want(env, "run/1", agent.Cattle))
	does(t, first, "echo 1", "1")
	full := func(env agent.Environment) func() bool {
		return func() bool {
			n := 0
			for _, rec := range w.records() {
				if rec.Pool && rec.Handle != "" && rec.Environment == env.Name+"@"+string('0'+rune(env.Revision)) {
					n++
				}
			}
			return n == 2
		}
	}
	wait(t, "the pool is full", full(env))
	var pooled []agent.SandboxID
	for _, rec := range w.records() {
		if rec.Pool {
			pooled = append(pooled, rec.ID)
			if rec.For != "" || rec.State != agent.SandboxWanted {
				t.Errorf("%+v", rec)
			}
			_, err := k.Get(t.Context(), agent.DefaultApp, rec.ID)
			wantKind(t, err, agent.NotFound, "no sandbox")
		}
	}
	k.stop()
	_, err := sh(t.Context(), first, "true")
	wantKind(t, err, agent.Unavailable, "stopping")
	k = w.start(func(o *keeper.Options) { o.Pool, o.Every = 2, 10*time.Millisecond }) // which knows them
	wait(t, "it knows the pool", func() bool {
		b := open(t, k, want(env, "run/2", agent.Cattle))
		if id := b.Record().ID; id != pooled[0] && id != pooled[1] {
			_ = k.Release(t.Context(), agent.DefaultApp, "run/2")
			return false
		}
		does(t, b, "echo 1", "1")
		return b.Record().Run == "R-run/2"
	})
	wait(t, "the pool is full again", full(env))
	next := w.env(func(e *agent.Environment) { e.Description = "another" })
	open(t, k, want(next, "run/3", agent.Cattle))
	wait(t, "the pool is of the next revision", full(next))
	wait(t, "the old one is gone", func() bool {
		for _, rec := range w.records() {
			if rec.Pool && rec.Environment == "e@1" {
				return false
			}
		}
		return true
	})
	does(t, open(t, k, want(env, "run/1", agent.Cattle)), "echo 1", "1")
}

// Boxes, volumes and folders that belong to nothing are deleted, those of other servers are not.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	create := func(owner string, id agent.SandboxID, generation int64, volume string) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Create(t.Context(), &sandbox.Request{Owner: owner, ID: id, Generation: generation, Sockets: dir, Volume: volume}); err != nil {
			t.Fatal(err)
		}
	}
	create("other", "A", 1, "")
	create("me", "B", 1, "skep-B")
	create("me", "C", 0, "")
	if err := os.MkdirAll(filepath.Join(w.dir, "B.1"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.start(nil)
	wait(t, "what is of nobody is gone", func() bool {
		names, _ := w.engine.ListVolumes(t.Context(), "me")
		list := w.engine.handles()
		return len(names) == 0 && len(list) == 1 && list[0] == "A-1"
	})
	if _, err := os.Stat(filepath.Join(w.dir, "B.1")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// The socket is reached by whoever is in the box, and by nobody else; what is not the driver's goes to the door.
func TestSocket(t *testing.T) {
	w := newWorld(t)
	k := w.start(func(o *keeper.Options) {
		o.Door = func(sb agent.Sandbox, _ agent.Environment) (http.Handler, string, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(string(sb.Run) + " " + r.Method + " " + r.URL.String()))
			}), "", nil
		}
	})
	b := open(t, k, want(w.env(nil), "run/1", agent.Cattle))
	sb := b.Record()
	for path, mode := range map[string]os.FileMode{"": 0o700, "secret": 0o600, sb.Source(): 0o755, sb.Source() + "/skep.sock": 0o666} {
		if st, err := os.Stat(filepath.Join(w.dir, path)); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%q: %v %v", path, st, err)
		}
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.dir, sb.Source(), sandbox.Socket))
	}}}
	defer client.CloseIdleConnections()
	get := func(path string) (int, string) {
		res, err := client.Get("http://box" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var text strings.Builder
		if _, err := io.Copy(&text, res.Body); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, text.String()
	}
	if code, text := get("/ai/v1/models"); code != 200 || text != "R-run/1 GET /ai/v1/models" {
		t.Error(code, text)
	}
	if code, text := get(driver.Path); code == 200 {
		t.Error(text)
	}
	if code, _ := get(driver.StreamPath + "none"); code != 404 {
		t.Error(code)
	}
	// No header is so long that many of them would fill the host's memory.
	long, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://box/ai", nil)
	if err != nil {
		t.Fatal(err)
	}
	long.Header.Set("Cookie", strings.Repeat("a", 128<<10))
	if res, err := client.Do(long); err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Error(res.Status)
		}
	}
	// A process in the box that connects and disconnects does not make the driver lost.
	for range 20 {
		get(driver.Path)
	}
	does(t, b, "echo 1", "1")
	// Nor do all the connections that it can make, of which the host keeps some and closes the rest.
	var conns []net.Conn
	closed := false
	for range 1100 {
		c, err := net.Dial("unix", filepath.Join(w.dir, sb.Source(), sandbox.Socket))
		if err != nil {
			closed = true
			break
		}
		conns = append(conns, c)
	}
	if !closed {
		last := conns[len(conns)-1]
		_ = last.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := last.Read(make([]byte, 1))
		closed = errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	}
	if !closed {
		t.Error("a box can have as many connections as it likes")
	}
	for _, c := range conns {
		c.Close()
	}
	does(t, b, "echo 1", "1")
	// After the deletion there is nothing to connect to.
	if err := k.Delete(t.Context(), agent.DefaultApp, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get("http://box/ai"); err == nil {
		t.Error("the door is open after the deletion")
	}
}

// A provider is asked once a minute what it has, however many want to know.
func TestProviders(t *testing.T) {
	w := newWorld(t)
	clock := &clock{now: time.Now()}
	w.now = clock.get
	k := w.start(nil)
	asked := func() int { w.engine.mu.Lock(); defer w.engine.mu.Unlock(); return w.engine.probed }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if list := k.Providers(t.Context()); len(list) != 1 || !list[0].Ready || len(list[0].Capabilities) == 0 {
				t.Errorf("%+v", list)
			}
		})
	}
	wg.Wait()
	clock.add(59 * time.Second)
	k.Providers(t.Context())
	if n := asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	clock.add(time.Second)
	k.Providers(t.Context())
	if n := asked(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	env := w.env(nil)
	if err := k.Admit(t.Context(), &env, agent.Pet); err != nil {
		t.Error(err)
	}
	w.engine.set(func(e *engine) { e.lacks = []string{sandbox.Persistent} })
	clock.add(time.Minute)
	wantKind(t, k.Admit(t.Context(), &env, agent.Pet), agent.Invalid, sandbox.Persistent)
	if err := k.Admit(t.Context(), &env, agent.Cattle); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*keeper.Options){
		"relative":  func(o *keeper.Options) { o.Dir = "run" },
		"too deep":  func(o *keeper.Options) { o.Dir = "/" + strings.Repeat("x", 80) },
		"no driver": func(o *keeper.Options) { o.Driver = "" },
		"no owner":  func(o *keeper.Options) { o.Owner = "" },
		"no events": func(o *keeper.Options) { o.Events = nil },
	} {
		o := w.options()
		change(o)
		if _, err := keeper.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
