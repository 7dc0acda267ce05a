//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/skep-dev/skep/store"
)

var flat = Target{Bound: 1.3}

// sizes is figure P19: the same work beside little and beside much. The smallest is the other side of each row.
func sizes(ctx context.Context, b *bench) ([]Figure, error) {
	ns := []int{10, 1000, b.count(100_000, 5_000)}
	logs, err := b.longLogs(ctx, ns)
	if err != nil {
		return nil, err
	}
	appends, err := b.appendsBeside(ctx, ns)
	if err != nil {
		return nil, err
	}
	calls, err := b.callsBeside(ctx, ns)
	if err != nil {
		return nil, err
	}
	durable, err := b.besideInstances(ctx, ns)
	return slices.Concat(calls, durable, appends, logs), err
}

// appender adds events to one log.
type appender struct {
	st  opened
	log store.Log

	p50, cpu []float64 // of each round, in seconds for one event
}

// round appends n events, one after another.
func (a *appender) round(ctx context.Context, n int) error {
	took := make([]float64, 0, n)
	before := processCPU()
	for range n {
		start := time.Now()
		if _, err := a.st.Append(ctx, a.log, someEvents(1)); err != nil {
			return err
		}
		took = append(took, time.Since(start).Seconds())
	}
	a.cpu = append(a.cpu, (processCPU()-before).Seconds()/float64(n))
	a.p50 = append(a.p50, median(took))
	return nil
}

// appendRows lets appenders take turns and compares each with the first.
func (b *bench) appendRows(ctx context.Context, beside string, ns []int, as []*appender) ([]Figure, error) {
	for _, a := range as {
		if err := a.round(ctx, 20); err != nil {
			return nil, err
		}
		a.p50, a.cpu = nil, nil
	}
	for r := range b.count(24, 6) {
		for i := range as {
			if err := as[(i+r)%len(as)].round(ctx, b.count(40, 20)); err != nil {
				return nil, err
			}
		}
	}
	var fs []Figure
	for i, n := range ns[1:] {
		name, with := fmt.Sprintf("append, %d %s", n, beside), fmt.Sprintf("with %d", ns[0])
		fs = append(fs, compare("P19", name+", p50", Seconds, as[i+1].p50, as[0].p50, with, flat),
			compare("P19", name+", CPU", Seconds, as[i+1].cpu, as[0].cpu, with, flat))
	}
	return fs, nil
}

// longLogs appends to sessions that are already so many events long, in one store.
func (b *bench) longLogs(ctx context.Context, ns []int) (fs []Figure, err error) {
	dir, err := b.storeOf(ctx, 10)
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	var as []*appender
	for _, n := range ns {
		log, err := sessionOf(ctx, st, n)
		if err != nil {
			return nil, err
		}
		as = append(as, &appender{st: st, log: log})
	}
	return b.appendRows(ctx, "events in the session", ns, as)
}

// appendsBeside appends to short sessions, in stores of so many agents.
func (b *bench) appendsBeside(ctx context.Context, ns []int) (fs []Figure, err error) {
	var as []*appender
	for _, n := range ns {
		dir, err := b.storeOf(ctx, n)
		if err != nil {
			return nil, err
		}
		st, err := openStore(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, st.close()) }()
		log, err := sessionOf(ctx, st, 10)
		if err != nil {
			return nil, err
		}
		as = append(as, &appender{st: st, log: log})
	}
	return b.appendRows(ctx, "agents stored", ns, as)
}

// callsBeside calls agents of stores of so many: the same ten in each, which stay in memory, and one of all by chance, which
// mostly was not called before.
func (b *bench) callsBeside(ctx context.Context, ns []int) ([]Figure, error) {
	var few, every []*side
	for _, n := range ns {
		dir, err := b.storeOf(ctx, n)
		if err != nil {
			return nil, err
		}
		s, err := b.startSkep(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		if _, err := s.putCode(ctx); err != nil {
			return nil, err
		}
		which := rand.New(rand.NewPCG(1, uint64(n)))
		among := func(n int) *side {
			return &side{server: s, next: func() ask { return greeting("/v1/agents/" + agentName(which.IntN(n)) + "/call/greet") }}
		}
		few, every = append(few, among(ns[0])), append(every, among(n))
	}
	same, err := b.callRows(ctx, fmt.Sprintf("call one of %d agents beside", ns[0]), ns, few)
	if err != nil {
		return nil, err
	}
	others, err := b.callRows(ctx, "call any of", ns, every)
	return append(same, others...), err
}

func (b *bench) callRows(ctx context.Context, what string, ns []int, sides []*side) ([]Figure, error) {
	plan := plan{rounds: b.count(12, 3), sequential: b.count(300, 100), callers: 8, many: b.count(1000, 600)}
	if err := duel(ctx, plan, sides...); err != nil {
		return nil, err
	}
	var fs []Figure
	least := sides[0]
	for i, n := range ns[1:] {
		s := sides[i+1]
		name, with := fmt.Sprintf("%s %d", what, n), fmt.Sprintf("with %d", ns[0])
		fs = append(fs, compare("P19", name+", p50", Seconds, s.p50, least.p50, with, flat),
			compare("P19", name+", CPU", Seconds, []float64{s.manyCPU / s.manyN}, []float64{least.manyCPU / least.manyN}, with, flat))
	}
	return fs, nil
}
