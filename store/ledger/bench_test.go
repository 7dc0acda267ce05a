package ledger_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/store/memkv"
)

func openBench(b *testing.B) *ledger.Ledger {
	dir := b.TempDir()
	st, err := store.Open(b.Context(), memkv.New(), dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	l, err := ledger.Open(b.Context(), st, dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close(); st.Close() })
	return l
}

func BenchmarkAppend(b *testing.B) {
	l := openBench(b)
	e := call(noon, "some-agent", 12345)
	for b.Loop() {
		if err := l.Append(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend8(b *testing.B) {
	l := openBench(b)
	e := call(noon, "some-agent", 12345)
	b.SetParallelism(4) // of two processors
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if err := l.Append(e); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWrite is the bare write(2) of as many bytes.
func BenchmarkWrite(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	rec := make([]byte, 75)
	n := int64(0)
	for b.Loop() {
		if _, err := f.WriteAt(rec, n); err != nil {
			b.Fatal(err)
		}
		if n += int64(len(rec)); n > 16<<20 {
			n = 0
		}
	}
}

func BenchmarkFold(b *testing.B) {
	l := openBench(b)
	for b.Loop() {
		for range 10_000 {
			if err := l.Append(call(noon, "a", 1)); err != nil {
				b.Fatal(err)
			}
		}
		if err := l.Fold(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/event")
}
