//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

const objectsName = "workerd Durable Objects"

// counterAgent reads and writes its state at each call, as the peer's does.
const counterAgent = `import { Agent } from "skep";
export default class Counter extends Agent {
  async add() {
    const n = ((await this.storage.get("n")) ?? 0) + 1;
    await this.storage.set("n", n);
    return { n };
  }
  async get() {
    return { n: (await this.storage.get("n")) ?? 0 };
  }
}`

const counterName = "counter"

// counters starts skep serve with the counter agent.
func (b *bench) counters(ctx context.Context, data string, flags ...string) (*server, error) {
	s, err := b.startSkep(ctx, data, flags...)
	if err != nil {
		return nil, err
	}
	c := client.New("http://"+s.addr, s.token, nil)
	if _, err := c.Agent(ctx, counterName); err == nil {
		return s, nil
	}
	_, err = c.PutPlugin(ctx, client.Upload{Name: counterName, Version: "1.0.0", Filename: "counter.ts", Body: []byte(counterAgent)}, nil)
	if err == nil {
		_, err = c.CreateAgent(ctx, client.NewAgent{Name: counterName, Plugin: counterName})
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("make the counter: %w", err)
	}
	return s, nil
}

// objects starts workerd with Durable Objects that keep their data in dir. When it cannot be had here it returns nil.
func (b *bench) objects(ctx context.Context, dir string) (*server, error) {
	program := b.peerProgram(ctx)
	if program == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return b.startPeer(ctx, program, filepath.Join(b.root, "internal/bench/peer/durable.capnp"), "objects.log", "--directory-path", "storage="+dir)
}

// counterAsk asks one of so many counters, by chance or one after the other.
func counterAsk(path string) ask {
	return ask{path: path, contentType: "application/json", body: []byte("null"), want: `"n":`}
}

func ourCounter(method string, i int) ask {
	return counterAsk(fmt.Sprintf("/v1/agents/%s/instances/k%d/call/%s", counterName, i, method))
}

func theirCounter(i int) ask { return counterAsk(fmt.Sprintf("/k%d", i)) }

func anyOf(n int, one func(int) ask) func() ask {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	return func() ask { return one(rng.IntN(n)) }
}

// durableCalls is figure P10: calls that read and write their instance's state, which is durable when they are answered.
func durableCalls(ctx context.Context, b *bench) ([]Figure, error) {
	s, err := b.counters(ctx, filepath.Join(b.dir, "counters"), "--isolation", "inline")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	peer, err := b.objects(ctx, filepath.Join(b.dir, "objects"))
	if err != nil {
		return nil, err
	}
	defer peer.stop()
	ours := &side{server: s, next: anyOf(1, func(i int) ask { return ourCounter("add", i) })}
	reads := &side{server: s, next: anyOf(1, func(i int) ask { return ourCounter("get", i) })}
	theirs := &side{server: peer, next: anyOf(1, theirCounter)}
	one := plan{rounds: b.count(12, 3), sequential: b.count(200, 60), callers: 1, many: b.count(200, 60)}
	if err := duel(ctx, one, ours, reads, theirs); err != nil {
		return nil, err
	}
	syncs, err := b.syncs(b.count(600, 100))
	if err != nil {
		return nil, err
	}
	alone1 := compare("P10", "durable read and write, 1 caller, p50", Seconds, ours.p50, theirs.p50, objectsName, Target{Bound: 1})
	alone1.Note = ours.costs("ours") + "; " + theirs.costs(objectsName)
	over := make([]float64, len(ours.p50))
	for i := range over {
		over[i] = ours.p50[i] - reads.p50[i]
	}
	sync := make([]float64, len(over))
	for i := range sync {
		sync[i] = median(syncs)
	}
	fs := []Figure{
		alone1,
		compare("P10", "of that, over a call that only reads", Seconds, over, sync, "fsync of 4 kB", Target{Bound: 1.5}),
	}
	const many = 100
	ours = &side{server: s, next: anyOf(many, func(i int) ask { return ourCounter("add", i) })}
	theirs = &side{server: peer, next: anyOf(many, theirCounter)}
	all := plan{rounds: b.count(12, 3), sequential: 20, callers: 64, many: b.count(4000, 1500)}
	if err := duel(ctx, all, ours, theirs); err != nil {
		return nil, err
	}
	rate := compare("P10", "durable reads and writes, 64 callers, 100 instances", PerSecond, ours.rate, theirs.rate, objectsName, Target{Bound: 3, AtLeast: true})
	rate.Note = ours.costs("ours") + "; " + theirs.costs(objectsName)
	return append(fs, rate), nil
}

