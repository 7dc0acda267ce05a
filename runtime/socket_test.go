package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/runtimetest"
)

func sharedFuncs() map[string]runtimetest.Func {
	set := func(ctx context.Context, c host.Call, state string) error {
		b, _ := json.Marshal(state)
		_, err := ask[abi.Shared](ctx, c, abi.CallSharedSet, abi.SharedSet{State: b})
		return err
	}
	return map[string]runtimetest.Func{
		"set": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return agent.Text(""), set(ctx, c, string(c.Input.Body))
		},
		"twice": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return agent.Text(""), errors.Join(set(ctx, c, "first"), set(ctx, c, string(c.Input.Body)))
		},
		"throw": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if err := set(ctx, c, string(c.Input.Body)); err != nil {
				return agent.Payload{}, err
			}
			return agent.Payload{}, errors.New("boom")
		},
		"get": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			s, err := ask[abi.Shared](ctx, c, abi.CallSharedGet, nil)
			b, _ := json.Marshal(s)
			return agent.JSON(b), err
		},
		"stale": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			one := int64(1)
			_, err := ask[abi.Shared](ctx, c, abi.CallSharedSet, abi.SharedSet{State: abi.Raw("1"), If: &one})
			return agent.Payload{}, err
		},
		"storage": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			list, err := ask[abi.StateEntries](ctx, c, abi.CallStorageList, abi.StateList{})
			b, _ := json.Marshal(list.Entries)
			return agent.JSON(b), err
		},
	}
}

// A shared state may be larger than one commit, and is whole at any time: also when the turn that set it is undone after a part of it
// was committed.
func TestSharedState(t *testing.T) {
	r := newRig(t, sharedFuncs(), nil)
	want := func(version int64, state string) {
		t.Helper()
		var got abi.Shared
		if err := json.Unmarshal([]byte(r.mustCall("k", "get", "")), &got); err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(state)
		if version == 0 {
			b = nil
		}
		if got.Version != version || string(got.State) != string(b) {
			t.Fatalf("version %d, %d bytes; want version %d, %d bytes", got.Version, len(got.State), version, len(b))
		}
		info, err := r.InspectInstance(t.Context(), app, "a", "k")
		if err != nil || string(info.Shared) != string(b) {
			t.Fatalf("%v: %d bytes are shown, want %d", err, len(info.Shared), len(b))
		}
	}
	bytes := func() int64 {
		t.Helper()
		info, err := r.InspectInstance(t.Context(), app, "a", "k")
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Bytes
	}
	want(0, "")
	large, larger := strings.Repeat("a", 1<<20-2), strings.Repeat("b", 1<<20-2)
	r.mustCall("k", "set", large)
	want(1, large)
	if _, err := r.callInstance("k", "throw", larger); agent.KindOf(err) != agent.Failed {
		t.Fatal(err)
	}
	want(1, large)
	if _, err := r.callInstance("k", "set", larger+"b"); agent.AsError(err).Limit != agent.LimitState {
		t.Fatal(err)
	}
	r.mustCall("k", "twice", larger)
	want(3, larger)
	if n := bytes(); n > 1<<20+4<<10 {
		t.Errorf("%d bytes are kept for a state of 1 MiB", n)
	}
	if _, err := r.callInstance("k", "stale", ""); agent.KindOf(err) != agent.Conflict {
		t.Error(err)
	}
	r.mustCall("k", "set", "small")
	want(4, "small")
	if n := bytes(); n > 1<<10 {
		t.Errorf("%d bytes are kept for a small state", n)
	}
	if got := r.mustCall("k", "storage", ""); got != "[]" {
		t.Errorf("the code's own storage has %s", got)
	}
	var versions []int64
	sub, err := r.SubscribeInstance(t.Context(), app, "a", "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for len(versions) < 4 {
		frames, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			if f.Event.Kind != agent.EventStateChanged {
				continue
			}
			var c agent.StateChange
			if err := json.Unmarshal(f.Event.Data, &c); err != nil {
				t.Fatal(err)
			}
			versions = append(versions, c.Version)
		}
	}
	for i, v := range versions {
		if v != int64(i+1) {
			t.Errorf("the events tell of versions %v", versions)
			break
		}
	}
}
