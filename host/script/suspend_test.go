package script

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// world is what a suspended call lives in: a host that answers nothing by itself, and a clock that moves when something is
// delivered.
type world struct {
	mu    sync.Mutex
	asked map[uint64]string
	now   time.Time
	seed  uint64
	log   []string
}

func newWorld() *world {
	return &world{asked: map[uint64]string{}, now: time.UnixMilli(1_700_000_000_000)}
}

// calls never answers what has a number, but for events and who the code is: no instance.
func (w *world) calls(ctx context.Context, name string, in []byte) ([]byte, error) {
	w.mu.Lock()
	w.asked[cell.Number(ctx)] = name
	w.mu.Unlock()
	switch name {
	case abi.CallEmit:
		return nil, nil
	case abi.CallSelf:
		return []byte(`{"agent":"a"}`), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// life is a life of a call that ends when the code rests and everything given has been delivered.
func (w *world) life(t *testing.T, a *Agent, function, input string, resume []byte, deliver ...Delivery) Result {
	t.Helper()
	res, err := w.try(t, a, function, input, resume, deliver...)
	if err != nil {
		t.Fatalf("%v\n%s", err, agent.AsError(err).Stack)
	}
	return res
}

func (w *world) try(t *testing.T, a *Agent, function, input string, resume []byte, deliver ...Delivery) (Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := w.call(function, resume, deliver...)
	c.Input = js(input)
	return a.Run(ctx, c)
}

// call is one that is suspended as soon as it rests.
func (w *world) call(function string, resume []byte, deliver ...Delivery) Call {
	return Call{
		Function: function, Calls: w.calls, Now: func() time.Time { return w.now }, Random: rand.NewChaCha8([32]byte{byte(w.seed)}),
		Log: func(_ agent.LogLevel, l string) { w.log = append(w.log, l) },
		Waiting: &Waiting{
			Rest: func(context.Context, Pending) bool { return true }, Resume: resume, Deliver: deliver,
			Delivered: func(Delivery) { w.now = w.now.Add(time.Second) },
		},
	}
}

// says is the answer to a call of an agent.
func says(id uint64, v string) Delivery {
	out, _ := json.Marshal(abi.AgentResult{Type: agent.TypeJSON, Output: []byte(v)})
	return Delivery{ID: id, Name: abi.CallAgent, Out: out}
}

func ids(p Pending) (list []uint64) {
	for _, c := range p.Calls {
		list = append(list, c.ID)
	}
	return list
}

const durable = `
	import { Agent, callAgent, emit, sleep, kv } from "skep";
	let top = 0;
	class Counter { #n = 5; add(x) { this.#n += x; return this.#n } }
	const counter = new Counter();
	const ask = (x) => callAgent("other", "f", x);
	export async function all(x) {
		top++;
		const c = counter.add(x);
		const [a, b] = await Promise.all([ask("a"), ask("b")]);
		top++;
		return { a, b, c: counter.add(1), top, x };
	}
	export const race = async () => {
		const first = await Promise.race([ask(1), ask(2), sleep(60000).then(() => "late")]);
		return { first, second: await ask(3) };
	};
	export async function timers() {
		const seen = [];
		const tick = setInterval(() => { if (seen.push("tick") === 3) clearInterval(tick) }, 1000);
		setTimeout((x) => seen.push(x), 1500, "once");
		await sleep(10000);
		return seen;
	}
	export async function nested() {
		const inner = async (n) => n === 0 ? await ask("deep") : "<" + await inner(n - 1) + ">";
		try { return await inner(20) } finally { emit("done", await ask("end")) }
	}
	export async function failing() { try { await ask(1) } catch (e) { return [e.name, e.kind, e.message] } }
	export async function aborted() {
		const c = new AbortController();
		c.signal.addEventListener("abort", () => console.log("aborted", c.signal.reason.message));
		await ask(1);
		c.abort(new Error("enough"));
		return c.signal.aborted;
	}
	export async function streamed() {
		let source;
		const s = new ReadableStream({ start(c) { source = c } });
		const text = new Response(s.pipeThrough(new TextEncoderStream())).text();
		source.enqueue("before ");
		await ask(1);
		source.enqueue("after");
		source.close();
		return await text;
	}
	export async function strange() {
		const before = [Math.random(), Date.now(), performance.now()];
		await ask(1);
		return [...before, Math.random(), Date.now(), performance.now(), crypto.randomUUID()];
	}
	export default class extends Agent {
		#secret = "kept"; steps = [];
		async method(x) {
			for await (const s of (async function* () { yield 1; yield await ask("gen"); yield 3 })()) this.steps.push(s);
			return { steps: this.steps, secret: this.#secret, tone: this.config.tone };
		}
	}`

func TestSuspendedInTheMiddle(t *testing.T) {
	a := load(t, source(durable))
	for _, c := range []struct {
		name, fn, in string
		lives        []Delivery // one each
		want         string
	}{
		{"all", "all", "2", []Delivery{says(2, `"B"`), says(1, `"A"`)}, `{"a":"A","b":"B","c":8,"top":2,"x":2}`},
		{"race by a call", "race", "1", []Delivery{says(2, `"two"`), says(3, `"x"`), says(1, `0`)}, ``},
		{"race by the timer", "race", "1", []Delivery{{}, says(4, `"3"`)}, `{"first":"late","second":"3"}`},
		{"timers", "timers", "1", []Delivery{{}, {}, {}, {}}, `["tick","once","tick"]`},
		{"nested", "nested", "1", []Delivery{says(1, `"x"`), says(2, `1`)}, strings.Repeat("<", 20) + "x" + strings.Repeat(">", 20)},
		{"failing", "failing", "1", []Delivery{{ID: 1, Err: agent.Errorf(agent.Denied, "no")}}, `["SkepError","denied","no"]`},
		{"aborted", "aborted", "1", []Delivery{says(1, `0`)}, `true`},
		{"streamed", "streamed", "1", []Delivery{says(1, `0`)}, `before after`},
		{"method", "method", "1", []Delivery{says(1, `2`)}, `{"steps":[1,2,3],"secret":"kept"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			res := w.life(t, a, c.fn, c.in, nil)
			for n, d := range c.lives {
				if res.Suspended == nil {
					t.Fatalf("ended in life %d with %s", n, res.Output.Body)
				}
				if c.want == "" && n == 1 {
					d = says(4, `"three"`)
				}
				res = w.life(t, a, "", "", res.Suspended.Snapshot, d)
				if c.want == "" && res.Suspended == nil {
					break
				}
			}
			if res.Suspended != nil {
				t.Fatalf("still waits for %+v", res.Suspended.Pending)
			}
			want := c.want
			if want == "" {
				want = `{"first":"two","second":"three"}`
			}
			if got := string(res.Output.Body); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestPendingSaysWhatIsWaitedFor(t *testing.T) {
	a := load(t, source(durable))
	w := newWorld()
	s := w.life(t, a, "race", "1", nil).Suspended
	if d := cmp.Diff([]uint64{1, 2}, ids(s.Pending)); d != "" {
		t.Error(d)
	}
	if want := w.now.Add(time.Minute); !s.Pending.Alarm.Equal(want) {
		t.Errorf("alarm at %v, want %v", s.Pending.Alarm, want)
	}
	var in abi.AgentCall
	if err := json.Unmarshal(s.Pending.Calls[1].Input, &in); err != nil || in.Agent != "other" || string(in.Input) != "2" {
		t.Errorf("%s: %v", s.Pending.Calls[1].Input, err)
	}
	s = w.life(t, a, "", "", s.Snapshot, says(2, "2")).Suspended
	if d := cmp.Diff([]uint64{1, 4}, ids(s.Pending)); d != "" {
		t.Error("the one that lost is still under way, and the next has a number of its own:", d)
	}
}

// TestSameDeliveriesSameBytes plays one journal in cells of their own, in one go and with a suspension after each delivery.
func TestSameDeliveriesSameBytes(t *testing.T) {
	a := load(t, source(durable))
	journals := map[string][]Delivery{
		"all":     {says(2, `"B"`)},
		"race":    {says(2, `"two"`)},
		"timers":  {{}, {}, {}},
		"nested":  {says(1, `"x"`)},
		"strange": {},
	}
	for fn, journal := range journals {
		t.Run(fn, func(t *testing.T) {
			var want []byte
			for n := range 3 {
				w := newWorld()
				var got []byte
				if n < 2 {
					got = w.life(t, a, fn, "1", nil, journal...).Suspended.Snapshot
				} else {
					got = w.life(t, a, fn, "1", nil).Suspended.Snapshot
					for _, d := range journal {
						got = w.life(t, a, "", "", got, d).Suspended.Snapshot
					}
				}
				if n == 0 {
					want = got
				} else if !bytes.Equal(got, want) {
					t.Fatalf("the journal brings cell %d to another state", n)
				}
			}
		})
	}
}

func TestRandomnessAndTimeGoOn(t *testing.T) {
	a := load(t, source(durable))
	play := func(seed uint64) string {
		w := newWorld()
		w.seed = seed
		s := w.life(t, a, "strange", "1", nil).Suspended
		return string(w.life(t, a, "", "", s.Snapshot, says(1, "0")).Output.Body)
	}
	one, two, other := play(1), play(1), play(2)
	if one != two || one == other {
		t.Errorf("equal seeds gave\n%s\n%s\nand another\n%s", one, two, other)
	}
	var v []any
	if err := json.Unmarshal([]byte(one), &v); err != nil {
		t.Fatal(err)
	}
	if v[0] == v[3] || v[1] != 1.7e12 || v[4] != 1.7e12+1000 || v[5].(float64)-v[2].(float64) != 1000 {
		t.Errorf("got %s", one)
	}
}

// TestCallsOutliveTheCell has a call to the host under way when the cell goes, and its answer delivered later.
func TestCallsOutliveTheCell(t *testing.T) {
	a := load(t, source(durable))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, finish, finished := make(chan struct{}, 2), make(chan struct{}), make(chan string, 2)
	res, err := a.Run(ctx, Call{
		Function: "all", Input: js("1"), Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			begun <- struct{}{}
			select {
			case <-finish:
			case <-ctx.Done():
			}
			finished <- fmt.Sprint(cell.Number(ctx), ctx.Err())
			return nil, ctx.Err()
		},
		Waiting: &Waiting{Rest: func(context.Context, Pending) bool { <-begun; <-begun; return true }},
	})
	if err != nil || res.Suspended == nil {
		t.Fatal(err)
	}
	close(finish)
	got := map[string]bool{<-finished: true, <-finished: true}
	if !got["1 <nil>"] || !got["2 <nil>"] {
		t.Errorf("got %v", got)
	}
}

// TestNotGivenIsAskedAgain: what nobody answers at the resumption is asked of Calls again, under its number.
func TestNotGivenIsAskedAgain(t *testing.T) {
	a := load(t, source(durable))
	s := newWorld().life(t, a, "all", "1", nil).Suspended
	res, err := a.Run(t.Context(), Call{
		Calls: func(ctx context.Context, name string, _ []byte) ([]byte, error) {
			if n := cell.Number(ctx); n != 1 || name != abi.CallAgent {
				t.Errorf("asked %s, number %d", name, n)
			}
			return says(1, `"again"`).Out, nil
		},
		Waiting: &Waiting{Resume: s.Snapshot, Deliver: []Delivery{says(2, `"given"`)}},
	})
	if err != nil || string(res.Output.Body) != `{"a":"again","b":"given","c":7,"top":2,"x":1}` {
		t.Errorf("%s, %v", res.Output.Body, err)
	}
}

func TestNudge(t *testing.T) {
	a := load(t, source(durable))
	nudge := make(chan struct{}, 1)
	asked := 0
	res, err := a.Run(t.Context(), Call{Function: "all", Calls: newWorld().calls, Waiting: &Waiting{
		Nudge: nudge,
		Rest: func(context.Context, Pending) bool {
			asked++
			nudge <- struct{}{}
			return asked == 3
		},
	}})
	if err != nil || res.Suspended == nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

// TestNudgedByClosing: a server that stops tells all of its calls at once.
func TestNudgedByClosing(t *testing.T) {
	a := load(t, source(durable))
	stop := make(chan struct{})
	asked := 0
	res, err := a.Run(t.Context(), Call{Function: "all", Calls: newWorld().calls, Waiting: &Waiting{
		Nudge: stop,
		Rest: func(context.Context, Pending) bool {
			if asked++; asked == 1 {
				close(stop)
			}
			return asked == 2
		},
	}})
	if err != nil || res.Suspended == nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

func TestDivergence(t *testing.T) {
	a := load(t, source(durable))
	sum := (&PendingCall{Name: abi.CallAgent, Input: []byte("other")}).Sum()
	for want, deliver := range map[string][]Delivery{
		"does not wait for":     {says(9, "1")},
		`was "state.get" there`: {{ID: 1, Name: "state.get"}},
		"had another input":     {{ID: 1, Name: abi.CallAgent, Sum: sum}},
		"a timer was due there": {{}},
		"1 more answers":        {says(1, "1"), says(2, "2"), says(1, "1")},
		"call 1, \"agent\", is": {says(1, "1"), says(1, "1")},
	} {
		_, err := newWorld().try(t, a, "all", "1", nil, deliver...)
		if e := agent.AsError(err); e == nil || e.Kind != agent.Conflict || !strings.Contains(e.Msg, want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	good := newWorld().life(t, a, "all", "1", nil).Suspended.Pending.Calls[0]
	d := says(1, "1")
	d.Sum = good.Sum()
	if res := newWorld().life(t, a, "all", "1", nil, d); res.Suspended == nil {
		t.Error("the same input is no divergence")
	}
}

func TestEvalSuspended(t *testing.T) {
	b, err := engine.Bundle(t.Context(), source(`
		import { callAgent } from "skep";
		const first = await callAgent("x", "f", 1);
		export default async (x) => [first, await callAgent("x", "f", 2), x];`))
	if err != nil {
		t.Fatal(err)
	}
	var resume []byte
	var out []string
	for n := range 3 {
		c := Call{Input: js("7"), Calls: newWorld().calls, Waiting: &Waiting{Rest: func(context.Context, Pending) bool { return true }, Resume: resume}}
		if n > 0 {
			c.Waiting.Deliver = []Delivery{says(uint64(n), fmt.Sprint(10*n))}
		}
		ctx, cancel := context.WithCancel(t.Context())
		res, err := engine.RunBundle(ctx, b, c)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if res.Suspended == nil {
			out = append(out, string(res.Output.Body))
			break
		}
		resume = res.Suspended.Snapshot
	}
	if d := cmp.Diff([]string{"[10,20,7]"}, out); d != "" {
		t.Error(d)
	}
}

const talker = `
	import { callAgent } from "skep";
	export async function small(x) { const [a, b] = await Promise.all([callAgent("o", "f", 1), callAgent("o", "f", 2)]); return [x, a, b] }
	export async function chat(x) {
		const messages = [];
		for (let i = 0; i < 100; i++) messages.push({ role: i % 2 ? "user" : "assistant", id: crypto.randomUUID(), text: "Message " + i + " says something new: " + i * i });
		const [a, b] = await Promise.all([callAgent("o", "f", 1), callAgent("o", "f", 2)]);
		return [x, a, b];
	}`

func suspending(fn string) Call {
	return Call{
		Function: fn, Input: js("1"), Calls: func(context.Context, string, []byte) ([]byte, error) { return nil, nil },
		Waiting: &Waiting{Rest: func(context.Context, Pending) bool { return true }},
	}
}

// BenchmarkSuspend is a call to its first rest, and the snapshot of it.
func BenchmarkSuspend(b *testing.B) {
	a := load(b, source(talker))
	for _, fn := range a.Exports() {
		b.Run(fn, func(b *testing.B) {
			size := 0
			b.ReportAllocs()
			for b.Loop() {
				res, err := a.Run(b.Context(), suspending(fn))
				if err != nil {
					b.Fatal(err)
				}
				size = len(res.Suspended.Snapshot)
			}
			b.ReportMetric(float64(size), "B/snapshot")
		})
	}
}

// BenchmarkWake is a suspended call to its result.
func BenchmarkWake(b *testing.B) {
	a := load(b, source(talker))
	for _, fn := range a.Exports() {
		b.Run(fn, func(b *testing.B) {
			res, err := a.Run(b.Context(), suspending(fn))
			if err != nil {
				b.Fatal(err)
			}
			call := Call{Waiting: &Waiting{Resume: res.Suspended.Snapshot, Deliver: []Delivery{says(2, "2"), says(1, "1")}}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Run(b.Context(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