// syncs measures how long it takes to write 4 kB and have them on the disk.
func (b *bench) syncs(n int) (took []float64, err error) {
	f, err := os.Create(filepath.Join(b.dir, "syncs"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	page := make([]byte, 4096)
	for range n {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start).Seconds())
	}
	return took, nil
}

// waking is figure P6: the first call of an instance since the server was started.
func waking(ctx context.Context, b *bench) ([]Figure, error) {
	n, rounds := b.count(200, 60), b.count(9, 3)
	data, files := filepath.Join(b.dir, "waking"), filepath.Join(b.dir, "waking-objects")
	var ours, theirs []float64
	for round := range rounds + 1 { // the first makes them
		took, err := b.firstCalls(ctx, n, func() (*server, error) { return b.counters(ctx, data, "--isolation", "inline") },
			func(i int) ask { return ourCounter("add", i) })
		if err != nil {
			return nil, err
		}
		other, err := b.firstCalls(ctx, n, func() (*server, error) { return b.objects(ctx, files) }, theirCounter)
		if err != nil {
			return nil, err
		}
		if round > 0 {
			ours, theirs = append(ours, took), append(theirs, other)
		}
	}
	f := compare("P6", "sleeping instance to its first result, p50", Seconds, ours, theirs, objectsName, Target{Bound: 1})
	f.Note = "each call reads, writes and is durable, on both sides"
	return []Figure{f}, nil
}

// firstCalls starts a server and calls each counter once; the median is of all but those that warm the server itself.
func (b *bench) firstCalls(ctx context.Context, n int, start func() (*server, error), one func(int) ask) (float64, error) {
	s, err := start()
	if err != nil {
		return 0, err
	}
	if s == nil {
		return math.NaN(), nil
	}
	defer s.stop()
	i := -1
	next := func() ask { i++; return one(i) }
	if _, err := s.drive(ctx, 1, 20, next); err != nil {
		return 0, err
	}
	l, err := s.drive(ctx, 1, n, next)
	return median(l.took), err
}

// besideInstances calls one instance of so many that are stored; part of P19.
func (b *bench) besideInstances(ctx context.Context, ns []int) ([]Figure, error) {
	var sides []*side
	for _, n := range ns {
		dir := filepath.Join(b.dir, fmt.Sprintf("instances-%d", n))
		s, err := b.counters(ctx, dir)
		if err != nil {
			return nil, err
		}
		s.stop() // the agent is there now
		if err := makeInstances(ctx, dir, n); err != nil {
			return nil, err
		}
		if s, err = b.counters(ctx, dir, "--isolation", "inline"); err != nil {
			return nil, err
		}
		defer s.stop()
		sides = append(sides, &side{server: s, next: anyOf(ns[0], func(i int) ask { return ourCounter("add", i) })})
	}
	return b.callRows(ctx, fmt.Sprintf("durable call of one of %d instances beside", ns[0]), ns, sides)
}

// makeInstances makes counters in a data directory that no server has open.
func makeInstances(ctx context.Context, dir string, n int) (err error) {
	st, err := openStore(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	a, err := st.Agent(ctx, agent.DefaultApp, counterName)
	if err != nil {
		return err
	}
	_, _, err = together(256, n, func(i int) error { return makeInstance(ctx, st, a.ID, i) })
	return err
}
