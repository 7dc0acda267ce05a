package keeper

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// poolFor is how long boxes are kept ready for an environment that nobody asks for.
const poolFor = time.Hour

// pools are boxes that were made for cattle before anybody has asked for them. One gets its identity when it is taken: until it is given what it boots with, a
// box is the same, whoever it is for, and does nothing.
type pools struct {
	mu    sync.Mutex
	by    map[poolName]*pool
	known bool          // by has the boxes that there were at the start
	wake  chan struct{} // holds one when boxes were taken
}

// poolName is an app and a revision of an environment.
type poolName struct {
	app agent.App
	env string
}

type pool struct {
	ready  []agent.SandboxID
	asked  time.Time
	failed int       // in a row
	after  time.Time // nothing is made before it
}

// take gives w a box of the pool, if there is one.
func (k *Keeper) take(ctx context.Context, w *Want) (rec agent.SandboxRecord, ok bool, err error) {
	if k.o.Pool <= 0 {
		return rec, false, nil
	}
	name := poolName{w.App, w.Environment.Ref()}
	defer k.pools.poke()
	for {
		id := k.pools.pop(name, k.now())
		if id == "" {
			return rec, false, nil
		}
		rec, err := k.change(ctx, id, 0, func(rec *agent.SandboxRecord) error {
			if !rec.Pool || rec.State != agent.SandboxWanted || rec.Created.Before(w.Environment.Created) {
				return fenced(&rec.Sandbox)
			}
			k.give(rec, w)
			return nil
		})
		switch agent.KindOf(err) {
		case agent.NotFound, agent.Conflict:
			continue
		}
		return rec, err == nil, err
	}
}

func (s *pools) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// of returns the pool of that name; mu is held.
func (s *pools) of(name poolName, now time.Time) *pool {
	if s.by == nil {
		s.by = map[poolName]*pool{}
	}
	if s.by[name] == nil {
		s.by[name] = &pool{asked: now}
	}
	return s.by[name]
}

// pop takes a box out of the pool, and remembers that it was asked for one.
func (s *pools) pop(name poolName, now time.Time) agent.SandboxID {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(name, now)
	p.asked = now
	if len(p.ready) == 0 {
		return ""
	}
	id := p.ready[0]
	p.ready = p.ready[1:]
	return id
}

// forget takes a box that is of no use out of its pool, which there is from then on.
func (s *pools) forget(name poolName, id agent.SandboxID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(name, now)
	p.ready = slices.DeleteFunc(p.ready, func(other agent.SandboxID) bool { return other == id })
	s.poke()
}

// pooled tells the pools of the boxes that there are. One that was taken meanwhile is found out when it is to be taken again.
func (k *Keeper) pooled(recs []agent.SandboxRecord) {
	k.pools.mu.Lock()
	defer k.pools.mu.Unlock()
	k.pools.known = true
	for i := range recs {
		if rec := &recs[i]; rec.Pool && rec.State == agent.SandboxWanted && rec.Handle != "" {
			p := k.pools.of(poolName{rec.App, rec.Environment}, k.now())
			if !slices.Contains(p.ready, rec.ID) {
				p.ready = append(p.ready, rec.ID)
			}
		}
	}
	k.pools.poke()
}

// refills keeps the pools full until ctx has ended. It makes boxes one after the other, so that those that somebody waits for have room.
func (k *Keeper) refills(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.pools.wake:
		}
		for ctx.Err() == nil && k.refill(ctx) {
		}
	}
}

// refill does one thing that is to be done for the pools. It returns false when there is none.
func (k *Keeper) refill(ctx context.Context) bool {
	for name, p := range k.pools.all() {
		err := k.current(ctx, name, &p)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			k.log.Info("boxes of a pool are deleted", "app", name.app, "environment", name.env, "why", err)
			k.drain(ctx, name)
			return true
		case len(p.ready) >= k.o.Pool>>min(p.failed, 8) || k.now().Before(p.after):
			continue
		}
		err = k.makePooled(ctx, name)
		k.pools.tell(name, err, k.now())
		if err != nil {
			k.log.Warn("a box of a pool was not made", "app", name.app, "environment", name.env, "error", err)
		}
		return true
	}
	return false
}

