package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skep-dev/skep/store"
)

// BenchmarkState reads or sets keys of 1 KB among 1000, each writer those of its own agent.
func BenchmarkState(b *testing.B) {
	value := strings.Repeat("x", 1000)
	for _, act := range []string{"get", "set"} {
		for _, workers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", act, workers), func(b *testing.B) {
				dir := b.TempDir()
				s := openStore(b, openBadger(b, dir), dir, nil)
				owners := make([]store.Owner, workers)
				for i := range owners {
					owners[i] = store.AgentState(app, addAgent(b, s, fmt.Sprint("a", i)).ID)
					for k := 0; k < 1000; k += 100 {
						es := edits(0, 0)
						for j := range 100 {
							es = append(es, set(fmt.Sprint("key", k+j), value))
						}
						if i == 0 || k == 0 {
							edit(b, s, owners[i], es...)
						}
					}
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for _, o := range owners {
					all.Go(func() {
						for n := left.Add(-1); n >= 0; n = left.Add(-1) {
							key := fmt.Sprint("key", n%100)
							var err error
							if act == "get" {
								_, err = s.State(context.Background(), o, key)
							} else {
								_, err = s.EditState(context.Background(), o, wide, set(key, value))
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}
