//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/engine"
)

// opened is a store of this process.
type opened struct {
	*store.Store
	close func() error
}

func openStore(ctx context.Context, dir string) (opened, error) {
	db, err := engine.Open(dir, engine.Badger, nil)
	if err != nil {
		return opened{}, err
	}
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return opened{}, errors.Join(err, db.Close())
	}
	return opened{st, func() error { return errors.Join(st.Close(), db.Close()) }}, nil
}

// storeOf returns a data directory with n agents of the plugin bench, made once in a run.
func (b *bench) storeOf(ctx context.Context, n int) (dir string, err error) {
	if dir, ok := b.stores[n]; ok {
		return dir, nil
	}
	dir = filepath.Join(b.dir, fmt.Sprintf("agents-%d", n))
	st, err := openStore(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	const callers = 1024 // transactions of many callers share a commit
	work, ctx := errgroup.WithContext(ctx)
	for first := range callers {
		work.Go(func() error {
			for i := first; i < n; i += callers {
				if _, _, err := st.CreateAgent(ctx, agent.Agent{App: agent.DefaultApp, Name: agentName(i), Plugin: "bench"}, store.Once{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return "", fmt.Errorf("make a store of %d agents: %w", n, err)
	}
	b.stores[n] = dir
	return dir, nil
}

func agentName(i int) string { return fmt.Sprintf("agent-%d", i) }

// sessionOf makes a session of an agent that is there, with n events.
func sessionOf(ctx context.Context, st opened, n int) (store.Log, error) {
	se, _, err := st.CreateSession(ctx, agent.Session{App: agent.DefaultApp, Agent: agentName(0)}, store.Once{})
	if err != nil {
		return store.Log{}, err
	}
	log := store.SessionLog(se.App, se.ID)
	for left := n; left > 0; left -= store.MaxAppend {
		if _, err := st.Append(ctx, log, someEvents(min(left, store.MaxAppend))); err != nil {
			return store.Log{}, err
		}
	}
	return log, nil
}

func someEvents(n int) []agent.Event {
	es := make([]agent.Event, n)
	for i := range es {
		es[i] = agent.Event{Kind: agent.EventEmit, Name: "bench", Data: []byte(`{"step":1,"text":"a line of what an agent says"}`)}
	}
	return es
}
