//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// starts are what some starts of skep serve on one data directory have shown.
type starts struct {
	name      string
	dir       string
	took, cpu []float64 // seconds from the start of the process until it has answered a request
	idle      footprint // of the last one
}

// footprint is resident memory as the kernel counts it: all of it, and what of it is pages of files, the program's most.
type footprint struct{ resident, files float64 }

// starting is figure P18. The starts of both stores alternate; each store's first one fills the cache and is not counted.
func starting(ctx context.Context, b *bench) ([]Figure, error) {
	many := b.count(100_000, 5_000)
	empty, full := &starts{name: "no agents"}, &starts{name: fmt.Sprintf("%d agents", many)}
	var err error
	if empty.dir, err = b.storeOf(ctx, 0); err != nil {
		return nil, err
	}
	if full.dir, err = b.storeOf(ctx, many); err != nil {
		return nil, err
	}
	rounds := b.count(9, 3)
	for round := range rounds + 1 {
		for _, s := range []*starts{empty, full} {
			if err := s.once(ctx, b, round == rounds); err != nil {
				return nil, err
			}
			if round == 0 {
				s.took, s.cpu = nil, nil
			}
		}
	}
	var fs []Figure
	for i, s := range []*starts{empty, full} {
		f := alone("P18", "start to ready, "+s.name, Seconds, median(s.took), Target{Bound: []float64{0.3, 1}[i], Value: true})
		f.Note = fmt.Sprintf("least %s, CPU %s", Seconds.format(minimum(s.took)), Seconds.format(median(s.cpu)))
		m := alone("P18", "resident when idle, "+s.name, Bytes, s.idle.resident, Target{Bound: 60e6, Value: true})
		m.Note = fmt.Sprintf("%s of it pages of files, nearly all the program's own, which the page cache holds anyway", Bytes.format(s.idle.files))
		fs = append(fs, f, m)
	}
	return fs, nil
}

func (s *starts) once(ctx context.Context, b *bench, settle bool) error {
	if _, err := b.skepProgram(ctx); err != nil {
		return err
	}
	start := time.Now()
	x, err := b.startSkep(ctx, s.dir)
	if err != nil {
		return err
	}
	defer x.stop()
	if err := awaitAnswer(ctx, x.addr); err != nil {
		return err
	}
	s.took = append(s.took, time.Since(start).Seconds())
	cpu, err := x.cpu()
	s.cpu = append(s.cpu, cpu)
	if err == nil && settle {
		s.idle, err = settled(ctx, x.cmd.Process.Pid)
	}
	return err
}

// settled waits until a process no longer gives memory back, for ten seconds at most.
func settled(ctx context.Context, pid int) (footprint, error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	least, same := footprint{resident: math.Inf(1)}, 0
	for range 20 {
		now, err := footprintOf(pid)
		if err != nil {
			return now, err
		}
		if same++; now.resident < 0.99*least.resident {
			least, same = now, 0
		}
		if same == 4 {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return least, ctx.Err()
		}
	}
	return least, nil
}

func footprintOf(pid int) (f footprint, err error) {
	err = eachField(fmt.Sprintf("/proc/%d/status", pid), func(_, name string, bytes float64) {
		switch name {
		case "VmRSS:":
			f.resident = bytes
		case "RssFile:":
			f.files = bytes
		}
	})
	return f, err
}
