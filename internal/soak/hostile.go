package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/wasmtest"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// hostile is the app that attacks. How its calls end is not looked at.
type hostile struct {
	*skep
	rec     *record
	mu      sync.Mutex
	attacks map[string]int // how often each was made
	pushed  int
}

const attackers = 16 // calls at once

// attackLength is how long one kind of attack goes on before the next.
const attackLength = 4 * time.Second

const hostileCode = `
import { callAgent, emit } from "skep";
export function quick() { return 1 }
export function loop() { for (;;) ; }
export function tree() { const f = (n) => n === 0 ? 0 : f(n - 1) + f(n - 1); return f(60) }
export function regex() { return /^(a+)+$/.test("a".repeat(60) + "!") }
export function grow() { const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1)) }
export function garbage() { for (;;) JSON.parse(JSON.stringify(Array.from({ length: 1000 }, (_, i) => ({ i })))) }
export function lines() { for (;;) console.log("x".repeat(1000)) }
export function manyLines() { for (;;) console.log("") }
export async function events() { for (;;) await emit("x", "y".repeat(1000)) }
export async function calls() { for (;;) await Promise.all(Array.from({ length: 100 }, () => callAgent("hostile", "quick").catch(() => 0))) }
export async function refused() { for (;;) try { await callAgent("nobody", "f") } catch {} }
`

// attackKind is a way to attack, of which one call makes one try.
type attackKind struct {
	name string
	do   func(*hostile, context.Context)
}

// kinds are what it does in turn.
var kinds = []attackKind{
	{"loop", callOf("loop")}, {"tree", callOf("tree")}, {"regular expression", callOf("regex")}, {"memory", callOf("grow")},
	{"garbage", callOf("garbage")}, {"log lines", callOf("lines")}, {"empty log lines", callOf("manyLines")}, {"events", callOf("events")},
	{"host calls", callOf("calls")}, {"refused host calls", callOf("refused")}, {"short calls", callOf("quick")},
	{"runs with events", runOf("events")}, {"runs with lines", runOf("manyLines")},
	{"text that loops", (*hostile).eval}, {"compile bombs", (*hostile).bomb}, {"broken modules", (*hostile).broken},
}

func callOf(function string) func(*hostile, context.Context) {
	return func(h *hostile, ctx context.Context) {
		_, _ = h.rt.Call(ctx, hostileApp, runtime.CallRequest{Agent: "hostile", Function: function})
	}
}

// runOf makes a durable run, and cancels it when the attack is over.
func runOf(function string) func(*hostile, context.Context) {
	return func(h *hostile, ctx context.Context) {
		r, _, err := h.rt.StartRun(ctx, hostileApp, runtime.RunRequest{Agent: "hostile", Function: function}, store.Once{})
		if err != nil {
			return
		}
		if _, err = h.rt.Wait(ctx, hostileApp, r.ID); err != nil {
			_, _ = h.rt.Cancel(context.WithoutCancel(ctx), hostileApp, r.ID)
		}
	}
}

func (h *hostile) prepare(ctx context.Context) error {
	if _, _, err := h.rt.CreateApp(ctx, agent.AppInfo{Name: hostileApp}, store.Once{}); err != nil {
		return err
	}
	if _, _, err := h.rt.PutPlugin(ctx, hostileApp, runtime.Upload{Name: "hostile", Filename: "hostile.js", Body: []byte(hostileCode)}, store.Once{}, nil); err != nil {
		return err
	}
	_, _, err := h.rt.CreateAgent(ctx, agent.Agent{
		App: hostileApp, Name: "hostile", Plugin: "hostile", Grants: agent.Grants{Agents: []agent.NamedGrant{{Name: "hostile"}}},
		Limits: agent.Limits{Wall: 10 * time.Second, CPU: 5 * time.Second},
	}, store.Once{})
	return err
}

// run attacks until ctx ends, one kind after the other, each from many callers at once.
func (h *hostile) run(ctx context.Context, only string) {
	for n := 0; ctx.Err() == nil; n++ {
		kind := kinds[n%len(kinds)]
		if only != "" && kind.name != only {
			continue
		}
		h.rec.attacked(kind.name)
		turn, stop := context.WithTimeout(ctx, attackLength)
		var all sync.WaitGroup
		for range attackers {
			all.Go(func() {
				for turn.Err() == nil {
					kind.do(h, turn)
					h.mu.Lock()
					h.attacks[kind.name]++
					h.mu.Unlock()
				}
			})
		}
		all.Wait()
		stop()
	}
}

func (h *hostile) next() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushed++
	return h.pushed
}

func (h *hostile) eval(ctx context.Context) {
	text := fmt.Sprintf("// %d\nexport default () => { const a = %s; for (;;) a.reverse() }", h.next(), "["+strings.Repeat("1,", 20_000)+"]")
	_, _ = h.rt.Code(ctx, hostileApp, runtime.CodeRequest{Source: agent.Source{
		Kind: agent.Script, Main: "a.js", Files: map[string][]byte{"a.js": []byte(text)},
	}})
}

// bomb has a module prepared that costs the compiler what is allowed, a different one each time.
func (h *hostile) bomb(ctx context.Context) {
	n := h.next()
	body := wasmtest.Code(0x20, 0, slices.Repeat([]byte{0x20, 0, 0x6a}, 60_000), wasmtest.I32Const(int32(n)), 0x6a)
	m := wasmtest.Module{
		Types: []wasmtest.Type{{Results: []byte{wasmtest.I32}}},
		Funcs: []wasmtest.Func{{Export: "f", Locals: []byte{wasmtest.I32}, Body: body}}, Memory: wasmtest.Size(1, -1),
	}
	_, _ = h.rt.Check(ctx, hostileApp, runtime.Upload{Filename: "bomb.wasm", Body: m.Bytes()})
}

func (h *hostile) broken(ctx context.Context) {
	b := bytes.Clone(counting())
	b[8+h.next()%(len(b)-8)] ^= 0x55
	_, _ = h.rt.Check(ctx, hostileApp, runtime.Upload{Filename: "broken.wasm", Body: b})
}
