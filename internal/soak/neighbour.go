package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/wasmtest"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// neighbour is an app that does its work. One goroutine runs it.
type neighbour struct {
	*skep
	rec     *record
	app     agent.App
	rnd     *rand.Rand
	version int
}

const friendly = `
import { callAgent, emit } from "skep";
export function greet(input) { return { hi: input.name, version: VERSION } }
export function compute(n) { let x = 1; for (let i = 0; i < n; i++) x = (x * 48271) % 2147483647; return x }
export async function ask(input) { return await callAgent("friend", "greet", input) }
export async function run(n) { for (let i = 0; i < n; i++) { await emit("step", i); console.log("step", i) } return n }
`

// counting is a module whose f counts to 200,000.
func counting() []byte {
	code := wasmtest.Code
	return wasmtest.Module{
		Types: []wasmtest.Type{{Results: []byte{wasmtest.I32}}},
		Funcs: []wasmtest.Func{{
			Export: "f", Locals: []byte{wasmtest.I32},
			Body: code(0x03, 0x40, 0x20, 0, wasmtest.I32Const(1), 0x6a, 0x22, 0, wasmtest.I32Const(200_000), 0x49, 0x0d, 0, 0x0b, wasmtest.I32Const(0)),
		}},
		Memory: wasmtest.Size(1, -1),
	}.Bytes()
}

func (a *neighbour) prepare(ctx context.Context) error {
	if _, _, err := a.rt.CreateApp(ctx, agent.AppInfo{Name: a.app}, store.Once{}); err != nil {
		return err
	}
	if err := a.push(ctx); err != nil {
		return err
	}
	if _, _, err := a.rt.PutPlugin(ctx, a.app, runtime.Upload{Name: "counter", Filename: "counter.wasm", Body: counting()}, store.Once{}, nil); err != nil {
		return err
	}
	for name, plugin := range map[string]string{"friend": "friendly", "caller": "friendly", "counter": "counter"} {
		_, _, err := a.rt.CreateAgent(ctx, agent.Agent{
			App: a.app, Name: name, Plugin: plugin, Grants: agent.Grants{Agents: []agent.NamedGrant{{Name: "friend"}}},
		}, store.Once{})
		if err != nil {
			return err
		}
	}
	for _, op := range ops {
		if err := op.do(a, ctx); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
	}
	return nil
}

// push stores a new version of the code, which the agents run from then on.
func (a *neighbour) push(ctx context.Context) error {
	a.version++
	text := fmt.Sprintf("const VERSION = %d; // %s\n%s", a.version, a.app, friendly)
	_, _, err := a.rt.PutPlugin(ctx, a.app, runtime.Upload{Name: "friendly", Filename: "friendly.js", Body: []byte(text)}, store.Once{}, nil)
	return err
}

// op is a kind of work, done a number of times of a hundred.
type op struct {
	name  string
	share int
	do    func(*neighbour, context.Context) error
}

var ops = []op{
	{"greet", 55, func(a *neighbour, ctx context.Context) error { return a.call(ctx, "friend", "greet", `{"name":"bee"}`) }},
	{"compute", 10, func(a *neighbour, ctx context.Context) error { return a.call(ctx, "friend", "compute", `20000`) }},
	{"module", 15, func(a *neighbour, ctx context.Context) error { return a.call(ctx, "counter", "f", "") }},
	{"ask", 10, func(a *neighbour, ctx context.Context) error { return a.call(ctx, "caller", "ask", `{"name":"wasp"}`) }},
	{"run", 8, (*neighbour).runOnce},
	{"push", 2, (*neighbour).push},
}

func (a *neighbour) call(ctx context.Context, name, function, input string) error {
	in := agent.Payload{}
	if input != "" {
		in = agent.JSON([]byte(input))
	}
	res, err := a.rt.Call(ctx, a.app, runtime.CallRequest{Agent: name, Function: function, Input: in})
	if err == nil && function == "greet" {
		var out struct{ Version int }
		if json.Unmarshal(res.Output.Body, &out) != nil || out.Version != a.version {
			return fmt.Errorf("greet answered %s, want version %d", res.Output.Body, a.version)
		}
	}
	return err
}

// runOnce does a run of ten events, and reads them.
func (a *neighbour) runOnce(ctx context.Context) error {
	const steps = 10
	r, _, err := a.rt.StartRun(ctx, a.app, runtime.RunRequest{Agent: "friend", Function: "run", Input: agent.JSON([]byte("10"))}, store.Once{})
	if err != nil {
		return err
	}
	if r, err = a.rt.Wait(ctx, a.app, r.ID); err != nil {
		return err
	}
	if r.Status != agent.Completed {
		if r.Error != nil && r.Error.Kind == agent.Unavailable {
			return agent.Errorf(agent.Unavailable, "%s", r.Error.Msg)
		}
		return fmt.Errorf("the run is %s: %+v", r.Status, r.Error)
	}
	events, err := a.st.Read(ctx, store.SessionLog(a.app, r.Session), 0, 100)
	if err != nil {
		return err
	}
	if len(events) < 2*steps {
		return fmt.Errorf("the run has %d events, want at least %d", len(events), 2*steps)
	}
	for i, e := range events {
		if e.Seq != int64(i)+1 {
			return fmt.Errorf("event %d has number %d", i+1, e.Seq)
		}
	}
	return nil
}

// pause is what comes between two pieces of work, on average.
const pause = 60 * time.Millisecond

func (a *neighbour) run(ctx context.Context) {
	for ctx.Err() == nil {
		n := a.rnd.IntN(100)
		for _, op := range ops {
			if n -= op.share; n < 0 {
				came := time.Now()
				err := op.do(a, context.WithoutCancel(ctx))
				a.rec.add(a.app, op.name, came, err)
				if op.name == "push" && err != nil {
					a.version-- // it was not stored, or perhaps it was
					if err := a.push(context.WithoutCancel(ctx)); err != nil {
						a.rec.add(a.app, op.name, time.Now(), errors.Join(errors.New("pushed twice"), err))
					}
				}
				break
			}
		}
		select {
		case <-time.After(time.Duration(a.rnd.Int64N(int64(2 * pause)))):
		case <-ctx.Done():
		}
	}
}
