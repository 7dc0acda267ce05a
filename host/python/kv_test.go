package python

import (
	"context"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/state"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

const keeping = `
import skep
from skep import kv

def values():
    kv.set("j", {"a": [None, 1.5]})
    kv.set("t", "é")
    kv.set("b", b"\xff\x00")
    kv.set("n", None)
    kv.set("e", "")
    return [kv.get("j"), kv.get("t"), list(kv.get("b")), kv.get("n", 1), kv.get("e"), kv.get("none", "default"), kv.entry("none")]

def versions():
    v = kv.set("k", 1, if_version=0)
    out = [kv.set("k", 2, if_version=v) > v]
    try:
        kv.set("k", 3, if_version=v)
    except skep.CallError as e:
        out.append(e.kind)
    kv.delete("k", if_version=kv.entry("k").version)
    kv.delete("k")
    return out + [kv.get("k")]

def many():
    v = kv.batch(*(("set", f"x/{i:03}", i) for i in range(120)), ("check", "x/", 0))
    kv.batch(("delete", "x/001", v), ("set", "x/000", "zero", v))
    keys = [e.key for e in kv.entries("x/")]
    return [len(keys), keys[:2], [e.value for e in kv.entries("x/", end="x/003", reverse=True)], len(list(kv.entries("x/", limit=7)))]

def full(): kv.set("k", "x" * 20000)
`

// ownState is the state of one agent.
type ownState struct {
	s *store.Store
	o store.Owner
}

func (s ownState) Get(ctx context.Context, keys []string) ([]agent.StateEntry, error) {
	return s.s.State(ctx, s.o, keys...)
}

func (s ownState) List(ctx context.Context, r agent.StateRange) ([]agent.StateEntry, string, error) {
	return s.s.ListState(ctx, s.o, r)
}

func (s ownState) Edit(ctx context.Context, bounds agent.StateGrant, edits []agent.StateEdit) (int64, error) {
	return s.s.EditState(ctx, s.o, bounds, edits...)
}

// TestKV uses the state that agents get.
func TestKV(t *testing.T) {
	st, err := store.Open(t.Context(), memkv.New(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	rec, _, err := st.CreateAgent(t.Context(), agent.Agent{App: agent.DefaultApp, Name: "a"}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	grants := agent.Grants{State: &agent.StateGrant{Bytes: 10_000}}
	auth := grant.NewAuthority(grant.Subject{Agent: "a"}, func() agent.Grants { return grants }, nil, nil)
	handlers := map[string]grant.Handler{}
	state.Add(handlers, auth, ownState{st, store.AgentState(agent.DefaultApp, rec.ID)})
	env := cell.Env{Calls: grant.NewDoor(agent.DefaultLimits(), handlers, nil).Call}
	a := load(t, "main.py", keeping)
	for fn, want := range map[string]string{
		"values": `[{"a":[null,1.5]},"é",[255,0],null,"","default",null]`, "versions": `[true,"conflict",null]`,
		"many": `[119,["x/000","x/002"],[2,"zero"],7]`,
	} {
		got, err := call(t, a, fn, agent.Payload{}, env)
		if err != nil || string(got.Body) != want {
			t.Errorf("%s: got %s, %v, want %s", fn, got.Body, err, want)
		}
	}
	if _, err := call(t, a, "full", agent.Payload{}, env); err == nil || !strings.Contains(err.Error(), "more than the 10000 granted") {
		t.Errorf("past the grant: %v", err)
	}
}
