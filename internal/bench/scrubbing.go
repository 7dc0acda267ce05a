//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/skep-dev/skep/vault/scrub"
)

// scrubbing is figure U3: the processor time for a megabyte of an API's JSON in which nothing is to be scrubbed, with ten secrets in use,
// and that of a bare copy. The bound is 300 megabytes in a second.
func scrubbing(_ context.Context, b *bench) ([]Figure, error) {
	var secrets [][]byte
	for i := range 10 {
		secrets = append(secrets, fmt.Appendf(nil, "sk_live_%032x", 0x9e3779b97f4a7c15*uint64(i+1)))
	}
	var text bytes.Buffer
	for i := 0; text.Len() < 1<<20; i++ {
		fmt.Fprintf(&text, `{"id":%d,"name":"Repository %x","url":"https:\/\/api.example.com\/repos\/%d","text":"It said \"no\".\nThen it went on."},`, i, i*i, i)
	}
	s := scrub.New(secrets...)
	n := b.count(50, 5)
	var ours, bare []float64
	for range b.count(9, 3) {
		for _, side := range []struct {
			open func(io.Reader) io.Reader
			out  *[]float64
		}{{s.Reader, &ours}, {func(r io.Reader) io.Reader { return struct{ io.Reader }{r} }, &bare}} {
			_, cpu, err := together(1, n, func(int) error {
				_, err := io.Copy(struct{ io.Writer }{io.Discard}, side.open(bytes.NewReader(text.Bytes())))
				return err
			})
			if err != nil {
				return nil, err
			}
			*side.out = append(*side.out, cpu/(float64(text.Len())/1e6))
		}
	}
	return []Figure{
		alone("U3", "scrubbing with 10 secrets, CPU a megabyte", Seconds, median(ours), Target{Bound: 1e-3 / 0.3, Value: true}),
		alone("U3", "bare copy, CPU a megabyte", Seconds, median(bare), Target{}),
	}, nil
}
