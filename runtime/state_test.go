package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

const keeper = `
import { kv } from "skep";
export async function count() {
	for (;;) {
		const e = await kv.getEntry<number>("n");
		if (await kv.compareAndSet("n", e?.version ?? 0, (e?.value ?? 0) + 1) !== undefined) return;
	}
}
export const read = () => kv.get("n");
export async function round() {
	await kv.batch([{ op: "set", key: "b/2", value: new Uint8Array([255]) }, { op: "set", key: "b/1", value: { é: [null] } }, { op: "set", key: "b", value: "t" }]);
	const out: unknown[] = [];
	for await (const e of kv.entries({ prefix: "b", reverse: true, limit: 3 })) out.push(e.key, e.value instanceof Uint8Array ? [...e.value] : e.value);
	await kv.delete("b/1");
	return [...out, (await kv.list({ prefix: "b/" })).entries.length, await kv.getMany(["b/1", "b"])];
}
export const fill = (n: number) => kv.set("k", "x".repeat(n));
export const refused = () => kv.get("n").catch((e) => [e.kind, e.message]);
`

// realRig is a runtime with the cells that users get, and a plugin "code" of the given script.
func realRig(t *testing.T, script string) *rig {
	t.Helper()
	var r *rig
	h, err := host.New(t.Context(), &host.Options{Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) {
		return r.LoadSource(ctx, d)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.WithoutCancel(t.Context())) })
	st, err := store.Open(t.Context(), memkv.New(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	r = &rig{t: t, Runtime: runtime.New(st, h, nil), store: st}
	if _, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte(script)}, store.Once{}, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// The whole way, from a script to the store and back.
func TestState(t *testing.T) {
	r := realRig(t, keeper)
	grant := agent.Grants{State: &agent.StateGrant{Bytes: 1000}}
	r.agent(agent.Agent{Name: "a", Grants: grant})
	r.agent(agent.Agent{Name: "b", Grants: grant})
	r.agent(agent.Agent{Name: "none"})
	call := func(name, function, in string) (string, error) {
		res, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: name, Function: function, Input: agent.JSON([]byte(in))})
		return string(res.Output.Body), err
	}
	want := func(name, function, in, want string) {
		t.Helper()
		if got, err := call(name, function, in); err != nil || got != want {
			t.Errorf("%s.%s: got %s, %v, want %s", name, function, got, err, want)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := call("a", "count", ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want("a", "read", "", "8")
	want("b", "read", "", "null")
	want("b", "round", "", `["b/2",[255],"b/1",{"é":[null]},"b","t",1,[null,"t"]]`)
	want("none", "refused", "", `["denied","no state is granted to agent \"none\""]`)
	want("b", "fill", "990", "3")
	if _, err := call("b", "fill", "1000"); err == nil || !strings.Contains(err.Error(), "more than the 1000 granted") {
		t.Errorf("past the grant: %v", err)
	}

	// Taken back, and given again to an agent of the same name.
	if _, err := r.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Grants: &agent.Grants{}}); err != nil {
		t.Fatal(err)
	}
	want("a", "refused", "", `["denied","no state is granted to agent \"a\""]`)
	if err := r.DeleteAgents(t.Context(), app, "a"); err != nil {
		t.Fatal(err)
	}
	r.agent(agent.Agent{Name: "a", Grants: grant})
	want("a", "read", "", "null")
}

// What an operator does to a state.
func TestStateFromOutside(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{}, nil)
	r.agent(agent.Agent{Name: "keeper", Grants: agent.Grants{State: &agent.StateGrant{Keys: 1}}})
	set := agent.StateEdit{Act: agent.StateSet, Key: "k", Value: agent.Text("v")}
	if v, err := r.EditState(t.Context(), app, "keeper", set); err != nil || v != 1 {
		t.Fatal(v, err)
	}
	if e, err := r.State(t.Context(), app, "keeper", "k"); err != nil || string(e.Value.Body) != "v" {
		t.Errorf("%+v, %v", e, err)
	}
	list, next, size, err := r.ListState(t.Context(), app, "keeper", agent.StateRange{})
	if err != nil || len(list) != 1 || next != "" || size != (agent.StateSize{Bytes: 2, Keys: 1}) {
		t.Errorf("%+v %q %+v, %v", list, next, size, err)
	}
	other := set
	other.Key = "other"
	for what, got := range map[string]error{
		"exhausted": func() error { _, err := r.EditState(t.Context(), app, "keeper", other); return err }(),
		"not_found": func() error { _, err := r.State(t.Context(), app, "keeper", "other"); return err }(),
		"conflict":  func() error { _, err := r.EditState(t.Context(), app, "a", set); return err }(),
	} {
		if kind(got) != what {
			t.Errorf("%v, want %s", got, what)
		}
	}
	if _, err := r.State(t.Context(), app, "nobody", "k"); kind(err) != "not_found" {
		t.Errorf("of no agent: %v", err)
	}
}

// The states of deleted agents are removed while the runtime runs, those of an earlier process too.
func TestStatesAreDropped(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{}, nil)
	count := func() (n int) {
		err := r.store.Export(t.Context(), func(rec store.Record) error {
			if strings.HasPrefix(string(rec.Key), "state") {
				n++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range 3 {
		name := fmt.Sprint("keeper", i)
		r.agent(agent.Agent{Name: name, Grants: agent.Grants{State: &agent.StateGrant{}}})
		if _, err := r.EditState(t.Context(), app, name, agent.StateEdit{Act: agent.StateSet, Key: "k", Value: agent.Text("v")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.DeleteAgents(t.Context(), app, "keeper0"); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 7 { // an entry and a head each, and one mark
		t.Fatalf("%d records", n)
	}
	r.start()
	for want := 4; want > 0; want -= 2 {
		for count() != want {
			goruntime.Gosched()
		}
		if want == 4 {
			if err := r.DeleteAgents(t.Context(), app, "keeper1"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
