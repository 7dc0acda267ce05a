package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools/code"
)

// Options of a Catalogue. A zero field means the default.
type Options struct {
	Log     *slog.Logger
	Openers Openers
	// BuiltIns are the names of servers that every app has without a record; Openers[agent.BuiltIn] opens them.
	BuiltIns []string
	// Hook calls a function of an agent of the app, as a hook, with JSON in and out.
	Hook func(ctx context.Context, app agent.App, name, function string, in []byte) ([]byte, error)
	// Guard lists absolute paths that no tool may write to, whatever the policy says: Skep's own.
	Guard []string

	Wait time.Duration // for a server's list, before it is left out; 10 s. It is still waited for, and in the list from then on
	List time.Duration // that a server may take to list its tools, its start included; 2 min
	Hold time.Duration // after a list that failed, before the server is asked again; 5 s
	Idle time.Duration // without a call or a list, after which a source is closed; 15 min
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Log == nil {
		out.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		field *time.Duration
		is    time.Duration
	}{{&out.Wait, 10 * time.Second}, {&out.List, 2 * time.Minute}, {&out.Hold, 5 * time.Second}, {&out.Idle, 15 * time.Minute}} {
		if *d.field == 0 {
			*d.field = d.is
		}
	}
	return out
}

// Catalogue is the tools of all apps. It is safe for concurrent use. Close it.
//
// Records are documents of the store and are read from it each time, so that a change holds from the next call on. What is kept is what is
// dear: open sources and the lists that they gave.
type Catalogue struct {
	store *store.Store
	opts  Options

	mu       sync.Mutex // before an entry's
	entries  map[entryKey]*entry
	indices  map[agent.App]*index
	policies map[agent.App]policyOf
	closed   bool
	work     sync.WaitGroup // lists, and sources that are being closed

	validator code.Validator
	totals    totals
	spending  locks
	tidying   rounds
	changes   changes
}

// New returns a catalogue of what st has records of. It starts no server before it is needed.
func New(st *store.Store, o *Options) *Catalogue {
	return &Catalogue{
		store: st, opts: o.withDefaults(), entries: map[entryKey]*entry{}, indices: map[agent.App]*index{}, policies: map[agent.App]policyOf{},
		spending: locks{seed: maphash.MakeSeed()},
	}
}

// Close ends all sources, and returns when they have ended.
func (c *Catalogue) Close() error {
	c.mu.Lock()
	c.closed = true
	all := c.entries
	c.entries = map[entryKey]*entry{}
	c.mu.Unlock()
	for _, e := range all {
		c.work.Go(func() { e.close() })
	}
	c.work.Wait()
	return nil
}

// Forget ends the sources of an app that was deleted and drops what is kept of it. It does not wait for them to end.
func (c *Catalogue) Forget(app agent.App) {
	c.mu.Lock()
	for key, e := range c.entries {
		if key.app == app && !c.closed {
			delete(c.entries, key)
			c.work.Go(e.close)
		}
	}
	delete(c.indices, app)
	delete(c.policies, app)
	c.mu.Unlock()
	c.totals.forget(app)
	c.tidying.forget(app)
	c.changes.tell(app)
}

// Tools lists an app's tools, sorted by name: the same bytes as long as nothing has changed. Servers that cannot be reached are
// left out, and their status says why.
func (c *Catalogue) Tools(ctx context.Context, app agent.App) ([]agent.Tool, error) {
	list, _, err := c.all(ctx, app)
	return list, err
}

