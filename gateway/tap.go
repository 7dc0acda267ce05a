package gateway

import (
	"context"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// maxTapped is how many calls a Tap keeps that nobody has read yet.
const maxTapped = 32

// Tap is told of the calls to a provider, with the provider's keys taken out.
type Tap struct {
	g        *Gateway
	app      agent.App
	provider string
	c        chan Exchange
	missed   atomic.Int64
}

// Tap begins to watch the calls to a provider that begin from now on. Close it.
func (g *Gateway) Tap(app agent.App, provider string) *Tap {
	t := &Tap{g: g, app: app, provider: provider, c: make(chan Exchange, maxTapped)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taps[t] = true
	g.tapped.Store(int64(len(g.taps)))
	return t
}

// Next waits for a call to end.
func (t *Tap) Next(ctx context.Context) (Exchange, error) {
	select {
	case e := <-t.c:
		return e, nil
	case <-ctx.Done():
		return Exchange{}, ctx.Err()
	}
}

// Missed is how many calls were not told, since those before them were not read.
func (t *Tap) Missed() int64 { return t.missed.Load() }

// Close ends the watching. It may be called twice.
func (t *Tap) Close() {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	delete(t.g.taps, t)
	t.g.tapped.Store(int64(len(t.g.taps)))
}

// watched reports whether somebody wants to be told of a call to a provider.
func (g *Gateway) watched(app agent.App, provider string) bool {
	if g.tapped.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.taps {
		if t.app == app && t.provider == provider {
			return true
		}
	}
	return false
}

// tell tells of a call.
func (g *Gateway) tell(e Exchange) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.taps {
		if t.app != e.App || t.provider != e.Provider {
			continue
		}
		select {
		case t.c <- e:
		default:
			t.missed.Add(1)
		}
	}
}

// Codecs are the protocols that are spoken.
func (g *Gateway) Codecs() []wire.Codec { return g.o.Codecs }
