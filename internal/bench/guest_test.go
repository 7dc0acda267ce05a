//go:build linux

package main

import (
	"context"
	"testing"

	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/internal/bench/bare"
)

// TestSidesDoTheSameWork runs the small modules on both sides, as plain instances and from images.
func TestSidesDoTheSameWork(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	ours, err := b.engine(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(context.Background()) })
	theirs, err := b.bareEngine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close(context.Background()) })

	compute := counting()
	img, _, err := compute.image(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.Cell(t.Context(), cell.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	plain, err := theirs.Plain(t.Context(), compute.wasm)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []instance{c, plain} {
		if err := expect(x, 6765, "fib", 20); err != nil {
			t.Error(err)
		}
		if err := expect(x, 12345*1103515245+12345&0xffffffff, "lcg", 2); err != nil {
			t.Error(err)
		}
	}

	heap := inC(4)
	img, call, err := heap.image(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one is made in place
		c, err := img.Cell(t.Context(), cell.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if err := call(c); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	proto, call, err := heap.bareImage(t.Context(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	x, err := proto.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	isFresh(t, x, call)
	if err := x.Reset(); err != nil {
		t.Fatal(err)
	}
	isFresh(t, x, call)
}

// isFresh looks at the heap, then calls, which changes it.
func isFresh(t *testing.T, x *bare.Instance, call lightCall) {
	t.Helper()
	if at := x.Memory()[(64<<10)+4096]; at != 0x5a {
		t.Errorf("the heap holds %#x, want what the image has", at)
	}
	if err := call(x); err != nil {
		t.Error(err)
	}
	if at := x.Memory()[(64<<10)+4096]; at != 1 {
		t.Errorf("the call left %#x in the heap, want 1", at)
	}
}
