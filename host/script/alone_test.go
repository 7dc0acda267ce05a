package script

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// TestEvalIsAlone has code that runs once try to reach what its host has not given it.
func TestEvalIsAlone(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	call := Call{
		Now: func() time.Time { return time.UnixMilli(1_700_000_000_000) }, Random: rand.NewChaCha8([32]byte{7}),
		Calls: func(_ context.Context, name string, in []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, name)
			return nil, agent.Errorf(agent.Denied, "%s was not granted", name)
		},
	}
	for _, c := range []struct {
		what, text, want string
		asks             []string
	}{
		{"a request", `export default () => fetch("https://example.com/").catch((e) => [e.name, e.cause.kind])`, `["TypeError","denied"]`, []string{abi.CallHTTPOpen}},
		{"a request to its own machine", `export default () => fetch("http://127.0.0.1:80/").catch((e) => e.cause.kind)`, "denied", []string{abi.CallHTTPOpen}},
		{"a file's URL", `export default () => fetch("file:///etc/passwd").catch((e) => e.name)`, "TypeError", []string{abi.CallHTTPOpen}},
		{"other ways out", `export default () => ["XMLHttpRequest", "WebSocket", "EventSource", "WebTransport", "Worker", "importScripts", "navigator.sendBeacon"].map((n) => typeof n.split(".").reduce((o, k) => o?.[k], globalThis))`,
			`["undefined","undefined","undefined","undefined","undefined","undefined","undefined"]`, nil},
		{"other runtimes", `export default () => ["process", "require", "module", "Deno", "Bun", "std", "os", "bjson", "scriptArgs", "print", "load", "__loadScript", "__skep"].filter((n) => n in globalThis)`, `[]`, nil},
		{"modules by name", `export default async (x) => { const all = []; for (const n of ["os", "std", "qjs:os", "node:fs", "fs", "file:///etc/passwd", "https://x.test/a.js", "/etc/passwd", "./x.js"]) all.push(await import(n).then(() => "there", () => "no")); return all }`,
			`["no","no","no","no","no","no","no","no","no"]`, nil},
		{"a function of text", `export default () => new Function("return typeof process + typeof require + typeof fetch")()`, "undefinedundefinedfunction", nil},
		{"the engine behind the prelude", `export default () => { const p = (async () => {}).constructor("return import('os')"); return p().then(() => "there", (e) => "no") }`, "no", nil},
		{"the clock", `export default async () => { const a = Date.now(); const b = new Date().getTime(); for (let i = 0; i < 1e5; i++); return [a === 1.7e12, b === a, Date.now() === a, performance.now(), new Date().getTimezoneOffset()] }`,
			`[true,true,true,0,0]`, nil},
		{"where it is", `export default () => [Intl.DateTimeFormat().resolvedOptions().timeZone, navigator.language, navigator.hardwareConcurrency, navigator.userAgent]`, `["UTC","en-US",1,"Skep"]`, nil},
		{"state, agents, events", `import { kv, callAgent, emit } from "skep"; export default async () => {
			const all = [];
			for (const f of [() => kv.get("a"), () => callAgent("b", "f"), async () => emit("x"), () => tools.a.b(), () => files.read("x"), () => skills.list()]) all.push(await f().then(() => "there", (e) => e.kind));
			return all }`, `["denied","denied","denied","denied","denied","denied"]`, []string{abi.CallStateGet, abi.CallAgent, abi.CallEmit, abi.CallTool, abi.CallFileRead, abi.CallSkillList}},
	} {
		asked = nil
		out, _, err := engine.Eval(t.Context(), source(c.text), call)
		if err != nil || string(out.Body) != c.want {
			t.Errorf("%s: got %s, %v", c.what, out.Body, err)
		}
		if d := cmp.Diff(c.asks, asked); d != "" {
			t.Errorf("%s: %s", c.what, d)
		}
	}
	for _, text := range []string{`import fs from "node:fs"; export default fs`, `import "os"; export default 1`, `import x from "https://x.test/a.js"; export default x`, `import x from "/etc/passwd"; export default x`, `import x from "../../etc/passwd"; export default x`} {
		if _, _, err := engine.Eval(t.Context(), source(text), call); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", text, err)
		}
	}
	// The same seed and clock give the same numbers, another seed others.
	draw := func(seed byte) string {
		call.Random = rand.NewChaCha8([32]byte{seed})
		out, _, err := engine.Eval(t.Context(), source(`export default () => [Math.random(), crypto.randomUUID(), Date.now()]`), call)
		if err != nil {
			t.Fatal(err)
		}
		return string(out.Body)
	}
	one, again, other := draw(1), draw(1), draw(2)
	if one != again || one == other || !json.Valid([]byte(one)) || strings.Count(one, "-") != 4 {
		t.Error("its randomness is not the call's:", one, again, other)
	}
}
