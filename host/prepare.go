package host

import (
	"context"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/host/fair"
)

// Who asks for something, by which what is short is shared.
type Who = fair.Who

// Prepare checks and compiles code, runs its initialisers once and keeps the image. progress may be nil. As much code is
// prepared at once as there are processors; the rest waits in a queue that is shared by app.
func (h *Host) Prepare(ctx context.Context, who Who, src agent.Source, progress func(Progress)) (Prepared, error) {
	if progress == nil {
		progress = func(Progress) {}
	}
	e, err := h.prepare(ctx, who, src, progress)
	if err != nil {
		return Prepared{}, err
	}
	defer h.images.release(e)
	return Prepared{Exports: e.guest.Exports(), Fetch: e.guest.HasFetch()}, nil
}

// Compile checks and compiles code, and runs nothing of it. It is for those who want what it costs at another time, and what
// it writes to CacheDir written under other rights, than what Prepare does then.
func (h *Host) Compile(ctx context.Context, src agent.Source) error {
	switch src.Kind {
	case agent.Wasm:
		return extism.Compile(ctx, h.cells, src.Files[src.Main])
	case agent.Python:
		_, err := h.pythons.engine(ctx, h.cells)
		return err
	default:
		return nil
	}
}

// loadings are the loadings that are waited for, by app and code.
type loadings struct {
	mu  sync.Mutex
	all map[loadingKey]*loading
}

type loadingKey struct {
	app agent.App
	key key
}

// loading is one. done is closed when err is set, which is nil when it is worth while to look for the guest again.
type loading struct {
	done chan struct{}
	err  error
}

// prepare returns the guest of some code, loading it if need be. Release it. Callers of one app that want the same code
// wait for one place together; another app's wait for one of their own, lest they wait in the queue of an app that floods.
func (h *Host) prepare(ctx context.Context, who Who, src agent.Source, progress func(Progress)) (*entry, error) {
	k := loadingKey{who.App, keyOf(src)}
	for {
		if e := h.images.byKey(k.key); e != nil {
			return e, nil
		}
		l, first := h.loadings.join(k)
		if first {
			e, err := h.placed(ctx, who, func() (*entry, error) {
				return h.images.get(ctx, k.key, func(ctx context.Context) (guest, error) { return h.loadFor(ctx, who, src, progress) })
			})
			h.loadings.end(k, l, err)
			return e, err
		}
		select {
		case <-l.done:
			if l.err != nil {
				return nil, l.err
			}
		case <-ctx.Done():
			return nil, agent.Wrap(agent.Cancelled, context.Cause(ctx), "cancelled while the code was being prepared")
		}
	}
}

func (h *Host) placed(ctx context.Context, who Who, fn func() (*entry, error)) (*entry, error) {
	leave, err := h.preparing.Enter(ctx, who)
	if err != nil {
		return nil, err
	}
	defer leave()
	return fn()
}

// join returns the loading of some code, and whether the caller is the first and has to see to it.
func (ls *loadings) join(k loadingKey) (l *loading, first bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l = ls.all[k]; l != nil {
		return l, false
	}
	l = &loading{done: make(chan struct{})}
	if ls.all == nil {
		ls.all = map[loadingKey]*loading{}
	}
	ls.all[k] = l
	return l, true
}

// end tells the others. That the first one has left is no reason for them to.
func (ls *loadings) end(k loadingKey, l *loading, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.all, k)
	if agent.KindOf(err) != agent.Cancelled {
		l.err = err
	}
	close(l.done)
}
