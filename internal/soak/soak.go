package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	neighbours = 9
	hostileApp = "hostile"
	killEvery  = 3 * time.Second // on average
)

// soak drives the apps and says what came of it.
func (k *skep) soak(ctx context.Context, s settings) (Report, error) {
	rec := newRecord()
	var apps []*neighbour
	for n := range neighbours {
		a := &neighbour{skep: k, rec: rec, app: agent.App(fmt.Sprintf("app-%d", n)), rnd: rand.New(rand.NewPCG(1, uint64(n)))}
		if err := a.prepare(ctx); err != nil {
			return Report{}, fmt.Errorf("prepare %s: %w", a.app, err)
		}
		apps = append(apps, a)
	}
	h := &hostile{skep: k, rec: rec, attacks: map[string]int{}}
	if err := h.prepare(ctx); err != nil {
		return Report{}, fmt.Errorf("prepare the hostile app: %w", err)
	}
	before := settle()

	busy, stop := context.WithTimeout(ctx, s.length)
	defer stop()
	var load, rest sync.WaitGroup
	for _, a := range apps {
		load.Go(func() { a.run(busy) })
	}
	rest.Go(func() { rec.watch(busy) })
	rest.Go(func() { rec.watchStill(busy) })
	if s.kill {
		rest.Go(func() { k.killWorkers(busy, rec) })
	}
	select {
	case <-time.After(s.quiet):
	case <-busy.Done():
	}
	rec.setPhase(loaded)
	rest.Go(func() { h.run(busy, s.attack) })
	load.Wait()
	rest.Wait()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	after := settle()
	return rec.report(s, h.attacks, before, after), nil
}

// killWorkers kills a worker at a time, whichever it is.
func (k *skep) killWorkers(ctx context.Context, rec *record) {
	for {
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(2 * killEvery)))):
		case <-ctx.Done():
			return
		}
		if ws := k.pool.Workers(); len(ws) > 0 {
			w := ws[rand.IntN(len(ws))]
			rec.killed(w.App)
			_ = syscall.Kill(w.PID, syscall.SIGKILL)
		}
	}
}

// holdings are what a process has that must be given back.
type holdings struct {
	Goroutines int `json:"goroutines"`
	Files      int `json:"files"`
}

// settle waits until as little is held as will be, for a few seconds at most.
func settle() (least holdings) {
	least = holdings{1 << 30, 1 << 30}
	for same := 0; same < 20; same++ {
		runtime.GC()
		debug.FreeOSMemory()
		now := holdings{runtime.NumGoroutine(), openFiles()}
		if now.Goroutines < least.Goroutines || now.Files < least.Files {
			least, same = holdings{min(now.Goroutines, least.Goroutines), min(now.Files, least.Files)}, 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return least
}
