package script

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// childVar is set in a process of this program that only goes on with a suspended call.
const childVar = "SKEP_TEST_RESUME"

// errand is what a child is told, and what it says.
type errand struct {
	Code     string
	Resume   []byte // what the first process suspended
	Deliver  []Delivery
	Function string     // and what the child is to do from the beginning
	Journal  []Delivery // with these answers
}

type done struct {
	Output string
	Error  string
	Same   []byte // the snapshot after Journal
}

func child(ctx context.Context) int {
	var e errand
	if err := json.NewDecoder(os.Stdin).Decode(&e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var d done
	a, err := engine.Load(ctx, source(e.Code), nil)
	if err == nil {
		var res Result
		res, err = a.Run(ctx, Call{Waiting: &Waiting{Resume: e.Resume, Deliver: e.Deliver}})
		d.Output = string(res.Output.Body)
		if err == nil {
			w := newWorld()
			res, err = a.Run(ctx, w.call(e.Function, nil, e.Journal...))
			if err == nil {
				d.Same = res.Suspended.Snapshot
			}
		}
	}
	if err != nil {
		d.Error = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(d)
	return 0
}

// TestAnotherProcessGoesOn suspends here and resumes in a child process, which also comes to the same bytes by itself.
func TestAnotherProcessGoesOn(t *testing.T) {
	a := load(t, source(durable))
	w := newWorld()
	first := w.life(t, a, "all", "3", nil).Suspended
	again := w.life(t, a, "", "", first.Snapshot, says(2, `"two"`)).Suspended
	e := errand{
		Code: durable, Resume: again.Snapshot, Deliver: []Delivery{says(1, `"one"`)}, Function: "race", Journal: []Delivery{says(2, `2`)},
	}
	in, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stdin, cmd.Stderr = append(os.Environ(), childVar+"=1"), bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var d done
	if err := json.Unmarshal(out, &d); err != nil || d.Error != "" {
		t.Fatalf("%s: %v", out, err)
	}
	if want := `{"a":"one","b":"two","c":9,"top":2,"x":3}`; d.Output != want {
		t.Errorf("got %s, want %s", d.Output, want)
	}
	here, err := a.Run(t.Context(), newWorld().call("race", nil, e.Journal...))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(here.Suspended.Snapshot, d.Same) {
		t.Error("one journal brings two processes to different states")
	}
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	a, other := load(t, source(durable)), load(t, source(durable+"\nexport const x = 1"))
	w := newWorld()
	good := w.life(t, a, "all", "1", nil).Suspended.Snapshot
	if _, err := w.try(t, other, "", "", good); agent.KindOf(err) != agent.Conflict || strings.Count(err.Error(), "sha256:") != 2 {
		t.Error("of another agent:", err)
	}
	for n := 0; n < len(good)*8; n += 5 {
		bad := bytes.Clone(good)
		bad[n/8] ^= 1 << (n % 8)
		if _, err := w.try(t, a, "", "", bad); err == nil {
			t.Fatalf("bit %d flipped, and nobody saw it", n)
		}
	}
	for n := 0; n < len(good); n += 7 {
		if _, err := w.try(t, a, "", "", good[:n]); agent.KindOf(err) != agent.Invalid {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
	}
	if res := w.life(t, a, "", "", good, says(1, "1"), says(2, "2")); res.Suspended != nil {
		t.Error("the good one does not go on")
	}
}

// TestForgedState has a driver's state that its guest never had: whatever comes of it, it stays in the cell.
func TestForgedState(t *testing.T) {
	a := load(t, source(durable))
	w := newWorld()
	good := w.life(t, a, "all", "1", nil).Suspended.Snapshot
	for name, forge := range map[string]func(*saved){
		"no promise":         func(s *saved) { s.awaited = 0 },
		"a wild promise":     func(s *saved) { s.awaited = 1 << 31 },
		"an odd promise":     func(s *saved) { s.awaited = 12_345 },
		"past the end":       func(s *saved) { s.awaited = 1<<32 - 8 },
		"calls of others":    func(s *saved) { s.calls[0].id, s.calls[1].id = 3000, 1<<53 },
		"a timer of its own": func(s *saved) { s.armed, s.due = true, -1<<63 },
		"as if it loaded":    func(s *saved) { s.loading = true },
	} {
		s, err := readSaved(good)
		if err != nil {
			t.Fatal(err)
		}
		forge(s)
		if _, err := w.try(t, a, "", "", s.encode(), says(2, "2"), says(1, "1")); name == "as if it loaded" && err != nil {
			t.Errorf("%s means nothing to a function: %v", name, err)
		}
	}
}

func TestResumedUnderLowerLimits(t *testing.T) {
	a := load(t, source(`
		import { callAgent } from "skep";
		export const f = async () => { const big = new Uint8Array(20 << 20).fill(1); await callAgent("x", "f", "y".repeat(100000)); return big.length };`))
	call := Call{Function: "f", Calls: newWorld().calls, Waiting: &Waiting{Rest: func(context.Context, Pending) bool { return true }}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := a.Run(ctx, call)
	if err != nil {
		t.Fatal(err)
	}
	size := res.Usage.Memory &^ 0xffff
	call.Waiting = &Waiting{Resume: res.Suspended.Snapshot, Deliver: []Delivery{says(1, "1")}}
	for _, c := range []struct {
		memory int64
		fits   bool
	}{{size - 1, false}, {size, false}, {size + 200_000, true}} { // what the call under way holds counts too
		call.Limits.Memory = c.memory
		res, err := a.Run(ctx, call)
		if c.fits && (err != nil || string(res.Output.Body) != "20971520") {
			t.Errorf("%d bytes: %s, %v", c.memory, res.Output.Body, err)
		}
		if e := agent.AsError(err); !c.fits && (e == nil || e.Limit != agent.LimitMemory) {
			t.Errorf("%d bytes: %v", c.memory, err)
		}
	}
	if n := len(res.Suspended.Snapshot); n > 200_000 {
		t.Errorf("20 MB of one byte take %d bytes", n)
	}
}

// TestOpenExchangesAreLost suspends with one response half read, and asks another request afterwards, whose number in the new
// table is that of the old one in the old table.
func TestOpenExchangesAreLost(t *testing.T) {
	a := load(t, source(`
		import { callAgent } from "skep";
		const piece = async (reader) => new TextDecoder().decode((await reader.read()).value);
		export async function f() {
			const one = (await fetch("https://a.test/1")).body.getReader();
			const seen = [await piece(one)];
			await callAgent("x", "f", 1);
			const two = (await fetch("https://a.test/2")).body.getReader();
			seen.push(await piece(two), await piece(two));
			try { seen.push(await piece(one)) } catch (e) { seen.push(e.name + " " + e.cause.kind) }
			await one.cancel().catch(() => {});
			return seen;
		}`))
	web := func(which string, log *[]string) Calls {
		return func(ctx context.Context, name string, in []byte) ([]byte, error) {
			switch name {
			case abi.CallHTTPOpen:
				*log = append(*log, name)
				return abi.AppendHTTPHead(nil, abi.HTTPHead{ID: 1, Status: 200}, []byte("begin"+which))
			case abi.CallHTTPRead, abi.CallHTTPClose:
				id, _ := abi.SplitHTTPID(in)
				*log = append(*log, fmt.Sprint(name, id, cell.Number(ctx)))
				return abi.AppendHTTPRead(nil, false, []byte("more"+which)), nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log []string
	rest := func(_ context.Context, p Pending) bool { return p.Calls[0].Name == abi.CallAgent }
	res, err := a.Run(ctx, Call{Function: "f", Calls: web("1", &log), Waiting: &Waiting{Rest: rest}})
	if err != nil || res.Suspended == nil {
		t.Fatal(err)
	}
	res, err = a.Run(ctx, Call{Calls: web("2", &log), Waiting: &Waiting{Resume: res.Suspended.Snapshot, Deliver: []Delivery{says(2, "1")}}})
	if got, want := string(res.Output.Body), `["begin1","begin2","more2","TypeError unavailable"]`; err != nil || got != want {
		t.Errorf("got %s, want %s: %v", got, want, err)
	}
	for _, l := range log {
		if strings.Contains(l, "close") {
			t.Errorf("%s: nothing is open that could be closed", l)
		}
	}
}

// TestAbandonedCallsAreNotPending: what the code gave up is no part of its state, and its late answer is given up too.
func TestAbandonedCallsAreNotPending(t *testing.T) {
	a := load(t, source(`
		import { callAgent } from "skep";
		export async function f() {
			const c = new AbortController();
			const r = fetch("https://a.test/", { signal: c.signal }).catch((e) => e.name);
			await callAgent("x", "f", 1);
			c.abort();
			return [await r, await callAgent("x", "f", 2)];
		}`))
	w := newWorld()
	s := w.life(t, a, "f", "1", nil).Suspended
	s = w.life(t, a, "", "", s.Snapshot, says(2, "0")).Suspended
	if got := ids(s.Pending); len(got) != 1 || got[0] != 3 {
		t.Errorf("waits for %v", got)
	}
	if got := string(w.life(t, a, "", "", s.Snapshot, says(3, `"x"`)).Output.Body); got != `["AbortError","x"]` {
		t.Error(got)
	}
}

// TestTimeStandsStillWhileAModuleLoads, so that its image is the same wherever it is made.
func TestTimeStandsStillWhileAModuleLoads(t *testing.T) {
	code := source(`const at = [Date.now(), performance.now()]; export const f = () => [...at, Date.now() > 1.7e12]`)
	if got := result(t, load(t, code), Call{Function: "f"}); got != "[0,0,true]" {
		t.Error(got)
	}
}

// resign gives a snapshot the checksum that it should have.
func resign(b []byte) []byte {
	body := bytes.Clone(b[:max(0, len(b)-sha256.Size)])
	sum := sha256.Sum256(body)
	return append(body, sum[:]...)
}

func FuzzSuspended(f *testing.F) {
	for _, s := range []saved{
		{}, {loading: true, awaited: 5, issued: 9, exchanges: 2, memory: []byte("memory")},
		{armed: true, due: 1e18, issued: 3, calls: []request{{id: 0, name: "a", number: 1}, {id: 3, name: "b", body: []byte("in"), number: 3}}},
		{issued: 2, calls: []request{{name: "tool.call", body: []byte(`{"tool":"a.b"}`), number: 1, at: moduleName + ":1:2"}, {id: 4, name: "b", number: 2}}},
	} {
		f.Add(s.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := readSaved(resign(b))
		if err != nil {
			return
		}
		once := s.encode()
		again, err := readSaved(once)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.encode(), once) {
			t.Fatal("what was read is written otherwise")
		}
	})
}
