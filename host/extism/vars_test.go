package extism_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
)

// kept is an agent's state as far as variables need it.
type kept struct {
	mu     sync.Mutex
	values map[string][]byte
	refuse error
}

func (k *kept) answer(_ context.Context, name string, in []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return nil, k.refuse
	}
	switch name {
	case abi.CallStateGet:
		var q abi.StateGet
		if err := json.Unmarshal(in, &q); err != nil {
			return nil, err
		}
		out := abi.StateEntries{Entries: []abi.StateEntry{}}
		if v, ok := k.values[q.Keys[0]]; ok {
			out.Entries = append(out.Entries, abi.StateEntry{Key: q.Keys[0], Version: 1, StateValue: abi.StateValue{Type: agent.TypeBytes, Base64: v}})
		}
		return json.Marshal(out)
	case abi.CallStateSet, abi.CallStateDelete:
		var q abi.StateEdit
		if err := json.Unmarshal(in, &q); err != nil {
			return nil, err
		}
		delete(k.values, q.Key)
		if name == abi.CallStateSet {
			k.values[q.Key] = q.Base64
		}
		return json.Marshal(abi.StateVersion{Version: 1})
	}
	return nil, agent.Errorf(agent.Denied, "unexpected call %q", name)
}

// With state, variables outlive the call; without, they are gone with it, and nobody is asked.
func TestKeptVariables(t *testing.T) {
	a := load(t, build(t, "pdk"))
	k := &kept{values: map[string][]byte{}}
	c := extism.Call{Function: "count", Env: cell.Env{Calls: k.answer}}
	for range 2 {
		if got := call(t, a, c); got != `3 ""` {
			t.Errorf("not kept: %q", got)
		}
	}
	if len(k.values) > 0 {
		t.Errorf("the host was asked: %v", k.values)
	}
	c.Vars = true
	for _, want := range []string{`3 ""`, `6 ""`} {
		if got := call(t, a, c); got != want {
			t.Errorf("kept: %q, want %q", got, want)
		}
	}
	if len(k.values) != 1 || len(k.values["extism:var:n"]) == 0 {
		t.Errorf("kept as %v", k.values)
	}
	_, usage, err := a.Call(t.Context(), c)
	if err != nil || usage.HostCalls != 10 {
		t.Errorf("%d host calls, %v", usage.HostCalls, err)
	}
	k.refuse = agent.Exceeded(agent.LimitState, "the state is full")
	_, _, err = a.Call(t.Context(), c)
	if e := agent.AsError(err); err == nil || e.Limit != agent.LimitState || !strings.HasPrefix(e.Msg, `the variable "n" could not be read: the state is full`) {
		t.Errorf("%v", err)
	}
}
