//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/store/ledger"
)

// usageRecord is as large as the record of a call.
const usageRecord = 75

// writing is figure U1: what it costs to write down a call's usage, beside a bare write(2) of as many bytes, in turns.
func writing(ctx context.Context, b *bench) (fs []Figure, err error) {
	dir := filepath.Join(b.dir, "ledger")
	st, err := openStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	l, err := ledger.Open(ctx, st.Store, dir, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	bare, err := os.Create(filepath.Join(b.dir, "bare"))
	if err != nil {
		return nil, err
	}
	defer bare.Close()

	n, rounds := b.count(100_000, 5_000), b.count(9, 3)
	event := agent.UsageEvent{
		Time: time.Now(), Kind: agent.UseCall, App: agent.DefaultApp, Agent: "some-agent", Function: "handle", Outcome: agent.Succeeded,
		Cost: agent.Cost{CPU: 123_456, Wall: 234_567, Memory: 1 << 20, In: 300, Out: 4000, HostCalls: 3, Fuel: 654_321},
	}
	for _, writers := range []int{1, 8} {
		var ours, theirs, rate []float64
		for range rounds {
			took, cpu, err := together(writers, n, func(int) error { return l.Append(event) })
			if err != nil {
				return nil, err
			}
			ours, rate = append(ours, cpu), append(rate, float64(n)/took)
			if err := l.Sync(); err != nil {
				return nil, err
			}
			record := make([]byte, usageRecord)
			_, cpu, err = together(writers, n, func(i int) error {
				_, err := bare.WriteAt(record, int64(i)*usageRecord)
				return err
			})
			if err != nil {
				return nil, err
			}
			theirs = append(theirs, cpu)
		}
		name := fmt.Sprintf("usage written down, %d writers", writers)
		if writers == 1 {
			name = "usage written down, 1 writer"
		}
		fs = append(fs, compare("U1", name+", CPU", Seconds, ours, theirs, "write(2)", Target{Bound: 3e-6, Value: true}),
			alone("U1", name, PerSecond, median(rate), Target{}))
	}
	return fs, nil
}

// checking is figure U2: quota checks of one agent of one app from 8 goroutines, each with the giving back.
func checking(_ context.Context, b *bench) ([]Figure, error) {
	k := quota.New(quota.Start{Day: time.Now()}, nil)
	q := agent.Quota{Cells: 1 << 40, CallsPerSecond: 1 << 40, CPUPerDay: 1 << 60, BytesPerDay: 1 << 60}
	c := quota.Call{App: agent.DefaultApp, Agent: "a", AppQuota: q, AgentQuota: q, Limits: agent.DefaultLimits(), In: 100}
	n := b.count(500_000, 20_000)
	var rate, cpu []float64
	for range b.count(9, 3) {
		took, each, err := together(8, n, func(int) error {
			h, err := k.Begin(c)
			if err == nil {
				h.Done(time.Now(), agent.Cost{CPU: 1000, In: 100, Out: 100})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		rate, cpu = append(rate, float64(n)/took), append(cpu, each)
	}
	return []Figure{
		alone("U2", "quota checks, 8 goroutines", PerSecond, median(rate), Target{Bound: 100_000, AtLeast: true, Value: true}),
		alone("U2", "quota check, CPU", Seconds, median(cpu), Target{}),
	}, nil
}

// together does something n times from some goroutines, and returns how long that took and the processor time of each, in
// seconds.
func together(workers, n int, do func(i int) error) (took, cpu float64, err error) {
	var all sync.WaitGroup
	failed := make(chan error, workers)
	began, start := time.Now(), processCPU()
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	took, cpu = time.Since(began).Seconds(), (processCPU()-start).Seconds()/float64(n)
	select {
	case err = <-failed:
	default:
	}
	return took, cpu, err
}