// all returns a copy of what there is, once that is known.
func (s *pools) all() map[poolName]pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return nil
	}
	out := make(map[poolName]pool, len(s.by))
	for name, p := range s.by {
		out[name] = *p
	}
	return out
}

// tell says how it went to make a box. After each failure in a row fewer are kept, and made later.
func (s *pools) tell(name poolName, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(name, now)
	if err == nil {
		p.failed = 0
		return
	}
	p.failed++
	p.after = now.Add(time.Second << min(p.failed, 9))
}

// current returns why no boxes are to be kept ready any more: nobody asks for them, or the environment has gone, or has another revision.
func (k *Keeper) current(ctx context.Context, name poolName, p *pool) error {
	if k.o.Pool <= 0 || k.now().Sub(p.asked) >= poolFor {
		return fmt.Errorf("nobody has asked for one for %s", poolFor)
	}
	base, _, _ := strings.Cut(name.env, "@")
	env, err := k.o.Records.Environment(ctx, name.app, base)
	switch {
	case agent.KindOf(err) == agent.NotFound:
		return err
	case err != nil:
		return nil // it will be known later
	case env.Ref() != name.env:
		return fmt.Errorf("the environment is at revision %d", env.Revision)
	}
	return nil
}

// drain deletes the boxes of a pool, and forgets it.
func (k *Keeper) drain(ctx context.Context, name poolName) {
	k.pools.mu.Lock()
	p := k.pools.by[name]
	delete(k.pools.by, name)
	k.pools.mu.Unlock()
	if p == nil {
		return
	}
	for _, id := range p.ready {
		k.unpool(ctx, id)
	}
}

// unpool deletes a box that nobody has taken.
func (k *Keeper) unpool(ctx context.Context, id agent.SandboxID) {
	_, err := k.change(ctx, id, 0, func(rec *agent.SandboxRecord) error {
		if !rec.Pool {
			return fenced(&rec.Sandbox)
		}
		rec.State = agent.SandboxDeleting
		return nil
	})
	if err == nil {
		k.poke(id)
	}
}

// makePooled makes a box for a pool.
func (k *Keeper) makePooled(ctx context.Context, name poolName) error {
	env, err := k.o.Records.Environment(ctx, name.app, name.env)
	if err != nil {
		return err
	}
	p, err := k.admit(ctx, &env, agent.Cattle, env.Provider)
	if err != nil {
		return err
	}
	rec := k.newRecord(&env, p.Name())
	rec.Pool = true
	done, err := k.boxes.wait(ctx, string(rec.ID))
	if err != nil {
		return err
	}
	defer done()
	if err := k.put(ctx, rec, k.o.Most/2); err != nil { // what is asked for has room
		return err
	}
	h, err := k.createPooled(ctx, p, &rec)
	if err != nil {
		k.unpool(context.WithoutCancel(ctx), rec.ID)
		return err
	}
	if _, err = k.step(ctx, &rec, agent.SandboxWanted, func(rec *agent.SandboxRecord) { rec.Handle = string(h) }); err != nil {
		return err
	}
	k.pools.mu.Lock()
	defer k.pools.mu.Unlock()
	own := k.pools.of(name, k.now())
	own.ready = append(own.ready, rec.ID)
	return nil
}

func (k *Keeper) createPooled(ctx context.Context, p sandbox.Provider, rec *agent.SandboxRecord) (sandbox.Handle, error) {
	free, err := k.slot(ctx)
	if err != nil {
		return "", err
	}
	defer free()
	h, err := k.create(ctx, p, rec)
	if err == nil {
		err = warm(ctx, p, h)
	}
	return h, err
}

// warm has the driver of a box of a pool run and wait for its payload, where the provider can: that is most of what a start takes.
func warm(ctx context.Context, p sandbox.Provider, h sandbox.Handle) error {
	w, ok := p.(sandbox.Warmer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	return w.Warm(ctx, h)
}
