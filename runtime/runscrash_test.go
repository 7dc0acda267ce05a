package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// bank is cells with one agent, "bank", of which each call is an effect that is counted.
type bank struct {
	*host.Host
	paid  atomic.Int64
	block atomic.Pointer[chan struct{}] // a call waits for it, when it is there
}

func (b *bank) Call(ctx context.Context, c host.Call) (host.Result, error) {
	if c.Agent != "bank" {
		return b.Host.Call(ctx, c)
	}
	b.paid.Add(1)
	if block := b.block.Load(); block != nil {
		select {
		case <-*block:
		case <-ctx.Done():
			return host.Result{}, ctx.Err()
		}
	}
	if c.Function == "large" {
		return host.Result{Output: agent.JSON(encoded(strings.Repeat("x", 300_000)))}, nil
	}
	return host.Result{Output: agent.JSON([]byte(`"paid"`))}, nil
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// mortal is a database that nothing reaches any more once it is dead.
type mortal struct {
	kv.DB
	mu   sync.RWMutex
	dead bool
	last atomic.Bool // the next commit is the last
	died func()
}

func (m *mortal) Apply(ctx context.Context, changes []kv.Change) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.dead {
		return faultkv.ErrCrashed
	}
	err := m.DB.Apply(ctx, changes)
	if m.last.Load() {
		m.died()
	}
	return err
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

// process is a runtime over a database that dies when it is told to.
type process struct {
	*world
	stop func()
	dead chan struct{}
}

// city is what outlives processes: the database, the directory, the bank, a web server.
type city struct {
	t      testing.TB
	inner  kv.DB
	dir    string
	bank   *bank
	out    *egress.Egress
	url    string
	puts   atomic.Int64
	asked  atomic.Pointer[func()] // before the web server answers, when it is there
	script string
	mu     sync.Mutex
	load   func(context.Context, agent.Digest) (agent.Source, error)
}

func newCity(t testing.TB, script string) *city {
	c := &city{t: t, inner: memkv.New(), dir: t.TempDir()}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked := c.asked.Load(); asked != nil {
			(*asked)()
		}
		if r.Method == http.MethodPut {
			c.puts.Add(1)
		}
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
	}))
	t.Cleanup(web.Close)
	c.url = web.URL
	c.script = strings.ReplaceAll(script, "URL", web.URL)
	c.out = egress.New(&egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(func() { _ = c.out.Close() })
	h, err := host.New(t.Context(), &host.Options{Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) {
		c.mu.Lock()
		load := c.load
		c.mu.Unlock()
		return load(ctx, d)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.WithoutCancel(t.Context())) })
	c.bank = &bank{Host: h}
	return c
}

// process starts one that dies at the operation that plan says.
func (c *city) process(o runtime.Options, plan func(faultkv.Op) faultkv.Fault) *process {
	c.t.Helper()
	p := &process{dead: make(chan struct{})}
	m := &mortal{DB: c.inner, died: sync.OnceFunc(func() { close(p.dead) })}
	db := faultkv.New(m, func(op faultkv.Op) faultkv.Fault {
		f := plan(op)
		if f.Crash && f.Took {
			m.last.Store(true)
		} else if f.Crash {
			m.died()
		}
		return f
	})
	st, err := store.Open(c.t.Context(), db, c.dir, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	o.Egress, o.Grace = c.out, time.Millisecond
	r := runtime.New(st, c.bank, &o)
	c.mu.Lock()
	c.load = r.LoadSource
	c.mu.Unlock()
	p.world = &world{rig: &rig{t: c.t, Runtime: r, store: st, db: db}, cells: c.bank.Host}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-p.dead:
			m.kill()
		default:
		}
		began := time.Now()
		running.Wait() // which ends soon also when the store is dead
		if took := time.Since(began); took > 8*time.Second {
			c.t.Errorf("the process took %s to stop", took)
		}
		_ = st.Close()
	})
	c.t.Cleanup(p.stop)
	return p
}

