//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/cell"
)

// liveMemory is figure P4: what one more live cell takes, after one call in it.
func liveMemory(ctx context.Context, b *bench) ([]Figure, error) {
	guests, err := b.guests(ctx, 16)
	if err != nil {
		return nil, err
	}
	n := b.count(300, 100)
	var fs []Figure
	for _, s := range guests {
		ours, err := b.liveCells(ctx, s, n)
		if err != nil {
			return nil, err
		}
		theirs, err := b.liveBare(ctx, s, n)
		if err != nil {
			return nil, err
		}
		fs = append(fs, memoryFigure(s.name, ours, theirs, 150_000))
	}
	ours, err := b.liveScripts(ctx, n)
	if err != nil {
		return nil, err
	}
	f := alone("P4", "memory of a live cell, script agent", Bytes, ours.private, Target{Bound: 400_000, Value: true})
	f.Note = ours.String()
	return append(fs, f), nil
}

func memoryFigure(name string, ours, theirs memory, most float64) Figure {
	f := compare("P4", "memory of a live cell, "+name, Bytes, []float64{ours.private}, []float64{theirs.private}, prototype,
		Target{Bound: most, Value: true})
	f.Note = ours.String()
	return f
}

func (b *bench) liveCells(ctx context.Context, s subject, n int) (memory, error) {
	e, err := b.engine(ctx, -1)
	if err != nil {
		return memory{}, err
	}
	defer func() { _ = e.Close(ctx) }()
	img, call, err := s.image(ctx, e)
	if err != nil {
		return memory{}, err
	}
	defer func() { _ = img.Close() }()
	return grown(n, func() (func(), error) {
		c, err := img.Cell(ctx, cell.Env{Tenant: "bench"})
		if err != nil {
			return nil, err
		}
		return c.Close, call(c)
	})
}

func (b *bench) liveBare(ctx context.Context, s subject, n int) (memory, error) {
	e, err := b.bareEngine(ctx)
	if err != nil {
		return memory{}, err
	}
	img, call, err := s.bareImage(ctx, e)
	if err != nil {
		return memory{}, err
	}
	defer func() { _ = img.Close() }()
	return grown(n, func() (func(), error) {
		x, err := img.Fresh(ctx)
		if err != nil {
			return nil, err
		}
		return func() { _ = x.Close() }, call(x)
	})
}

// grown measures what each of n live things takes.
func grown(n int, open func() (func(), error)) (memory, error) {
	var live []func()
	defer func() {
		for _, free := range live {
			free()
		}
	}()
	add := func() error {
		free, err := open()
		if free != nil {
			live = append(live, free)
		}
		return err
	}
	if err := add(); err != nil { // what only the first one takes
		return memory{}, err
	}
	before, err := memoryNow()
	if err != nil {
		return memory{}, err
	}
	for range n {
		if err := add(); err != nil {
			return memory{}, err
		}
	}
	after, err := memoryNow()
	return after.each(before, n), err
}

const waiting = `import { callAgent } from "skep";
export async function hold(input) { return await callAgent("other", "f", input) }`

// liveScripts measures script agents that wait for their host in the middle of a call, through the whole of package host.
func (b *bench) liveScripts(ctx context.Context, n int) (memory, error) {
	src := agent.Source{Kind: agent.Script, Main: "hold.js", Files: map[string][]byte{"hold.js": []byte(waiting)}}
	h, err := host.New(ctx, &host.Options{
		CacheDir: b.cache(), Cells: n + 1, Load: func(context.Context, agent.Digest) (agent.Source, error) { return src, nil },
	})
	if err != nil {
		return memory{}, err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	ctx, release := context.WithCancel(ctx)
	held := make(chan struct{})
	failed := make(chan error, n+1)
	var all sync.WaitGroup
	defer all.Wait()
	defer release()
	return grown(n, func() (func(), error) {
		all.Go(func() {
			_, err := h.Call(ctx, host.Call{
				Plugin: "hold", Tenant: "bench", Function: "hold", Input: agent.JSON([]byte(`{"n":1}`)),
				Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
					held <- struct{}{}
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})
			failed <- err
		})
		select {
		case <-held:
			return func() {}, nil
		case err := <-failed:
			return nil, fmt.Errorf("a script that should wait ended: %w", err)
		}
	})
}
