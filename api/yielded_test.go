package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/runtimetest"
)

// yielding is code that yields its input so many times, as the guest of a script does, and notes each in storage before.
func yielding(text string, n int, err error, more func()) runtimetest.Func {
	return func(ctx context.Context, c host.Call) (agent.Payload, error) {
		var in abi.RPC
		if err := json.Unmarshal(c.Input.Body, &in); err != nil {
			return agent.Payload{}, err
		}
		for i := range n {
			if _, err := c.Calls(ctx, abi.CallStorageSet, fmt.Appendf(nil, `{"key":"n","json":%d}`, i)); err != nil {
				return agent.Payload{}, err
			}
			item := fmt.Sprintf(`{"type":"rpc","id":%q,"success":true,"done":false,"result":%s}`, in.ID, text)
			if err := send(ctx, c, abi.SocketSend{To: []string{in.Connection}, Text: &item}); err != nil {
				return agent.Payload{}, err
			}
			more()
		}
		return agent.JSON([]byte(`{"done":"end"}`)), err
	}
}

func yieldRig(t *testing.T, f runtimetest.Func) *rig {
	there := func(context.Context, host.Call) (agent.Payload, error) { return none(nil) }
	return socketRig(t, nil, map[string]runtimetest.Func{"count": there, abi.FunctionRPC: f})
}

const countPath = "/v1/agents/a/instances/k/call/count"

// What a method yields is read as it comes, in either form: the second item is made when the first one was read.
func TestYielded(t *testing.T) {
	read := make(chan struct{}, 1)
	r := yieldRig(t, yielding(`{"x":1}`, 2, nil, func() { <-read }))
	result, err := r.c.StreamInstance(t.Context(), "a", "k", "count", agent.JSON([]byte("5")), 0, func(item json.RawMessage) error {
		if string(item) != `{"x":1}` {
			t.Errorf("item %s", item)
		}
		read <- struct{}{}
		return nil
	})
	if err != nil || string(result) != `"end"` {
		t.Fatalf("%s %v", result, err)
	}
	read <- struct{}{}
	go func() { read <- struct{}{} }()
	const want = "data: {\"item\":{\"x\":1}}\n\ndata: {\"item\":{\"x\":1}}\n\ndata: {\"result\":\"end\"}\n\n"
	got := r.do("POST", countPath, "5", "Content-Type", "application/json", "Accept", "text/event-stream")
	if diff := cmp.Diff(want, string(got.body)); diff != "" || got.Header.Get("Content-Type") != typeSSE {
		t.Error(diff)
	}
}

// An error before the first item is the answer, a later one is a line. Items that came stay done, what was done since is not.
func TestYieldedFails(t *testing.T) {
	r := yieldRig(t, yielding("1", 0, agent.Errorf(agent.Failed, "boom"), nil))
	for _, c := range []struct {
		body, contentType, once string
		status                  int
	}{{"5", typeJSON, "", http.StatusBadGateway}, {"5", typeJSON, "x", http.StatusBadRequest}, {"\xff", agent.TypeBytes, "", http.StatusBadRequest}} {
		header := []string{"Content-Type", c.contentType, "Accept", typeNDJSON}
		if c.once != "" {
			header = append(header, "Idempotency-Key", c.once)
		}
		if got := r.do("POST", countPath, c.body, header...); got.StatusCode != c.status {
			t.Errorf("%+v: %s %s", c, got.Status, got.body)
		}
	}
	r.cells.Funcs[abi.FunctionRPC] = yielding("1", 2, agent.Errorf(agent.Failed, "boom"), func() {})
	items := 0
	_, err := r.c.StreamInstance(t.Context(), "a", "k", "count", agent.JSON([]byte("5")), 0, func(json.RawMessage) error { items++; return nil })
	if e := wantKind(t, err, agent.Failed); !strings.Contains(e.Msg, "boom") || items != 2 {
		t.Errorf("%v after %d items", e, items)
	}
	if e, err := r.s.rt.Storage(t.Context(), agent.DefaultApp, "a", "k", "n"); err != nil || string(e.Value.Body) != "1" {
		t.Errorf("%s %v", e.Value.Body, err)
	}
}

// An instance waits for no reader: a call whose reader has gone, or does not read on, ends.
func TestYieldedToNobody(t *testing.T) {
	item := `"` + strings.Repeat("y", 1<<19) + `"`
	r := yieldRig(t, yielding(item, 1000, nil, func() {}))
	gone := agent.Errorf(agent.Invalid, "enough")
	_, err := r.c.StreamInstance(t.Context(), "a", "k", "count", agent.JSON([]byte("5")), 0, func(json.RawMessage) error { return gone })
	wantKind(t, err, agent.Invalid)
	until(t, func() bool {
		return r.s.rt.Stats().Live == 0 && r.s.rt.Stats().Failures[agent.Exhausted]+r.s.rt.Stats().Failures[agent.Cancelled] > 0
	})
}
