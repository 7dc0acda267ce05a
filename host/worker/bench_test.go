//go:build linux

package worker

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// What crossing to another process adds to a call, to a call to the host, and to a line of console output.
func BenchmarkCells(b *testing.B) {
	each := func(b *testing.B, h cells, s *shelf) {
		d := s.put(script(`
			export function greet(input: any) { return { hi: input.name } }
			export async function calls(n: number, ctx: any) { for (let i = 0; i < n; i++) await ctx.agent("x").y() }
			export function lines(n: number) { for (let i = 0; i < n; i++) console.log(i) }`))
		run := func(function, input string) error {
			_, err := h.Call(context.Background(), host.Call{
				Plugin: d, Tenant: "a", Function: function, Input: agent.JSON([]byte(input)), Limits: agent.MaxLimits(),
				Calls: func(context.Context, string, []byte) ([]byte, error) {
					return []byte(`{"type":"application/json","output":"MQ=="}`), nil
				},
			})
			return err
		}
		if err := run("greet", `{}`); err != nil {
			b.Fatal(err)
		}
		b.Run("one caller", func(b *testing.B) {
			for b.Loop() {
				if err := run("greet", `{"name":"bee"}`); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("16 callers", func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := run("greet", `{"name":"bee"}`); err != nil {
						b.Error(err)
					}
				}
			})
		})
		for _, f := range []string{"calls", "lines"} {
			b.Run("1000 "+f, func(b *testing.B) {
				for b.Loop() {
					if err := run(f, "1000"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	inBoth(b, each)
}

// How calls fare beside two others that never end, of their own app and of another.
func BenchmarkBesideHogs(b *testing.B) {
	each := func(b *testing.B, h cells, s *shelf) {
		d := s.put(script(`export function hi() { return 1 }; export function spin() { for (;;); }`))
		for _, hogs := range []agent.App{"", "a", "b"} {
			b.Run("hogs of app "+string(hogs), func(b *testing.B) {
				ctx, stop := context.WithCancel(b.Context())
				var all sync.WaitGroup
				if hogs != "" {
					for range 2 {
						all.Go(func() {
							_, _ = h.Call(ctx, host.Call{Plugin: d, Tenant: hogs, Function: "spin", Limits: agent.MaxLimits()})
						})
					}
				}
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					if _, err := h.Call(b.Context(), host.Call{Plugin: d, Tenant: "a", Function: "hi"}); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(start))
				}
				stop()
				all.Wait()
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
	inBoth(b, each)
}

func inBoth(b *testing.B, each func(*testing.B, cells, *shelf)) {
	b.Run("inline", func(b *testing.B) {
		s := &shelf{}
		h, err := host.New(b.Context(), &host.Options{CacheDir: cacheDir(b), Load: s.load})
		if err != nil {
			b.Fatal(err)
		}
		defer h.Close(context.Background())
		each(b, h, s)
	})
	b.Run("process", func(b *testing.B) {
		p, s := open(b, Options{})
		each(b, p, s)
	})
}
