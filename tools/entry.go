package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skep-dev/skep/agent"
)

// What is taken of one server.
const (
	maxTools  = 10_000
	maxMethod = 128       // bytes of a method's name
	maxSchema = 256 << 10 // bytes of a schema
	maxNotes  = 20
)

type entryKey struct {
	app  agent.App
	name string
}

// entry is a server of tools as it is reached by one record: its source when it is open, and its list when it is known. A record that says
// another way has another entry; how tools are graded is no part of it.
type entry struct {
	c      *Catalogue
	record agent.ToolServer
	reach  string

	mu       sync.Mutex
	src      Source
	opening  chan struct{} // holds one while the source is being opened
	listing  *listing      // under way
	offers   []offer       // sorted by method
	said     []Offer       // what they were made of, when the source is asked each time
	gen      int           // of offers
	fresh    bool          // whether offers are what the source would say
	failed   error         // the last list
	at       time.Time     // of that
	notes    []string
	contents Contents // beside tools
	using    int
	idle     *time.Timer
	closed   bool
	gate     *semaphore.Weighted
	wide     int64

	graded   []agent.Tool // of offers, by the record of that edition
	gradedBy edition
	ofGen    int
}

// edition tells states of a record from each other, also those of an app from those of one of its name that was deleted, whose revisions begin again.
type edition struct {
	rev     int64
	created int64 // in nanoseconds
}

func editionOf(s agent.ToolServer) edition { return edition{s.Rev, s.Created.UnixNano()} }

// offer is an Offer with the digest of all that it says.
type offer struct {
	Offer
	digest agent.Digest
}

// listing is one question for a list.
type listing struct {
	done   chan struct{}
	err    error
	stale  bool // it has changed since it was asked for
	cancel context.CancelFunc
}

// reachOf says how a record's server is reached: what is changed beside that leaves the source open.
func reachOf(s agent.ToolServer) string {
	s.Description, s.Trusted, s.Effects, s.Pins, s.Only, s.Timeout, s.Concurrency = "", false, nil, nil, nil, 0, 0
	s.Rev, s.Created, s.Updated = 0, time.Time{}, time.Time{}
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprint(s)
	}
	return string(b)
}

// entry returns the entry of a record, and closes one that reached it another way.
func (c *Catalogue) entry(s agent.ToolServer) (*entry, error) {
	key, reach := entryKey{s.App, s.Name}, reachOf(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, agent.Errorf(agent.Unavailable, "the server is stopping")
	}
	e := c.entries[key]
	if e != nil && e.reach == reach {
		return e, nil
	}
	if e != nil {
		c.work.Go(e.close)
	}
	e = &entry{c: c, record: s, reach: reach, opening: make(chan struct{}, 1)}
	c.entries[key] = e
	return e, nil
}

// drop closes the entry of a record that is gone or changed.
func (c *Catalogue) drop(app agent.App, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := entryKey{app, name}
	if e := c.entries[key]; e != nil && !c.closed {
		delete(c.entries, key)
		c.work.Go(e.close)
	}
}

// use returns the source, which is opened for it, and a function that is called when it is not needed any more.
func (e *entry) use(ctx context.Context) (Source, func(), error) {
	select {
	case e.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	defer func() { <-e.opening }()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, e.gone()
	}
	e.using++ // from here on it is not closed for being idle
	if e.idle != nil {
		e.idle.Stop()
	}
	if e.src == nil {
		src, err := e.open(ctx)
		if err != nil {
			e.using--
			return nil, nil, err
		}
		e.src = src
	}
	return e.src, e.unuse, nil
}

// open opens the source. e.mu is held, and let go of meanwhile.
func (e *entry) open(ctx context.Context) (Source, error) {
	open := e.c.opts.Openers[e.record.Kind]
	if open == nil {
		return nil, agent.Errorf(agent.Unavailable, "servers of tools of kind %s are not supported by this server", e.record.Kind)
	}
	e.mu.Unlock()
	defer e.mu.Lock()
	return open(ctx, e.record, e.changed)
}

func (e *entry) gone() error {
	return agent.Errorf(agent.Unavailable, "the server of tools %s was changed or stopped meanwhile: try again", e.record.Name)
}

func (e *entry) unuse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.using--; e.using == 0 && !e.closed {
		e.idle = time.AfterFunc(e.c.opts.Idle, e.rest)
	}
}

// rest closes a source that nobody has used for a while. Its list goes with it: a server that is started again may be another.
func (e *entry) rest() {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.using > 0 || e.closed || e.c.closed {
		return
	}
	src := e.src
	e.src, e.fresh = nil, false
	if src != nil {
		e.c.work.Go(func() { _ = src.Close() })
	}
}

