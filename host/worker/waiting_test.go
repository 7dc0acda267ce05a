//go:build linux

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

const sleeper = `
	import { callAgent } from "skep";
	let n = 0;
	export async function f(x) {
		n++;
		const r = Math.random();
		const [a, b] = await Promise.all([callAgent("o", "f", 1), callAgent("o", "f", 2)]);
		return { n, a, b, x, r, now: Date.now() };
	}`

func answerOf(v string) []byte {
	out, _ := json.Marshal(abi.AgentResult{Type: agent.TypeJSON, Output: []byte(v)})
	return out
}

// TestSuspendAndResume takes a call out of one host and has it go on in another, whose cells are in another process if the
// first one's are. Its host calls are under way when it leaves.
func TestSuspendAndResume(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (cells, *shelf){
		"inline": func(t *testing.T) (cells, *shelf) {
			s := &shelf{}
			h, err := host.New(t.Context(), &host.Options{CacheDir: cacheDir(t), Load: s.load})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = h.Close(context.Background()) })
			return h, s
		},
		"process": func(t *testing.T) (cells, *shelf) { return open(t, Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			src := script(sleeper)
			clock := time.UnixMilli(1_000_000)
			finish, finished := make(chan struct{}), make(chan string, 2)
			var begun sync.WaitGroup
			begun.Add(2)
			call := host.Call{
				Tenant: "t", Function: "f", Input: agent.JSON([]byte("5")), Now: func() time.Time { return clock }, Random: rand.NewChaCha8([32]byte{1}),
				Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
					begun.Done()
					select {
					case <-finish:
					case <-ctx.Done():
					}
					finished <- fmt.Sprint(host.Number(ctx), ctx.Err())
					return nil, nil
				},
			}
			nudge := make(chan struct{})
			asked := 0
			call.Waiting = &host.Waiting{
				Nudge: nudge,
				Rest: func(_ context.Context, p host.Pending) bool {
					begun.Wait()
					if asked++; asked == 1 {
						go func() { nudge <- struct{}{} }()
					}
					return asked == 2 && len(p.Calls) == 2
				},
			}
			h, s := open(t)
			call.Plugin = s.put(src)
			res, err := h.Call(t.Context(), call)
			if err != nil || res.Suspended == nil {
				t.Fatal(err)
			}
			close(finish)
			if got := map[string]bool{<-finished: true, <-finished: true}; !got["1 <nil>"] || !got["2 <nil>"] {
				t.Errorf("the calls that were under way ended as %v", got)
			}

			other, s2 := open(t)
			var delivered []string
			call.Plugin = s2.put(src)
			call.Calls = nil
			call.Waiting = &host.Waiting{
				Resume: res.Suspended.Snapshot, Deliver: []host.Delivery{{ID: 2, Out: answerOf(`"b"`)}, {ID: 1, Out: answerOf(`"a"`)}},
				Delivered: func(d host.Delivery) { delivered = append(delivered, fmt.Sprint(d.ID)); clock = clock.Add(time.Second) },
			}
			got, err := other.Call(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			var v map[string]any
			if err := json.Unmarshal(got.Output.Body, &v); err != nil || v["r"] == 0 {
				t.Errorf("%s: %v", got.Output.Body, err)
			}
			delete(v, "r")
			want := map[string]any{"n": 1.0, "a": "a", "b": "b", "x": 5.0, "now": 1_002_000.0}
			if d := cmp.Diff(want, v); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff([]string{"2", "1"}, delivered); d != "" {
				t.Error(d)
			}
			var differs []string
			call.Waiting = &host.Waiting{
				Resume: res.Suspended.Snapshot, Deliver: []host.Delivery{{ID: 2, Name: "other", Out: answerOf(`"b"`)}},
				Diverged: func(d host.Delivery, p host.Pending) {
					differs = append(differs, fmt.Sprintf("%d %s; %d of %d", d.ID, d.Name, p.Calls[1].ID, len(p.Calls)))
				},
			}
			if _, err := other.Call(t.Context(), call); agent.KindOf(err) != agent.Conflict {
				t.Error("another journal:", err)
			}
			if d := cmp.Diff([]string{"2 other; 2 of 2"}, differs); d != "" {
				t.Error(d)
			}
			call.Waiting = &host.Waiting{Resume: bytes.Clone(res.Suspended.Snapshot[:len(res.Suspended.Snapshot)-1])}
			if _, err := other.Call(t.Context(), call); agent.KindOf(err) != agent.Invalid {
				t.Error("a damaged one:", err)
			}
		})
	}
}
