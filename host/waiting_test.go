package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/wasmtest"
)

const approval = `
	import { callAgent } from "skep";
	export async function f(n: number) {
		const [yes, other] = await Promise.all([callAgent("person", "approve", n), callAgent("person", "read", n)]);
		return yes ? n + other : -1;
	}`

func says(id uint64, v string) host.Delivery {
	out, _ := json.Marshal(abi.AgentResult{Type: agent.TypeJSON, Output: []byte(v)})
	return host.Delivery{ID: id, Out: out}
}

// TestAThousandSuspendedRunsHoldNoCell has them wait with one answer delivered and one open, in a host that has cells and
// memory for a few.
func TestAThousandSuspendedRunsHoldNoCell(t *testing.T) {
	const runs = 1000
	h, s := open(t, host.Options{Cells: 4, Memory: 64 << 20})
	d := s.put(script(approval))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	never := func(ctx context.Context, _ string, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
	rest := func(context.Context, host.Pending) bool { return true }
	sleeping := make([][]byte, runs)
	total := 0
	for n := range sleeping {
		c := host.Call{Plugin: d, Tenant: "t", Function: "f", Input: agent.JSON([]byte(fmt.Sprint(n))), Calls: never, Waiting: &host.Waiting{Rest: rest}}
		res, err := h.Call(ctx, c)
		if err != nil || res.Suspended == nil {
			t.Fatal(err)
		}
		c.Waiting = &host.Waiting{Rest: rest, Resume: res.Suspended.Snapshot, Deliver: []host.Delivery{says(2, "1000")}}
		if res, err = h.Call(ctx, c); err != nil || res.Suspended == nil {
			t.Fatal(err)
		}
		sleeping[n] = res.Suspended.Snapshot
		total += len(sleeping[n])
	}
	if cells, waiting := h.Live(); cells != 0 || waiting != 0 {
		t.Errorf("%d cells live, %d calls wait", cells, waiting)
	}
	if each := total / runs; each > 20_000 {
		t.Errorf("a sleeping run takes %d bytes", each)
	}
	for n := range sleeping {
		res, err := h.Call(ctx, host.Call{Plugin: d, Tenant: "t", Waiting: &host.Waiting{Resume: sleeping[n], Deliver: []host.Delivery{says(1, "true")}}})
		if want := fmt.Sprint(n + 1000); err != nil || string(res.Output.Body) != want {
			t.Fatalf("run %d: %s, %v", n, res.Output.Body, err)
		}
	}
}

func TestOnlyScriptsAreSuspended(t *testing.T) {
	h, s := open(t, host.Options{})
	wait := &host.Waiting{Rest: func(context.Context, host.Pending) bool { return true }}
	wasm := module(wasmtest.Module{
		Types: []wasmtest.Type{{Results: []byte{wasmtest.I32}}}, Memory: wasmtest.Size(1, -1),
		Funcs: []wasmtest.Func{{Type: 0, Body: wasmtest.I32Const(0), Export: "f"}},
	})
	refused := func(what string, err error) {
		t.Helper()
		if e := agent.AsError(err); e == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, "waits inside a synchronous call") || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := h.Call(t.Context(), host.Call{Plugin: s.put(wasm), Function: "f", Waiting: wait})
	refused("a module", err)
	_, err = h.Eval(t.Context(), agent.Source{Kind: agent.Python, Main: "m.py", Files: map[string][]byte{"m.py": nil}}, host.Call{Waiting: wait})
	refused("Python", err)
	_, _, err = h.Fetch(t.Context(), host.Call{Plugin: s.put(script(greeter)), Waiting: wait}, host.Request{URL: "http://a.test/"})
	refused("a fetch handler", err)
}