// changed is called by the source.
func (e *entry) changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fresh = false
	if e.listing != nil {
		e.listing.stale = true
	}
	e.c.changes.tell(e.record.App)
}

// refresh has the list asked for anew: of a source that is opened anew, unless calls of it are under way.
func (e *entry) refresh() {
	e.rest()
	e.changed()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = nil
}

// volatile reports whether the list is asked for each time: it is at hand, and nobody tells when it changes.
func (e *entry) volatile() bool {
	return e.record.Kind == agent.AgentTools || e.record.Kind == agent.BuiltIn
}

// list sees to it that the list is there. It waits for a while, and the server goes on when that is over.
func (e *entry) list(ctx context.Context) error {
	l, err := e.ask()
	if l == nil {
		return err
	}
	timer := time.NewTimer(e.c.opts.Wait)
	defer timer.Stop()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return agent.Errorf(agent.Unavailable, "the server of tools %s has not said within %s what it has; it is still waited for", e.record.Name, e.c.opts.Wait)
	}
}

// ask returns the question that is under way or begins one; nil when there is nothing to ask.
func (e *entry) ask() (*listing, error) {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed || e.c.closed:
		return nil, e.gone()
	case e.listing != nil:
		return e.listing, nil
	case e.fresh && !e.volatile():
		return nil, nil
	case e.failed != nil && time.Since(e.at) < e.c.opts.Hold && !e.volatile():
		return nil, e.failed
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), e.c.opts.List,
		agent.Errorf(agent.Unavailable, "the server of tools %s has not said within %s what it has", e.record.Name, e.c.opts.List))
	l := &listing{done: make(chan struct{}), cancel: cancel}
	e.listing = l
	e.c.work.Go(func() {
		defer cancel()
		offers, notes, err := e.read(ctx)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		was, before := e.gen, e.failed
		e.listing, l.err = nil, err
		e.failed, e.at = err, time.Now()
		if err != nil && !e.closed && (agent.KindOf(err) == agent.Internal || errors.Is(err, context.Canceled)) { // which a status does not say
			e.c.opts.Log.Warn("tools: a list failed", "app", e.record.App, "server", e.record.Name, "error", err)
		}
		if err == nil {
			if !slices.EqualFunc(e.offers, offers, func(a, b offer) bool { return a.Method == b.Method && a.digest == b.digest }) || e.gen == 0 {
				e.gen++
			}
			e.offers, e.notes, e.fresh = offers, notes, !l.stale
		}
		if e.gen != was || (err == nil) != (before == nil) {
			e.c.changes.tell(e.record.App)
		}
		close(l.done)
	})
	return l, nil
}

// hold keeps what the source has besides tools.
func (e *entry) hold(c Contents) {
	e.mu.Lock()
	same := reflect.DeepEqual(c, e.contents)
	e.contents = c
	e.mu.Unlock()
	if !same {
		e.c.changes.tell(e.record.App)
	}
}

