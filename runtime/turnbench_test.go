package runtime_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/engine"
)

// BenchmarkInstanceCall counts in a hundred instances, from 64 callers, on disk.
func BenchmarkInstanceCall(b *testing.B) {
	var r *runtime.Runtime
	h, err := host.New(b.Context(), &host.Options{Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) {
		return r.LoadSource(ctx, d)
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close(context.WithoutCancel(b.Context())) })
	dir := b.TempDir()
	db, err := engine.Open(dir, engine.Badger, nil)
	if err != nil {
		b.Fatal(err)
	}
	st, err := store.Open(b.Context(), db, dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	r = runtime.New(st, h, nil)
	script := `import { storage } from "skep";
export async function none() { return 1; }
export async function get() { return await storage.get("n"); }
export async function add() { const n = ((await storage.get("n")) ?? 0) + 1; await storage.set("n", n); return n; }`
	if _, _, err := r.PutPlugin(b.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte(script)}, store.Once{}, nil); err != nil {
		b.Fatal(err)
	}
	if _, _, err := r.CreateAgent(b.Context(), agent.Agent{App: app, Name: "a", Plugin: "code"}, store.Once{}); err != nil {
		b.Fatal(err)
	}
	for _, method := range []string{"none", "get", "add"} {
		b.Run(method, func(b *testing.B) {
			var n atomic.Int64
			b.SetParallelism(32)
			before := processorTime()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, err := r.CallInstance(b.Context(), app, runtime.InstanceCall{Agent: "a", Key: fmt.Sprint(n.Add(1) % 100), Function: method})
					if err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// processorTime is what the process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it never fails for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
