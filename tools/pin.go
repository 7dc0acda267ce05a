package tools

import (
	"context"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// A record pins each tool by its digest, as it was when a person last looked. A server with more than maxPins is pinned as a whole, under pinAll.
const (
	maxPins = 1000
	pinAll  = "*"
)

// pinned reports whether tools of such a server are pinned: those that a stranger can change. What an agent of the app offers changes with its
// plugin, and a document of an API with its record.
func pinned(k agent.ServerKind) bool {
	return k == agent.MCPStdio || k == agent.MCPHTTP || k == agent.MCPSSE
}

func listDigest(offers []offer) agent.Digest {
	var b strings.Builder
	for _, o := range offers {
		if !o.Own {
			b.WriteString(string(o.digest))
		}
	}
	return agent.DigestOf([]byte(b.String()))
}

// changedSince reports whether a tool is another than when it was pinned. One that is new on a server that is pinned is, too.
func changedSince(s agent.ToolServer, o offer, whole agent.Digest) bool {
	if !pinned(s.Kind) || len(s.Pins) == 0 || o.Own && s.Pins[o.Method] == "" {
		return false
	}
	if d, ok := s.Pins[pinAll]; ok && s.Pins[o.Method] == "" {
		return d != whole
	}
	return s.Pins[o.Method] != o.digest
}

// pin pins the methods that are named, or all when none are.
func (e *entry) pin(s *agent.ToolServer, methods ...string) {
	if !pinned(s.Kind) {
		return
	}
	now := e.digests()
	if s.Pins == nil {
		s.Pins = map[string]agent.Digest{}
	}
	if len(methods) == 0 {
		if len(now) > maxPins {
			e.mu.Lock()
			s.Pins = map[string]agent.Digest{pinAll: listDigest(e.offers)}
			e.mu.Unlock()
			return
		}
		s.Pins = now
		return
	}
	for _, m := range methods {
		if d, ok := now[m]; ok {
			s.Pins[m] = d
		}
	}
}

// pinFirst pins what a server offers when it is first listed.
func (c *Catalogue) pinFirst(ctx context.Context, s agent.ToolServer, e *entry) (agent.ToolServer, error) {
	if !pinned(s.Kind) || len(s.Pins) > 0 || len(e.digests()) == 0 {
		return s, nil
	}
	now, err := c.change(ctx, s.App, s.Name, func(s *agent.ToolServer) error {
		if len(s.Pins) == 0 {
			e.pin(s)
		}
		return nil
	})
	if agent.KindOf(err) == agent.NotFound { // deleted meanwhile
		return s, nil
	}
	return now, err
}

// change reads a record, has it changed and writes it, again when somebody else was faster.
func (c *Catalogue) change(ctx context.Context, app agent.App, name string, edit func(*agent.ToolServer) error) (agent.ToolServer, error) {
	for {
		s, err := c.stored(ctx, app, name)
		if err != nil {
			return agent.ToolServer{}, err
		}
		if err := edit(&s); err != nil {
			return agent.ToolServer{}, err
		}
		s.Updated = now()
		rev, err := c.store.PutDoc(ctx, store.ToolServers, app, name, s.Rev, s)
		if err == nil {
			s.Rev = rev
			c.changes.tell(app)
			return s, nil
		}
		if agent.KindOf(err) != agent.Conflict {
			return agent.ToolServer{}, err
		}
		if err := ctx.Err(); err != nil {
			return agent.ToolServer{}, err
		}
	}
}