// read asks the source. What cannot be a tool is left out, with a note.
func (e *entry) read(ctx context.Context) ([]offer, []string, error) {
	src, done, err := e.use(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	raw, err := src.Tools(ctx)
	if err != nil {
		return nil, nil, err
	}
	if e.volatile() {
		e.mu.Lock()
		offers, notes, same := e.offers, e.notes, reflect.DeepEqual(raw, e.said)
		e.said = raw
		e.mu.Unlock()
		if same {
			return offers, notes, nil
		}
	}
	var notes []string
	note := func(format string, args ...any) {
		if len(notes) < maxNotes {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	if len(raw) > maxTools {
		note("it has %d tools; %d are taken", len(raw), maxTools)
		raw = raw[:maxTools]
	}
	seen := map[string]int{}
	for _, o := range raw {
		seen[o.Method]++
	}
	out := make([]offer, 0, len(raw))
	for _, o := range raw {
		switch {
		case !isMethod(o.Method):
			note("the tool %.60q is left out: its name has to be 1 to %d letters, digits and any of _./:+-", o.Method, maxMethod)
		case seen[o.Method] > 1:
			note("the tool %q is left out: there are %d of that name", o.Method, seen[o.Method])
			seen[o.Method] = -1
		case seen[o.Method] < 0:
		default:
			made, err := offered(o)
			if err != nil {
				note("the tool %q is left out: %s", o.Method, agent.AsError(err).Msg)
				continue
			}
			out = append(out, made)
		}
	}
	slices.SortFunc(out, func(a, b offer) int { return strings.Compare(a.Method, b.Method) })
	held, more := contents(ctx, src)
	for _, n := range more {
		note("%s", n)
	}
	e.hold(held)
	return out, notes, nil
}

var methodRE = regexp.MustCompile(`^[A-Za-z0-9_./:+-]+$`)

// isMethod reports whether a tool can be called so: grants, rules and standing answers are written with these names, in which other signs mean something.
func isMethod(s string) bool { return len(s) <= maxMethod && methodRE.MatchString(s) }

// offered checks an offer and gives it a digest.
func offered(o Offer) (offer, error) {
	if len(o.Input) == 0 {
		o.Input = json.RawMessage(`{"type":"object"}`)
	}
	for what, s := range map[string]*json.RawMessage{"input": &o.Input, "output": &o.Output} {
		if len(*s) == 0 {
			*s = nil // an empty one has no JSON form
			continue
		}
		if len(*s) > maxSchema {
			return offer{}, agent.Errorf(agent.Invalid, "its %s schema has more than %d bytes", what, maxSchema)
		}
		var v any
		if err := json.Unmarshal(*s, &v); err != nil {
			return offer{}, agent.Errorf(agent.Invalid, "its %s schema is no JSON", what)
		}
		if _, object := v.(map[string]any); !object && what == "input" {
			return offer{}, agent.Errorf(agent.Invalid, "its input schema is no object")
		}
		b, err := json.Marshal(v) // in one form, so that the digest is of what it says
		if err != nil {
			return offer{}, agent.Errorf(agent.Invalid, "its %s schema is no JSON", what)
		}
		*s = b
	}
	b, err := json.Marshal(struct {
		Said                             agent.Digest
		Method, Title, Description, Undo string
		Input, Output                    json.RawMessage
		Hints                            *Hints
		Declared                         agent.Effect
		Idempotent                       bool
	}{o.Digest, o.Method, o.Title, o.Description, o.Undo, o.Input, o.Output, o.Hints, o.Declared, o.Idempotent})
	if err != nil {
		return offer{}, agent.Errorf(agent.Invalid, "it cannot be written down")
	}
	return offer{o, agent.DigestOf(b)}, nil
}

// tools is the list as a record grades it, sorted by method.
func (e *entry) tools(s agent.ToolServer) ([]agent.Tool, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if by := editionOf(s); e.graded == nil || e.gradedBy != by || e.ofGen != e.gen {
		e.graded, e.gradedBy, e.ofGen = gradeAll(s, e.offers), by, e.gen
	}
	return e.graded, e.gen
}

// digests are those of the list, by method, without Skep's own.
func (e *entry) digests() map[string]agent.Digest {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[string]agent.Digest, len(e.offers))
	for _, o := range e.offers {
		if !o.Own {
			out[o.Method] = o.digest
		}
	}
	return out
}

func (e *entry) gateOf(n int64) *semaphore.Weighted {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gate == nil || e.wide != n {
		e.gate, e.wide = semaphore.NewWeighted(n), n
	}
	return e.gate
}

// close ends the source and whoever waits for it.
func (e *entry) close() {
	e.mu.Lock()
	e.closed = true
	src, l := e.src, e.listing
	e.src = nil
	if e.idle != nil {
		e.idle.Stop()
	}
	e.mu.Unlock()
	if l != nil {
		l.cancel()
		<-l.done
	}
	e.opening <- struct{}{} // one that is being opened
	defer func() { <-e.opening }()
	e.mu.Lock()
	late := e.src
	e.src = nil
	e.mu.Unlock()
	for _, s := range []Source{src, late} {
		if s == nil {
			continue
		}
		if err := s.Close(); err != nil {
			e.c.opts.Log.Warn("tools: a source did not end well", "app", e.record.App, "server", e.record.Name, "error", err)
		}
	}
}

// status is how the server stands. It starts nothing.
func (e *entry) status() agent.ToolStatus {
	e.mu.Lock()
	src, failed, at, notes, n, listing := e.src, e.failed, e.at, slices.Clone(e.notes), len(e.offers), e.listing != nil
	e.mu.Unlock()
	st := agent.ToolStatus{State: agent.ServerIdle}
	if src != nil {
		st = src.Status()
	} else if listing {
		st.State = agent.ServerStarting
	}
	st.Server, st.Kind, st.Tools = e.record.Name, e.record.Kind, n
	st.Notes = append(slices.Clone(st.Notes), notes...)
	if failed != nil && st.State != agent.ServerNeedsAuth {
		known := agent.AsError(failed)
		if st.State != agent.ServerStarting {
			st.State = agent.ServerFailed
		}
		if st.Error == "" {
			st.Error, st.Hint = known.Msg, known.Hint
		}
		if st.Retry.IsZero() {
			st.Retry = at.Add(e.c.opts.Hold)
		}
	}
	return st
}
