package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

const (
	maxPages = 1000 // of one list
	maxNotes = 20   // that are kept of one list
)

// Tools is tools.Source's.
func (s *source) Tools(ctx context.Context) ([]tools.Offer, error) {
	k, err := s.keeper(ctx, "")
	if err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		l, release, err := k.use(ctx)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, s.timeout(), agent.Errorf(agent.Unavailable, "server %s did not list its tools within %s", s.rec.Name, s.timeout()))
		offers, notes, err := l.list(ctx)
		if err != nil {
			err = l.listError(ctx, err)
		}
		cancel()
		release()
		if errors.Is(err, errSession) && !again {
			k.drop(l)
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(notes) > maxNotes {
			notes = append(notes[:maxNotes], fmt.Sprintf("and %d more", len(notes)-maxNotes))
		}
		own := map[string]bool{}
		for _, o := range offers {
			if o.Own {
				own[o.Method] = true
			}
		}
		s.mu.Lock()
		s.tools, s.notes, s.own = len(offers), notes, own
		s.mu.Unlock()
		return offers, nil
	}
}

// list asks for all pages, and says what of them was left out.
func (l *link) list(ctx context.Context) (offers []tools.Offer, notes []string, err error) {
	s := l.k.s
	seen := map[string]bool{}
	var page *mcp.ListToolsResult // the one that take has
	ask := func(ctx context.Context, cursor string) (raw json.RawMessage, err error) {
		page, raw, err = l.page(ctx, cursor)
		return raw, err
	}
	take := func(raw json.RawMessage) (next string, err error) {
		var said struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &said); err != nil {
			return "", l.oddList("tools", err)
		}
		if n := len(seen) + len(said.Tools); n > s.o.Bounds.Tools {
			more := ""
			if said.Next != "" {
				more = " and more"
			}
			return "", &agent.Error{
				Kind: agent.Exhausted, Msg: fmt.Sprintf("server %s offers %d tools%s, and at most %d are taken", s.rec.Name, n, more, s.o.Bounds.Tools),
				Hint: "have it offer fewer, or split it into several servers",
			}
		}
		for i, one := range said.Tools {
			o, err := s.offer(one)
			switch {
			case err != nil:
			case seen[o.Method]:
				err = fmt.Errorf("there is another of that name before it")
			case !taken(page, o):
				err = fmt.Errorf("an x-mcp-header of it is not valid")
			}
			if err != nil {
				notes = append(notes, fmt.Sprintf("tool %s was left out: %v", calledOr(one, len(seen)+i), err))
				continue
			}
			seen[o.Method] = true
			offers = append(offers, o)
		}
		return said.Next, nil
	}
	if tool, _, _ := l.has(); tool {
		if err := l.eachPage(ctx, "tools", ask, take); err != nil {
			return nil, nil, err
		}
	}
	return append(offers, l.own(func(method string) bool { return seen[method] })...), notes, nil
}

// eachPage asks for all pages of a list, one after the other, and has take read each as the server wrote it. what says what is listed.
func (l *link) eachPage(ctx context.Context, what string, ask func(ctx context.Context, cursor string) (json.RawMessage, error), take func(json.RawMessage) (next string, err error)) error {
	s := l.k.s
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	var cursors []string
	var all int64
	for cursor := ""; ; {
		raw, err := ask(withDelivery(ctx, &delivery{abort: cancel}), cursor)
		if err != nil {
			if c := context.Cause(ctx); c != nil {
				err = c
			}
			return err
		}
		if all += int64(len(raw)); all > s.o.Bounds.Message {
			return agent.Exceeded(agent.LimitOutput, "server %s has a list of %s of more than %s", s.rec.Name, what, size(s.o.Bounds.Message))
		}
		cursors = append(cursors, cursor)
		if cursor, err = take(raw); err != nil || cursor == "" {
			return err
		}
		if slices.Contains(cursors, cursor) || len(cursors) >= maxPages {
			return agent.Errorf(agent.Unavailable, "server %s never ends the list of its %s: after %d pages there is another", s.rec.Name, what, len(cursors))
		}
	}
}

// oddList is the error of a list that is not as MCP has it.
func (l *link) oddList(what string, err error) error {
	return agent.Wrap(agent.Unavailable, err, "server "+l.k.s.rec.Name+" lists its "+what+" in a way that is not MCP's")
}

// taken reports whether the SDK takes a tool: it leaves out those whose x-mcp-header is not valid. Of a page that it does not understand for
// another tool's sake, those with such headers cannot be called as they want to be.
func taken(page *mcp.ListToolsResult, o tools.Offer) bool {
	if page == nil {
		return !bytes.Contains(o.Input, []byte(`"x-mcp-header"`))
	}
	return slices.ContainsFunc(page.Tools, func(t *mcp.Tool) bool { return t.Name == o.Method })
}

// page asks for a page, which the SDK may still have from before, and returns it as the server wrote it besides. It is nil where the SDK does not
// understand it.
func (l *link) page(ctx context.Context, cursor string) (*mcp.ListToolsResult, json.RawMessage, error) {
	t := &tap{}
	res, err := l.session.ListTools(withTap(ctx, t), &mcp.ListToolsParams{Cursor: cursor})
	if err != nil && t.get() == nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if raw := t.get(); raw != nil {
		if len(l.pages) >= maxPages {
			clear(l.pages)
		}
		l.pages[cursor] = raw
	}
	raw, ok := l.pages[cursor]
	if !ok {
		return nil, nil, agent.Errorf(agent.Internal, "the list of server %s has gone by unseen", l.k.s.rec.Name)
	}
	return res, raw, nil
}

// listError says why there is no list.
func (l *link) listError(ctx context.Context, err error) error {
	if auth, ok := l.denied(err); ok {
		return auth
	}
	if c := context.Cause(ctx); c != nil && ctx.Err() != nil {
		var e *agent.Error
		if errors.As(c, &e) {
			return c
		}
		return agent.Wrap(agent.Cancelled, err, "the list of server "+l.k.s.rec.Name+" was cancelled")
	}
	if f, ok := l.rpcError(err); ok {
		return agent.Wrap(agent.Unavailable, err, "server "+l.k.s.rec.Name+" does not list its tools: "+f)
	}
	return l.lost(err)
}

// calledOr is what a tool of a list is called, or its place.
func calledOr(raw json.RawMessage, i int) string {
	var t struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(raw, &t) == nil && t.Name != "" {
		return fmt.Sprintf("%q", kept(t.Name, 100))
	}
	return fmt.Sprintf("number %d", i+1)
}
