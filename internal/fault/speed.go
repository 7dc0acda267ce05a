package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// speed measures commits of one event of 1 KB, by 1 and by 64 writers, five seconds each.
func speed(ctx context.Context, l *lab, t *tally) error {
	for _, n := range []int{1, 64} {
		dir := filepath.Join(l.dir, "data")
		rate, err := l.speed(ctx, dir, n)
		os.RemoveAll(dir)
		if err != nil {
			return err
		}
		l.logf("%s: %d writers: %.0f commits/s", l.engine, n, rate)
		(*t)["measurements"]++
	}
	return nil
}

func (l *lab) speed(ctx context.Context, dir string, n int) (rate float64, err error) {
	s, err := open(dir, l.engine, 0)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := s.close(); err == nil {
			err = cerr
		}
	}()
	if _, _, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: "a"}, store.Once{}); err != nil {
		return 0, err
	}
	logs := make([]store.Log, n)
	for i := range logs {
		se, _, err := s.CreateSession(ctx, agent.Session{App: app, Agent: "a"}, store.Once{})
		if err != nil {
			return 0, err
		}
		logs[i] = store.SessionLog(app, se.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for _, log := range logs {
		all.Go(func() {
			for ctx.Err() == nil {
				data := fmt.Appendf(nil, `"%01000d"`, done.Load())
				if _, err := s.Append(ctx, log, []agent.Event{{Kind: agent.EventEmit, Data: data}}); err == nil {
					done.Add(1)
				}
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), nil
}
