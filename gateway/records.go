package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// FromStore reads the records of apps from a store.
func FromStore(st *store.Store) Records { return &stored{st: st} }

type stored struct {
	st *store.Store

	mu      sync.Mutex
	version int64 // of the store, of which the stamps are
	stamps  map[agent.App]Stamp
}

func (s *stored) Stamp(ctx context.Context, app agent.App) (Stamp, error) {
	version := s.st.ModelsVersion()
	s.mu.Lock()
	known, ok := s.stamps[app]
	ok = ok && s.version == version
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	out, err := s.stamp(ctx, app)
	if err != nil {
		return out, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.version > version:
		return out, nil
	case s.version < version || s.stamps == nil || len(s.stamps) >= maxBooks:
		s.version, s.stamps = version, map[agent.App]Stamp{}
	}
	s.stamps[app] = out
	return out, nil
}

func (s *stored) stamp(ctx context.Context, app agent.App) (out Stamp, err error) {
	if app != agent.DefaultApp { // one of the same name may have been made anew
		info, err := s.st.App(ctx, app)
		if err != nil {
			return out, err
		}
		out.App = info.Created.UnixNano()
	}
	if out.Providers, err = s.st.DocsRev(ctx, store.Providers, app); err != nil {
		return out, err
	}
	if out.Routes, err = s.st.DocsRev(ctx, store.ModelRoutes, app); err != nil {
		return out, err
	}
	out.Guards, err = s.st.DocsRev(ctx, store.Guardrails, app)
	return out, err
}

func (s *stored) Guardrails(ctx context.Context, app agent.App) ([]agent.Guardrail, error) {
	return docs(ctx, s.st, store.Guardrails, app, func(g *agent.Guardrail, rev int64) { g.App, g.Revision = app, rev })
}

func (s *stored) Read(ctx context.Context, app agent.App) ([]agent.Provider, []agent.ModelRoute, error) {
	providers, err := docs(ctx, s.st, store.Providers, app, func(p *agent.Provider, rev int64) { p.App, p.Revision = app, rev })
	if err != nil {
		return nil, nil, err
	}
	routes, err := docs(ctx, s.st, store.ModelRoutes, app, func(r *agent.ModelRoute, rev int64) { r.App, r.Revision = app, rev })
	return providers, routes, err
}

func docs[T any](ctx context.Context, st *store.Store, space store.Docs, app agent.App, fix func(*T, int64)) ([]T, error) {
	var list []T
	page := agent.Page{Limit: agent.MaxPage}
	for {
		next, err := st.Docs(ctx, space, app, "", page, func(name string, rev int64, data []byte) error {
			var v T
			if err := json.Unmarshal(data, &v); err != nil {
				return fmt.Errorf("read %s %q: %w", space, name, err)
			}
			fix(&v, rev)
			list = append(list, v)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if page.After = next; next == "" {
			return list, nil
		}
	}
}
