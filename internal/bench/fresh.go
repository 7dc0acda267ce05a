//go:build linux

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/internal/bench/bare"
)

const prototype = "bare copy-on-write"

// life is one way to have a fresh instance: made, called once, gone.
type life struct {
	live func() error

	cpu []float64 // of each round: the median life, in CPU seconds of its thread
	all float64   // CPU seconds of the process, the collector's too
	n   float64
}

// round lives n lives on a thread of its own.
func (l *life) round(n int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := make([]float64, 0, n)
	before := processCPU()
	for range n {
		start := threadCPU()
		if err := l.live(); err != nil {
			return err
		}
		took = append(took, (threadCPU() - start).Seconds())
	}
	l.all += (processCPU() - before).Seconds()
	l.n += float64(n)
	l.cpu = append(l.cpu, median(took))
	return nil
}

func alternate(ctx context.Context, rounds, n int, lives ...*life) error {
	for _, l := range lives {
		if err := l.round(max(n/4, 5)); err != nil { // to warm up
			return err
		}
		*l = life{live: l.live}
	}
	for r := range rounds {
		for i := range lives {
			if err := lives[(i+r)%len(lives)].round(n); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// freshCell is figure P3. A life is counted whole, from the image to the end, for what is made new in place is so at the
// end of the life before.
func freshCell(ctx context.Context, b *bench) ([]Figure, error) {
	guests, err := b.guests(ctx, 4)
	if err != nil {
		return nil, err
	}
	plain, err := b.bareEngine(ctx)
	if err != nil {
		return nil, err
	}
	mapping, err := b.engine(ctx, -1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = mapping.Close(ctx) }()
	inPlace, err := b.engine(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = inPlace.Close(ctx) }()
	var fs []Figure
	for _, s := range append(guests, inScript("(function () { return 1 })")) {
		two, err := b.freshFigures(ctx, s, plain, mapping, inPlace)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		fs = append(fs, two...)
	}
	return fs, nil
}

func (b *bench) freshFigures(ctx context.Context, s subject, plain *bare.Engine, mapping, inPlace *cell.Engine) ([]Figure, error) {
	proto, call, err := s.bareImage(ctx, plain)
	if err != nil {
		return nil, err
	}
	defer func() { _ = proto.Close() }()
	used, err := proto.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = used.Close() }()
	bareNew := &life{live: func() error {
		x, err := proto.Fresh(ctx)
		if err != nil {
			return err
		}
		if err := call(x); err != nil {
			return err
		}
		return x.Close()
	}}
	bareReset := &life{live: func() error {
		if err := call(used); err != nil {
			return err
		}
		return used.Reset()
	}}
	lives := []*life{bareNew, bareReset}
	for _, e := range []*cell.Engine{mapping, inPlace} {
		img, call, err := s.image(ctx, e)
		if err != nil {
			return nil, err
		}
		defer func() { _ = img.Close() }()
		lives = append(lives, &life{live: func() error {
			c, err := img.Cell(ctx, cell.Env{Tenant: "bench"})
			if err != nil {
				return err
			}
			defer c.Close()
			return call(c)
		}})
	}
	if err := alternate(ctx, b.count(12, 3), b.count(150, 40), lives...); err != nil {
		return nil, err
	}
	row := func(how string, ours, theirs *life) Figure {
		f := compare("P3", "fresh cell, "+s.name+", "+how, Seconds, ours.cpu, theirs.cpu, prototype, Target{Bound: 1.5})
		f.Note = fmt.Sprintf("least round %s to %s; CPU of the process, collector included, %s to %s a life",
			Seconds.format(minimum(ours.cpu)), Seconds.format(minimum(theirs.cpu)), Seconds.format(ours.all/ours.n), Seconds.format(theirs.all/theirs.n))
		return f
	}
	return []Figure{row("new mapping", lives[2], bareNew), row("in place", lives[3], bareReset)}, nil
}

// cpuOfOne runs fn on a thread of its own and returns its CPU time.
func cpuOfOne(fn func() error) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadCPU()
	err := fn()
	return threadCPU() - start, err
}
