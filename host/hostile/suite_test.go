package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// attack is one call of a stranger's code.
type attack struct {
	name   string
	src    agent.Source
	fn     string // "f" when empty
	input  string // JSON
	limits agent.Limits
	fetch  bool // an HTTP request instead of a call
	want   []end

	run func(t *testing.T, s *suite) // does it all instead, for attacks of more than one call
}

// end is how an attack may end.
type end struct {
	ok    bool
	kind  agent.Kind
	limit agent.Limit
	says  string // the output when ok and not empty; else a part of the message
}

func (e end) String() string {
	if e.ok {
		return "result " + e.says
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %q", e.kind, e.limit, e.says))
}

// gives wants a result, of any value when that is empty.
func gives(out string) []end { return []end{{ok: true, says: out}} }

// over wants one of limits to be exceeded.
func over(limits ...agent.Limit) []end {
	var es []end
	for _, l := range limits {
		es = append(es, end{kind: agent.Exhausted, limit: l})
	}
	return es
}

// failed wants the code's own failure, and refused that it is not even run.
func failed(says string) []end  { return []end{{kind: agent.Failed, says: says}} }
func refused(says string) []end { return []end{{kind: agent.Invalid, says: says}} }

func either(ends ...[]end) []end {
	var es []end
	for _, e := range ends {
		es = append(es, e...)
	}
	return es
}

// came reports whether the attack ended as e.
func (e end) came(out []byte, err error) bool {
	if err == nil {
		return e.ok && (e.says == "" || e.says == string(out))
	}
	got := agent.AsError(err)
	return !e.ok && got.Kind == e.kind && got.Limit == e.limit && strings.Contains(got.Msg, e.says)
}

// What attacks get unless they say otherwise. Loading is what code may do while it is prepared.
var (
	small   = agent.Limits{CPU: 80 * time.Millisecond, Wall: 15 * time.Second, Memory: 64 << 20}
	loading = agent.Limits{CPU: 300 * time.Millisecond, Wall: 15 * time.Second, Memory: 64 << 20}
)

// bounds are the attack's limits. One that must end by something else than its CPU limit gets time to do so.
func (a attack) bounds() agent.Limits {
	l := a.limits.Or(small)
	spends := slices.ContainsFunc(a.want, func(e end) bool { return e.limit == agent.LimitCPU })
	if a.limits.CPU == 0 && !spends {
		l.CPU = 3 * time.Second
	}
	return l
}

// suite is the host under attack, and its neighbour.
type suite struct {
	host *host.Host
	mu   sync.Mutex
	code map[agent.Digest]agent.Source
	next int

	neighbour agent.Digest
	served    atomic.Int64
	slowest   atomic.Int64 // of the neighbour's calls, in nanoseconds
	attacks   atomic.Int64
}

// open makes a host that keeps few images, so that what is left at the end is what leaks.
func open(t *testing.T) *suite {
	t.Helper()
	s := &suite{code: map[agent.Digest]agent.Source{}}
	h, err := host.New(t.Context(), &host.Options{Load: s.load, Loading: loading, Images: 48 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.host = h
	s.neighbour = s.put(script(`export function hi() { return "hi" }`))
	s.serve(t)
	return s
}

func (s *suite) load(_ context.Context, d agent.Digest) (agent.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src, ok := s.code[d]
	if !ok {
		return agent.Source{}, agent.Errorf(agent.NotFound, "no code %s", d)
	}
	return src, nil
}

// put keeps code under a name of its own.
func (s *suite) put(src agent.Source) agent.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	d := agent.DigestOf(fmt.Appendf(nil, "%d", s.next))
	s.code[d] = src
	return d
}

func (s *suite) drop(d agent.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.code, d)
}

// serve calls the neighbour.
func (s *suite) serve(t *testing.T) {
	t.Helper()
	began := time.Now()
	res, err := s.host.Call(t.Context(), host.Call{Plugin: s.neighbour, Tenant: "neighbour", Function: "hi"})
	if err != nil || string(res.Output.Body) != "hi" {
		t.Errorf("the neighbour got %q, %v", res.Output.Body, err)
	}
	s.served.Add(1)
	for took := int64(time.Since(began)); ; {
		old := s.slowest.Load()
		if took <= old || s.slowest.CompareAndSwap(old, took) {
			return
		}
	}
}

// answer is what the attacker's calls to the host get.
func answer(_ context.Context, name string, _ []byte) ([]byte, error) {
	switch name {
	case abi.CallHTTP, abi.CallHTTPOpen:
		return nil, agent.Errorf(agent.Denied, "the agent may not reach this host")
	case abi.CallAgent:
		return json.Marshal(abi.AgentResult{Type: agent.TypeJSON, Output: []byte("1")})
	case abi.CallLog, abi.CallEmit:
		return nil, nil
	}
	return nil, agent.Errorf(agent.NotFound, "no such call")
}

func (s *suite) call(t *testing.T, a attack) ([]byte, agent.Usage, error) {
	t.Helper()
	d := s.put(a.src)
	defer s.drop(d)
	fn := a.fn
	if fn == "" {
		fn = "f"
	}
	c := host.Call{Plugin: d, Tenant: "attacker", Function: fn, Limits: a.bounds(), Calls: answer}
	if a.input != "" {
		c.Input = agent.JSON([]byte(a.input))
	}
	if a.fetch {
		res, usage, err := s.host.Fetch(t.Context(), c, host.Request{Method: "GET", URL: "http://agent.test/"})
		return res.Body, usage, err
	}
	res, err := s.host.Call(t.Context(), c)
	return res.Output.Body, res.Usage, err
}

// attack runs one attack beside the neighbour, and judges its end.
func (s *suite) attack(t *testing.T, a attack) {
	s.attacks.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if a.run != nil {
			a.run(t, s)
			return
		}
		out, usage, err := s.call(t, a)
		s.judge(t, a, out, usage, err)
	}()
	for {
		s.serve(t)
		select {
		case <-done:
			s.serve(t)
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// slack is how far an attack may overrun its CPU limit: long steps are charged by their length, and two processors are shared.
const slack = time.Second

func (s *suite) judge(t *testing.T, a attack, out []byte, usage agent.Usage, err error) {
	limits := a.bounds()
	if usage.CPU > limits.CPU+slack {
		t.Errorf("it used %s of CPU time, the limit is %s", usage.CPU, limits.CPU)
	}
	if usage.Memory > limits.Memory {
		t.Errorf("it used %d bytes of memory, the limit is %d", usage.Memory, limits.Memory)
	}
	for _, e := range a.want {
		if e.came(out, err) {
			return
		}
	}
	if err == nil {
		t.Errorf("it gave %.300q; want %v", out, a.want)
		return
	}
	e := agent.AsError(err)
	t.Errorf("it ended as %s %s: %.300s; want %v", e.Kind, e.Limit, err, a.want)
}

// together is how many attacks run at once.
const together = 3

func TestHostile(t *testing.T) {
	s := open(t)
	before := s.settle(t)
	for _, g := range []struct {
		name string
		rows []attack
	}{
		{"memory", memoryAttacks()}, {"tables", tableAttacks()}, {"stacks", stackAttacks()}, {"loops", loopAttacks()},
		{"engine loops", engineLoops()}, {"floods", floodAttacks()}, {"bombs", compileBombs()}, {"wasi", wasiAttacks()},
		{"extism", extismAttacks()}, {"prototypes", prototypeAttacks()}, {"results", resultAttacks()},
		{"leftovers", leftoverAttacks()}, {"randomness", randomAttacks()}, {"bundler", bundlerAttacks()},
	} {
		t.Run(g.name, func(t *testing.T) { s.group(t, g.rows) })
		if cells, waiting := s.host.Live(); cells != 0 || waiting != 0 {
			t.Errorf("after %s %d cells live and %d calls wait", g.name, cells, waiting)
		}
	}
	after := s.settle(t)
	for range 100 { // goroutines of calls that were cut off may be on their way out
		if after.goroutines <= before.goroutines+4 {
			break
		}
		<-time.After(50 * time.Millisecond)
		after.goroutines = runtime.NumGoroutine()
	}
	t.Logf("%d attacks; the neighbour was served %d times, in at most %s", s.attacks.Load(), s.served.Load(), time.Duration(s.slowest.Load()))
	t.Logf("before: %s; after: %s", before, after)
	if after.resident > before.resident+64<<20 {
		t.Errorf("resident memory: %s, was %s", after, before)
	}
	if after.files > before.files+4 {
		t.Errorf("open files: %s, were %s", after, before)
	}
	if after.goroutines > before.goroutines+4 {
		stacks := make([]byte, 1<<20)
		t.Errorf("goroutines: %s, were %s\n%.20000s", after, before, stacks[:runtime.Stack(stacks, true)])
	}
}

func (s *suite) group(t *testing.T, rows []attack) {
	names := map[string]bool{}
	places := make(chan struct{}, together)
	t.Run("all", func(t *testing.T) {
		for _, a := range rows {
			if names[a.name] {
				t.Errorf("two attacks are called %q", a.name)
			}
			names[a.name] = true
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				places <- struct{}{}
				defer func() { <-places }()
				s.attack(t, a)
			})
		}
	})
}

// floor is what the process holds.
type floor struct{ resident, files, goroutines int }

func (f floor) String() string {
	return fmt.Sprintf("%d MiB, %d files, %d goroutines", f.resident>>20, f.files, f.goroutines)
}

// settle pushes old images out by new ones, and measures what is left.
func (s *suite) settle(t *testing.T) floor {
	t.Helper()
	for n := range 8 {
		src := script(fmt.Sprintf(`const a = new Uint8Array(16 << 20).fill(%d); export function f() { return a[0] }`, n+1))
		if out, _, err := s.call(t, attack{src: src}); err != nil || string(out) != fmt.Sprint(n+1) {
			t.Fatalf("%s %v", out, err)
		}
	}
	s.serve(t)
	debug.FreeOSMemory()
	return floor{resident: resident(t), files: files(t), goroutines: runtime.NumGoroutine()}
}

func resident(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var all, pages int
	if _, err := fmt.Sscan(string(b), &all, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func files(t *testing.T) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(d)
}

// script is a source of one file.
func script(text string) agent.Source {
	return agent.Source{Kind: agent.Script, Main: "agent.ts", Files: map[string][]byte{"agent.ts": []byte(text)}}
}

// js is a script whose function f has a body.
func js(body string) agent.Source {
	return script("import * as skep from \"skep\";\nexport async function f(input: any, ctx: any) { " + body + " }")
}
