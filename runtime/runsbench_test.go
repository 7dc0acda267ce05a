package runtime_test

import (
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

const reader = `
import { emit, kv } from "skep";
export async function read(n) { for (let i = 0; i < n; i++) await kv.get("k"); return n; }
export function tell(n) { for (let i = 0; i < n; i++) emit("n", i); return n; }
`

// What the journal costs a call: the same code as a stateless call, and as a run.
func BenchmarkJournal(b *testing.B) {
	w := newWorld(b, reader, nil, agent.Agent{Name: "b", Grants: agent.Grants{State: &agent.StateGrant{}}})
	w.start()
	const n = "4000"
	for _, function := range []string{"read", "tell"} {
		b.Run(function+"/call", func(b *testing.B) {
			for b.Loop() {
				if _, err := w.Call(b.Context(), app, runtime.CallRequest{Agent: "b", Function: function, Input: agent.JSON([]byte(n))}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4000, "ns/each")
		})
		b.Run(function+"/run", func(b *testing.B) {
			for b.Loop() {
				run, _, err := w.StartRun(b.Context(), app, runtime.RunRequest{Agent: "b", Function: function, Input: agent.JSON([]byte(n))}, store.Once{})
				if err != nil {
					b.Fatal(err)
				}
				if run, err = w.Wait(b.Context(), app, run.ID); err != nil || run.Status != agent.Completed {
					b.Fatal(run.Error, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4000, "ns/each")
		})
	}
}
