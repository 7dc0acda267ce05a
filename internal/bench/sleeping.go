//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	durable "github.com/skep-dev/skep/store/instance"
)

func makeInstance(ctx context.Context, st opened, id agent.AgentID, i int) error {
	in := durable.ID{App: agent.DefaultApp, Agent: id, Key: fmt.Sprint("k", i)}
	info, err := st.Instances().Acquire(ctx, in, durable.ID{})
	if err != nil {
		return err
	}
	_, err = st.Instances().Commit(ctx, in, info.Fence, &durable.Batch{
		ID: durable.NewBatchID(), State: []agent.StateEdit{{Act: agent.StateSet, Key: "n", Value: agent.JSON([]byte("0"))}},
	})
	return err
}

// inProcess is a runtime with the counter agent in this process, so that memory and moments can be told exactly.
type inProcess struct {
	*runtime.Runtime
	close func() error
}

func (b *bench) inProcess(ctx context.Context, dir, code string) (_ *inProcess, err error) {
	var closers []func() error
	undo := func() (err error) {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo())
		}
	}()
	st, err := openStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	closers = append(closers, st.close)
	p := &inProcess{}
	h, err := host.New(ctx, &host.Options{CacheDir: b.cache(), Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) { return p.LoadSource(ctx, d) }})
	if err != nil {
		return nil, err
	}
	closers = append(closers, func() error { return h.Close(context.WithoutCancel(ctx)) })
	p.Runtime = runtime.New(st.Store, h, nil)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	closers = append(closers, func() error { stop(); return <-ended })
	p.close = undo
	if _, _, err := p.PutPlugin(ctx, agent.DefaultApp, runtime.Upload{Name: counterName, Filename: "counter.ts", Body: []byte(code)}, store.Once{}, nil); err != nil {
		return nil, err
	}
	_, _, err = p.CreateAgent(ctx, agent.Agent{App: agent.DefaultApp, Name: counterName, Plugin: counterName}, store.Once{})
	return p, err
}

func (p *inProcess) call(ctx context.Context, key, method string) error {
	_, err := p.CallInstance(ctx, agent.DefaultApp, runtime.InstanceCall{Agent: counterName, Key: key, Function: method, Input: agent.JSON([]byte("null"))})
	return err
}

// forgotten is when an instance that nobody uses is no longer in memory.
const forgotten = 45 * time.Second

