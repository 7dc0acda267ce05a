package python

import (
	"fmt"
	"testing"

	"github.com/skep-dev/skep/host/cell"
)

func BenchmarkCall(b *testing.B) {
	a := load(b, "main.py", hello)
	b.Run("fresh cell", func(b *testing.B) {
		for b.Loop() {
			if _, err := call(b, a, "greet", js(`{"name":"Ada"}`), cell.Env{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for _, imports := range []string{"json", "json, re, datetime, collections, dataclasses, typing"} {
		b.Run(imports, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				a := load(b, "main.py", fmt.Sprintf("import %s\ndef f(): return %d\n", imports, n))
				b.ReportMetric(float64(a.Size())/(1<<20), "MiB")
				a.Close()
			}
		})
	}
}

func BenchmarkWork(b *testing.B) {
	a := load(b, "main.py", "def fib(n):\n  return n if n < 2 else fib(n-1) + fib(n-2)\n")
	for b.Loop() {
		if _, err := call(b, a, "fib", js(`20`), cell.Env{}); err != nil {
			b.Fatal(err)
		}
	}
}
