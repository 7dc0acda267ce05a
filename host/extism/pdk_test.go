package extism_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdk "github.com/extism/go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
)

// TestGoPDK holds a module made with the public PDK and the standard Go compiler against Extism's own SDK, then looks at
// what only this host promises.
func TestGoPDK(t *testing.T) {
	wasm := build(t, "pdk")
	ours := load(t, wasm)
	config := map[string]string{"word": "Grüezi"}
	theirs := oracle(t, wasm, sdk.Manifest{Config: config})

	for _, tc := range []struct{ function, in string }{
		{"greet", `{"name":"Ada","titles":["Dr.","h.c."]}`}, {"greet", `{"name":`}, {"count", ""}, {"logs", "last"}, {"echo", ""},
		{"echo", "seven b"}, {"echo", strings.Repeat("x", 100_003)}, {"fail", "today"}, {"complain", ""}, {"leave", ""},
	} {
		var wantLogs, logs []string
		code, want, wantErr := ask(t, theirs, tc.function, tc.in, &wantLogs)
		got, _, err := ours.Call(t.Context(), extism.Call{
			Function: tc.function, Input: input(tc.in), Config: config,
			Env: cell.Env{Log: func(l agent.LogLevel, s string) { logs = append(logs, l.String()+": "+s) }},
		})
		if fails := wantErr != nil || code != 0; fails != (err != nil) || wantErr != nil && wantErr.Error() != err.Error() {
			t.Errorf("%s %.20q: error %v; the SDK says %d, %v", tc.function, tc.in, err, code, wantErr)
		}
		if err == nil && string(got.Body) != want {
			t.Errorf("%s %.20q: %.100q, want %.100q", tc.function, tc.in, got.Body, want)
		}
		if err != nil && agent.KindOf(err) != agent.Failed {
			t.Errorf("%s: kind %v, want failed", tc.function, agent.KindOf(err))
		}
		if d := cmp.Diff(fromModule(wantLogs), logs); d != "" {
			t.Errorf("%s: log (-SDK +ours):\n%s", tc.function, d)
		}
	}

	t.Run("exports", func(t *testing.T) {
		want := []string{
			"clock", "complain", "count", "crash", "doze", "echo", "fail", "fetch", "greet", "hoard", "leave", "logs", "random", "spin",
		}
		if d := cmp.Diff(want, ours.Exports()); d != "" {
			t.Error(d)
		}
	})
	t.Run("exit", func(t *testing.T) {
		_, _, err := ours.Call(t.Context(), extism.Call{Function: "leave", Input: input("abc")})
		if agent.KindOf(err) != agent.Failed || !strings.Contains(err.Error(), "status 3") {
			t.Errorf("exit 3: %v", err)
		}
	})
	t.Run("crash", func(t *testing.T) {
		var lines []string
		log := func(_ agent.LogLevel, s string) { lines = append(lines, s) }
		_, _, err := ours.Call(t.Context(), extism.Call{Function: "crash", Input: input("x"), Env: cell.Env{Log: log}})
		if agent.KindOf(err) != agent.Failed || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "crashed: x") }) {
			t.Errorf("%v, log %q; want a failure whose reason is in the log", err, lines)
		}
	})
	t.Run("random", func(t *testing.T) {
		a, b := call(t, ours, extism.Call{Function: "random"}), call(t, ours, extism.Call{Function: "random"})
		if a == b || len(a) != 32 {
			t.Errorf("two cells drew %s and %s", a, b)
		}
	})
	t.Run("clock", func(t *testing.T) {
		var last int64
		for range 3 {
			var now [2]int64
			if err := json.Unmarshal([]byte(call(t, ours, extism.Call{Function: "clock"})), &now); err != nil {
				t.Fatal(err)
			}
			if now[0] <= last || now[1] < 2e6 {
				t.Errorf("clock %d after %d, slept %d ns", now[0], last, now[1])
			}
			last = now[0]
		}
	})
}

func TestNoStateIsLeft(t *testing.T) {
	wasm := fixture(t, "var.wasm")
	a := load(t, wasm)
	_, want, err := ask(t, oracle(t, wasm, sdk.Manifest{}), "run_test", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if got := call(t, a, extism.Call{Function: "run_test"}); got != want {
			t.Fatalf("call %d returned %q, the first call of all returns %q", i, got, want)
		}
	}
}

func TestReseed(t *testing.T) {
	a := load(t, build(t, "skep"))
	env := cell.Env{Random: strings.NewReader("\x01\x00\x00\x00\x00\x00\x00\x0fand so on")}
	if got := call(t, a, extism.Call{Function: "seeded", Env: env}); got != "f00000000000001" {
		t.Errorf("seeded with %s, want what the host's randomness begins with", got)
	}
	if x, y := call(t, a, extism.Call{Function: "seeded"}), call(t, a, extism.Call{Function: "seeded"}); x == y {
		t.Errorf("two cells were seeded with %s", x)
	}
	if slices.Contains(a.Exports(), "skep_reseed") {
		t.Error("skep_reseed can be called by callers")
	}
}
