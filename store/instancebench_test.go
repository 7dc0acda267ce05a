package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/store/pebblekv"
)

// BenchmarkInstance commits the head, 256 bytes of state, an event of 1 KB, an alarm and an entry of 256 bytes in a journal, each writer to
// its own instance. Beside it stands BenchmarkCommit, which only appends such an event.
func BenchmarkInstance(b *testing.B) {
	for _, kind := range []string{"badger", "pebble", "mem"} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind, writers), func(b *testing.B) {
				dir := b.TempDir()
				var db kv.DB = memkv.New()
				switch kind {
				case "pebble":
					p, err := pebblekv.Open(filepath.Join(dir, "kv"), nil)
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { p.Close() })
					db = p
				case "badger":
					db = openBadger(b, dir)
				}
				s := openStore(b, db, dir, nil)
				in, a := s.Instances(), addAgent(b, s, "a").ID
				value, data := strings.Repeat("x", 256), json.RawMessage(fmt.Sprintf(`"%01000d"`, 1))
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for i := range writers {
					id := instance.ID{App: app, Agent: a, Key: fmt.Sprint(i)}
					info, err := in.Acquire(b.Context(), id, instance.ID{})
					if err != nil {
						b.Fatal(err)
					}
					all.Go(func() { commitTurns(b, in, id, info.Fence, &left, value, data) })
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			})
		}
	}
}

func commitTurns(b *testing.B, in *store.Instances, id instance.ID, f instance.Fence, left *atomic.Int64, value string, data json.RawMessage) {
	for n := left.Add(-1); n >= 0; n = left.Add(-1) {
		res, err := in.Commit(context.Background(), id, f, &instance.Batch{
			ID: instance.NewBatchID(), State: []agent.StateEdit{set("k", value)},
			Events:  []instance.Append{{Log: instance.OwnLog("l"), Event: agent.Event{Kind: agent.EventEmit, Data: data}}},
			Alarms:  []instance.AlarmEdit{{Alarm: instance.Alarm{Name: "a", At: epoch}}},
			Journal: []instance.Entry{{Run: "R", Data: []byte(value)}},
		})
		if err != nil {
			b.Error(err)
			return
		}
		f = res.Fence
	}
}
