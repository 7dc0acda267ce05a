package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/store/pebblekv"
)

// BenchmarkCommit appends one event of 1 KB to each writer's own log, durably.
func BenchmarkCommit(b *testing.B) {
	for _, kind := range []string{"badger", "pebble", "mem"} {
		for _, writers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind, writers), func(b *testing.B) {
				dir := b.TempDir()
				var s *store.Store
				switch kind {
				case "mem":
					s = openStore(b, memkv.New(), dir, nil)
				case "pebble":
					db, err := pebblekv.Open(filepath.Join(dir, "kv"), nil)
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { db.Close() })
					s = openStore(b, db, dir, nil)
				case "badger":
					s = openStore(b, openBadger(b, dir), dir, nil)
				}
				addAgent(b, s, "a")
				evs := events(1)
				evs[0].Data = fmt.Appendf(nil, `"%01000d"`, 1)
				logs := make([]store.Log, writers)
				for i := range logs {
					logs[i] = store.SessionLog(app, addSession(b, s, "a").ID)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for _, log := range logs {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := s.Append(context.Background(), log, evs); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			})
		}
	}
}

// BenchmarkRead reads a page of 250 events of 1 KB.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	s := openStore(b, openBadger(b, dir), dir, nil)
	addAgent(b, s, "a")
	log := store.SessionLog(app, addSession(b, s, "a").ID)
	evs := events(250)
	for i := range evs {
		evs[i].Data = fmt.Appendf(nil, `"%01000d"`, i)
	}
	if _, err := s.Append(b.Context(), log, evs); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if got, err := s.Read(b.Context(), log, 0, 250); err != nil || len(got) != 250 {
			b.Fatal(len(got), err)
		}
	}
}