func never(faultkv.Op) faultkv.Fault { return faultkv.Fault{} }

// deploy makes the agents.
func (p *process) deploy(c *city) {
	p.push(c.script)
	host := strings.TrimPrefix(c.url, "http://")
	name, port, _ := strings.Cut(host, ":")
	grants := agent.AgentGrants("bank", "a")
	grants.HTTP = []agent.HTTPGrant{{Allow: agent.Target{Scheme: "http", Host: name, Port: port}}}
	p.agent(agent.Agent{Name: "a", Grants: grants})
	p.agent(agent.Agent{Name: "bank"})
}

const windows = `
import { agent, callAgent, emit, run, sleep, storage, waitForEvent } from "skep";
export async function add(n) { const was = (await storage.get("n")) ?? 0; await storage.set("n", was + n); return was + n; }
export async function child(n) { emit("child", n); await storage.set("child", ((await storage.get("child")) ?? 0) + 1); return 2 * n; }
export async function total() { return [await storage.get("n"), await storage.get("child")]; }
export default {
	async work() {
		emit("begin");
		await storage.set("n", ((await storage.get("n")) ?? 0) + 1);
		const paid = await callAgent("bank", "pay", 5);
		emit("paid", paid);
		const got = await (await fetch("URL/read")).text();
		await fetch("URL/put", { method: "PUT", body: "x" });
		const sum = await agent("a", "other").add(3);
		await agent("a", "other", { send: true }).add(4);
		const kid = await run("child", 21);
		const [event, twice] = await Promise.all([waitForEvent("go"), kid.result()]);
		console.log("end");
		return { paid, got, sum, event, twice };
	},
};
`

// A process dies at each commit of a run, before it and after it, and the next one goes on. Whatever the window, each effect is there once:
// of the bank's, about which nobody can know, the run says so.
func TestRunCrashWindows(t *testing.T) {
	c := newCity(t, windows)
	setup := c.process(runtime.Options{}, never)
	setup.deploy(c)
	setup.stop()
	uncertain, runs, step := 0, 0, 2
	if testing.Short() {
		step = 6
	}
	for first, took := range []bool{false, true} {
		for k := 2 - first; ; k += step {
			key := fmt.Sprintf("%v-%d", took, k)
			var armed atomic.Bool
			base := 0
			p := c.process(runtime.Options{}, func(op faultkv.Op) (f faultkv.Fault) {
				if op.Kind == faultkv.Apply && armed.Load() {
					if base++; base == k {
						f = faultkv.Fault{Err: faultkv.ErrFault, Took: took, Crash: true}
					}
				}
				return f
			})
			was := c.bank.paid.Load()
			run, _, err := p.StartRun(t.Context(), app, runtime.RunRequest{Agent: "a", Key: key, Function: "work", Input: agent.JSON([]byte("null"))}, store.Once{})
			if err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			died := p.drive(run)
			p.stop()
			p = c.process(runtime.Options{}, never)
			if p.drive(run) {
				t.Fatal("the second process died")
			}
			got := p.output(run)
			if want := `{"paid":"paid","got":"GET /read","sum":`; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `,"event":{"at":1},"twice":42}`) {
				t.Fatalf("%s: %s\n%q", key, got, p.sessionLog(run))
			}
			runs++
			asked := false
			for _, l := range p.sessionLog(run) {
				asked = asked || strings.HasPrefix(l, "run.uncertain")
			}
			if asked {
				uncertain++
			}
			if n := c.bank.paid.Load() - was; n != 1 && (n != 0 || !asked) {
				t.Errorf("%s: paid %d times", key, n)
			}
			for kind, n := range tally(p.sessionLog(run)) {
				if n != 1 && kind != "run.resumed" && kind != "run.waiting" && kind != "http.request" {
					t.Errorf("%s: %d times %s", key, n, kind)
				}
			}
			res, err := p.CallInstance(t.Context(), app, runtime.InstanceCall{Agent: "a", Key: key, Function: "total", Input: agent.JSON([]byte("null"))})
			if err != nil || string(res.Output.Body) != "[1,1]" {
				t.Errorf("%s: the instance has %s, %v", key, res.Output.Body, err)
			}
			p.stop()
			if !died {
				if k < 7 {
					t.Errorf("a run takes %d commits", k)
				}
				break
			}
		}
	}
	p := c.process(runtime.Options{}, never)
	res, err := p.CallInstance(t.Context(), app, runtime.InstanceCall{Agent: "a", Key: "other", Function: "total", Input: agent.JSON([]byte("null"))})
	if want := fmt.Sprintf("[%d,null]", 7*runs); err != nil || string(res.Output.Body) != want {
		t.Errorf("the other instance has %s, want %s: %v", res.Output.Body, want, err)
	}
	if uncertain == 0 && !testing.Short() {
		t.Error("no run was ever uncertain")
	}
}