// sleeping is figure P5: what instances cost in memory that were called once and then left alone.
func sleeping(ctx context.Context, b *bench) (fs []Figure, err error) {
	n := b.count(10_000, 1_000)
	p, err := b.inProcess(ctx, filepath.Join(b.dir, "sleeping"), counterAgent)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	create := func(from, to int) error {
		_, _, err := together(16, to-from, func(i int) error { return p.call(ctx, fmt.Sprint("k", from+i), "add") })
		if err != nil {
			return err
		}
		select {
		case <-time.After(forgotten):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := create(0, n/2); err != nil { // what grows once, whatever is kept
		return nil, err
	}
	before, err := memoryNow()
	if err != nil {
		return nil, err
	}
	if err := create(n/2, n/2+n); err != nil {
		return nil, err
	}
	after, err := memoryNow()
	if err != nil {
		return nil, err
	}
	each := after.each(before, n)
	f := alone("P5", fmt.Sprintf("heap for each of %d sleeping instances, without a socket", n), Bytes, max(each.heap, 0), Target{Bound: 1024, Value: true})
	f.Note = fmt.Sprintf("private pages grew by %s each: buffers of the database, which have a bound, are among them", Bytes.format(each.private))
	theirs, err := b.sleepingObjects(ctx, n)
	if err != nil || theirs == nil {
		return []Figure{f}, err
	}
	return []Figure{f, compare("P5", "the same, private pages", Bytes, []float64{max(each.private, 1)}, theirs, objectsName, Target{})}, nil
}

// sleepingObjects returns the private memory of each of n Durable Objects that were called once; nil without the peer.
func (b *bench) sleepingObjects(ctx context.Context, n int) ([]float64, error) {
	s, err := b.objects(ctx, filepath.Join(b.dir, "sleeping-objects"))
	if err != nil || s == nil {
		return nil, err
	}
	defer s.stop()
	n = min(n, 1000) // they cost a file and some 200 kB each
	i := -1
	next := func() ask { i++; return theirCounter(i) }
	if _, err := s.drive(ctx, 4, n/2, next); err != nil {
		return nil, err
	}
	before, err := privateOf(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	if _, err := s.drive(ctx, 4, n, next); err != nil {
		return nil, err
	}
	select {
	case <-time.After(forgotten):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := privateOf(s.cmd.Process.Pid)
	return []float64{(after - before) / float64(n)}, err
}

// privateOf returns how much a process has that no other one does.
func privateOf(pid int) (sum float64, err error) {
	name := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	if _, err := os.Stat(name); err != nil {
		name = fmt.Sprintf("/proc/%d/smaps", pid)
	}
	err = eachField(name, func(_, field string, bytes float64) {
		if strings.HasPrefix(field, "Private_") && strings.HasSuffix(field, ":") {
			sum += bytes
		}
	})
	return sum, err
}

// tellingAgent emits one event at each call.
const tellingAgent = `import { Agent } from "skep";
export default class Teller extends Agent {
  async tell() { await this.emit("told", { text: "a line of what an agent says" }); return 1 }
}`

// listening is figure P11: from the beginning of a call until each of many listeners has the event that it emitted, over the same call with
// nobody listening, which is one commit. What is over is what listeners cost; a slow sync of the disk is on both sides.
func listening(ctx context.Context, b *bench) (fs []Figure, err error) {
	const listeners = 1000
	p, err := b.inProcess(ctx, filepath.Join(b.dir, "listening"), tellingAgent)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, key := range []string{"k", "alone"} {
		if err := p.call(ctx, key, "tell"); err != nil {
			return nil, err
		}
	}
	var (
		heard [listeners]time.Time
		left  atomic.Int64
		all   sync.WaitGroup
		every = make(chan struct{}, 1)
	)
	hearing, stop := context.WithCancel(ctx)
	defer func() { stop(); all.Wait() }()
	for i := range heard {
		sub, err := p.SubscribeInstance(ctx, agent.DefaultApp, counterName, "k", 2)
		if err != nil {
			return nil, err
		}
		ctx, done := context.WithCancel(hearing) // of its own, as each connection has
		all.Go(func() {
			defer sub.Close()
			defer done()
			for {
				if _, err := sub.Next(ctx); err != nil {
					return
				}
				heard[i] = time.Now()
				if left.Add(-1) == 0 {
					every <- struct{}{}
				}
			}
		})
	}
	var whole, after, bare []float64
	for i := range b.count(300, 50) {
		left.Store(listeners)
		began := time.Now()
		if err := p.call(ctx, "k", "tell"); err != nil {
			return nil, err
		}
		answered := time.Now()
		select {
		case <-every:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		again := time.Now()
		if err := p.call(ctx, "alone", "tell"); err != nil {
			return nil, err
		}
		if i <= 10 {
			continue
		}
		bare = append(bare, time.Since(again).Seconds())
		for _, at := range heard {
			whole = append(whole, at.Sub(began).Seconds())
			after = append(after, max(at.Sub(answered).Seconds(), 0))
		}
	}
	slowest := alone("P11", fmt.Sprintf("call to receipt, %d listeners, p99, over a call without", listeners), Seconds,
		max(percentile(whole, 99)-percentile(bare, 99), 0), Target{Bound: 1e-3, Value: true})
	slowest.Note = fmt.Sprintf("%s of %s", Seconds.format(percentile(whole, 99)), Seconds.format(percentile(bare, 99)))
	return []Figure{
		slowest,
		alone("P11", fmt.Sprintf("answer to receipt, %d listeners, p50", listeners), Seconds, percentile(after, 50), Target{}),
		alone("P11", fmt.Sprintf("answer to receipt, %d listeners, p99", listeners), Seconds, percentile(after, 99), Target{}),
	}, nil
}