// all is Tools, and a text that is another when the list is.
func (c *Catalogue) all(ctx context.Context, app agent.App) ([]agent.Tool, string, error) {
	records, err := c.Servers(ctx, app)
	if err != nil {
		return nil, "", err
	}
	lists := make([][]agent.Tool, len(records))
	prints := make([]string, len(records))
	var group errgroup.Group
	group.SetLimit(64)
	for i, s := range records {
		group.Go(func() error {
			e, err := c.entry(s)
			if err != nil {
				return ctx.Err()
			}
			list, gen, err := e.listed(ctx, s)
			if err != nil {
				return ctx.Err() // a server that fails says so in its status
			}
			lists[i], prints[i] = list, fmt.Sprintf("%s:%v:%d", s.Name, editionOf(s), gen)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, "", err
	}
	whole := slices.DeleteFunc(slices.Concat(lists...), func(t agent.Tool) bool { return t.Hidden })
	slices.SortFunc(whole, func(a, b agent.Tool) int { return strings.Compare(a.Name, b.Name) })
	return whole, strings.Join(prints, " "), nil
}

// at returns the record of a server, and its entry.
func (c *Catalogue) at(ctx context.Context, app agent.App, server string) (agent.ToolServer, *entry, error) {
	s, err := c.Server(ctx, app, server)
	if err != nil {
		return s, nil, err
	}
	e, err := c.entry(s)
	return s, e, err
}

// listed is the tools of the server, graded by its record and sorted, and the number of its list.
func (e *entry) listed(ctx context.Context, s agent.ToolServer) ([]agent.Tool, int, error) {
	if err := e.list(ctx); err != nil {
		return nil, 0, err
	}
	s, err := e.c.pinFirst(ctx, s, e)
	if err != nil {
		return nil, 0, err
	}
	list, gen := e.tools(s)
	return list, gen, nil
}

// Resolve finds a tool by its name, or by the identifiers that declarations write in place of it. What is not there is a NotFound error that says which
// names come near, and what is wrong with the server if that is it.
func (c *Catalogue) Resolve(ctx context.Context, app agent.App, name string) (agent.Tool, error) {
	if server, method, ok := agent.SplitTool(name); ok {
		t, err := c.find(ctx, app, server, method)
		if err == nil || agent.KindOf(err) != agent.NotFound {
			return t, err
		}
	}
	x, err := c.indexOf(ctx, app)
	if err != nil {
		return agent.Tool{}, err
	}
	if whole, ok := x.names.Find(name); ok && whole != name {
		server, method, _ := agent.SplitTool(whole)
		return c.find(ctx, app, server, method)
	}
	return agent.Tool{}, c.noTool(ctx, app, name, x.names.Near(name))
}

// find finds a tool by its own name.
func (c *Catalogue) find(ctx context.Context, app agent.App, server, method string) (agent.Tool, error) {
	s, e, err := c.at(ctx, app, server)
	if err != nil {
		return agent.Tool{}, err
	}
	return e.find(ctx, s, method)
}

func (e *entry) find(ctx context.Context, s agent.ToolServer, method string) (agent.Tool, error) {
	list, _, err := e.listed(ctx, s)
	if err != nil {
		return agent.Tool{}, err
	}
	i, found := slices.BinarySearchFunc(list, method, func(t agent.Tool, m string) int { return strings.Compare(t.Method, m) })
	if !found {
		return agent.Tool{}, agent.Errorf(agent.NotFound, "there is no tool %q", agent.ToolName(s.Name, method))
	}
	return list[i], nil
}

// noTool says that there is no such tool, and what may be the reason.
func (c *Catalogue) noTool(ctx context.Context, app agent.App, name string, near []string) error {
	e := &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("there is no tool %.200q", name)}
	server, _, _ := agent.SplitTool(name)
	if s, err := c.Server(ctx, app, server); err == nil {
		if st := c.statusOf(s); st.State == agent.ServerFailed || st.State == agent.ServerNeedsAuth {
			e.Msg += fmt.Sprintf("; its server %s is %s: %s", server, st.State, st.Error)
			e.Hint = st.Hint
		}
	}
	switch {
	case e.Hint != "":
	case len(near) > 0:
		e.Hint = "did you mean " + strings.Join(near, ", ") + "?"
	default:
		e.Hint = "skep tools list shows those that there are; skep tools add adds a server"
	}
	return e
}

// Call calls a tool, as many of a server's at once as its record says; others wait. It must be as it was when it was judged: t's digest is compared.
// Errors before the call has left for the server are marked (MarkUnsent).
func (c *Catalogue) Call(ctx context.Context, t agent.Tool, o *CallOptions, args []byte) (agent.ToolResult, error) {
	if o == nil {
		o = &CallOptions{}
	}
	app := o.For.App
	s, e, err := c.at(ctx, app, t.Server)
	if err != nil {
		return agent.ToolResult{}, MarkUnsent(err)
	}
	now, err := e.find(ctx, s, t.Method)
	if err != nil {
		return agent.ToolResult{}, MarkUnsent(err)
	}
	if t.Digest != "" && now.Digest != t.Digest {
		return agent.ToolResult{}, MarkUnsent(&agent.Error{
			Kind: agent.Conflict, Msg: fmt.Sprintf("the tool %s has changed since the call was judged, and was not called", t.Name), Hint: "call it again: that is judged anew",
		})
	}
	began := time.Now()
	res, err := e.call(ctx, s, now, o, args)
	c.totals.add(app, t.Server, time.Since(began), err)
	if err != nil {
		return agent.ToolResult{}, err
	}
	return res, c.after(ctx, now, o.For, res)
}

// call makes one call under the record's bounds.
func (e *entry) call(ctx context.Context, s agent.ToolServer, t agent.Tool, o *CallOptions, args []byte) (agent.ToolResult, error) {
	gate := e.gateOf(concurrency(s))
	if err := gate.Acquire(ctx, 1); err != nil {
		return agent.ToolResult{}, MarkUnsent(err)
	}
	defer gate.Release(1)
	src, done, err := e.use(ctx)
	if err != nil {
		return agent.ToolResult{}, MarkUnsent(err)
	}
	defer done()
	late := agent.Errorf(agent.Unavailable, "%s has not answered within %s", t.Name, timeout(s))
	ctx, clock := Within(ctx, timeout(s), late)
	defer clock.Stop()
	opts := *o
	if ask := o.Elicit; ask != nil { // the time that a person takes is not the server's
		opts.Elicit = func(ctx context.Context, q agent.Question) (agent.ApprovalAnswer, error) {
			clock.Pause()
			defer clock.Resume()
			return ask(ctx, q)
		}
	}
	res, err := src.Call(ctx, t.Method, json.RawMessage(args), &opts)
	if err != nil {
		if errors.Is(context.Cause(ctx), late) && !Unsent(err) {
			err = late
		}
		return agent.ToolResult{}, err
	}
	if !json.Valid(res.Value) {
		return agent.ToolResult{}, agent.Errorf(agent.Unavailable, "%s returned what is no JSON", t.Name)
	}
	return res, nil
}

func concurrency(s agent.ToolServer) int64 {
	if s.Concurrency > 0 {
		return int64(s.Concurrency)
	}
	return 8
}

func timeout(s agent.ToolServer) time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return time.Minute
}