func tally(list []string) map[string]int {
	n := map[string]int{}
	for _, l := range list {
		n[l]++
	}
	return n
}

// drive gives a run what it waits for until it has ended. It reports true when the process died.
func (p *process) drive(run agent.Run) bool {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		select {
		case <-p.dead:
			return true
		default:
		}
		now, err := p.store.Run(p.t.Context(), app, run.ID)
		if err != nil {
			return true
		}
		if now.Status.Terminal() {
			return false
		}
		given := make(chan error, 1) // no answer comes when the process dies of it
		go func() { given <- p.give(now) }()
		select {
		case <-p.dead:
			return true
		case err = <-given:
		}
		if err != nil && agent.KindOf(err) != agent.Conflict {
			select {
			case <-p.dead:
				return true
			default:
				p.t.Logf("%s: %v", now.Status, err)
			}
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("run is %s, %+v: %q", now.Status, now.Wait, p.sessionLog(run))
		}
		select {
		case <-p.dead:
			return true
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// give gives a run what it waits for.
func (p *process) give(run agent.Run) (err error) {
	switch run.Status {
	case agent.Uncertain:
		_, err = p.ResolveRun(p.t.Context(), app, run.ID, agent.Resolution{Call: run.Wait.Call, Action: "answer", Output: []byte(`"paid"`)})
	case agent.Waiting:
		_, err = p.SendEvent(p.t.Context(), app, run.ID, "go", "once", []byte(`{"at":1}`))
	}
	return err
}

const slow = `
import { callAgent, emit, waitForEvent } from "skep";
export async function ask() {
	const answer = callAgent("bank", "large").then((a) => { emit("answered", a.length); return a.length; });
	const event = waitForEvent("go").then((e) => { emit("told", e); return e; });
	return await Promise.all([answer, event]);
}
`

// A run gives up its cell while a call takes its time, goes on in other lives meanwhile, and gets the answer in whichever comes then. The call
// is made once.
func TestRunRestsWhileOthersWork(t *testing.T) {
	c := newCity(t, slow)
	block := make(chan struct{})
	c.bank.block.Store(&block)
	p := c.process(runtime.Options{Outside: 20 * time.Millisecond}, never)
	p.deploy(c)
	run := p.begin("ask", "null")
	run = p.until(run, agent.EventRunWaiting)
	if live, _ := p.cells.Live(); live != 0 || run.Status != agent.Running || c.bank.paid.Load() != 1 {
		t.Errorf("%d cells, run is %s, paid %d times", live, run.Status, c.bank.paid.Load())
	}
	p.event(run, "go", "7")
	p.until(run, agent.EventEmit)
	close(block)
	if got := p.output(run); got != "[300000,7]" {
		t.Errorf("output %s", got)
	}
	if n := c.bank.paid.Load(); n != 1 {
		t.Errorf("paid %d times", n)
	}
	log := strings.Join(p.sessionLog(run), " ")
	if strings.Index(log, "told 7") > strings.Index(log, "answered 300000") || strings.Count(log, "told") != 1 {
		t.Errorf("events %s", log)
	}
}
