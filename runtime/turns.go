package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/fair"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// ownEvents is the log in which an instance's own events are: what it emitted outside of sessions, its state as it changed, alarms.
const ownEvents = "events"

// system begins the keys of an instance's state that are ours: authors neither see nor reach them.
const system = "\x00"

// keyCode is where an instance keeps which code its newest turn ran.
const keyCode = system + "code"

// Handlers are what the host calls of an instance by itself, and nobody else may call.
const (
	onStart   = "onStart"   // before the first turn of an instance, and in its commit
	onUpgrade = "onUpgrade" // before the first turn on other code, with the digest of the code before
	onAlarm   = "onAlarm"   // for alarms that name no method
)

// isReserved reports whether only the host calls a function of the code.
func isReserved(p *agent.Plugin, function string) bool {
	return abi.Reserved(function) || abi.Handler(function) || p.Kind != agent.Script && abi.HandlerOf(function) != ""
}

// handlerOf returns the export that handles what the host calls by itself, and whether the code has one. Modules may name it as
// their language likes.
func handlerOf(p *agent.Plugin, handler string) (string, bool) {
	names := []string{handler}
	if p.Kind != agent.Script {
		names = abi.HandlerNames(handler)
	}
	for _, name := range names {
		if slices.Contains(p.Exports, name) {
			return name, true
		}
	}
	return handler, false
}

// place is the instance that a cell works for.
type place struct {
	id   instance.ID
	turn func(context.Context) (*durable.Turn, error) // of the moment: a run has one after the other
	seat *seat                                        // of a call that may leave its turn and enter again; else nil
	run  *execution                                   // of a run; else nil

	socket *socketWork // what a client asked for by a connection, else nil
}

// placeIn is a place that is in one turn to the end.
func placeIn(t *durable.Turn) *place {
	return &place{id: t.ID(), turn: func(context.Context) (*durable.Turn, error) { return t, nil }}
}

// gate commits what the instance has changed, before something leaves that may depend on it.
func (p *place) gate(ctx context.Context) error {
	if p == nil || p.run != nil || p.seat.outside() { // a run has done so before the call comes here
		return nil
	}
	t, err := p.turn(ctx)
	if err != nil {
		return err
	}
	return t.Commit(ctx)
}

// memory is what is kept of an instance between its turns.
type memory struct {
	code  agent.Digest // that its newest turn ran
	turns int          // that were met
	sql   sqlMemory

	sharing atomic.Pointer[sharing] // of its newest turn that had to do with the shared state
}

// Rest is called when a turn has ended.
func (m *memory) Rest() {
	m.sharing.Store(nil)
	m.sql.rest()
}

func (m *memory) Close() error {
	m.sql.close()
	return nil
}

func memoryOf(t *durable.Turn) *memory {
	m, ok := t.Memo().(*memory)
	if !ok {
		m = &memory{}
		t.SetMemo(m)
	}
	return m
}

// instanceOf finds the agent of an instance.
func (r *Runtime) instanceOf(ctx context.Context, app agent.App, name, key string) (instance.ID, record, error) {
	rec, err := r.records.resolve(ctx, r.store, app, name)
	if err != nil {
		return instance.ID{}, record{}, err
	}
	id := instance.ID{App: app, Agent: rec.agent.ID, Key: key}
	return id, rec, id.Check()
}

// agentOf finds the agent of an instance that is there.
func (r *Runtime) agentOf(ctx context.Context, id instance.ID) (record, error) {
	if name := r.records.nameOf(id.App, id.Agent); name != "" {
		if rec, err := r.records.resolve(ctx, r.store, id.App, name); err == nil && rec.agent.ID == id.Agent {
			return rec, nil
		}
	}
	name, err := r.store.AgentName(ctx, id.App, id.Agent)
	if err != nil {
		return record{}, err
	}
	rec, err := r.records.resolve(ctx, r.store, id.App, name)
	if err == nil && rec.agent.ID == id.Agent {
		r.records.named(id.App, id.Agent, name)
	}
	return rec, err
}

// work is what is done in a turn.
type work struct {
	rec      record
	kind     agent.UsageKind
	function string
	input    agent.Payload
	limits   agent.Limits // all set
	depth    int
	socket   *socketWork // what a client asked for by a connection, else nil
}

func (r *Runtime) work(rec record, kind agent.UsageKind, function string, input agent.Payload) work {
	return work{rec: rec, kind: kind, function: function, input: input, limits: rec.agent.Limits.Or(r.opts.Limits)}
}

// inTurn runs code in a turn of an instance that it has to the end: first what the code wants to do when it meets the instance for the
// first time, then the work itself. What it changed is not committed yet.
func (r *Runtime) inTurn(ctx context.Context, t *durable.Turn, w work) (host.Result, error) {
	ctx = durable.Holding(ctx, t.ID())
	if err := r.meet(ctx, t, w); err != nil {
		return host.Result{}, err
	}
	res, err := r.runIn(ctx, w, placeIn(t))
	if err == nil {
		err = t.Finish(ctx) // what its code has left open is its failure, and not that of the commit
	}
	return res, err
}

// meet has the code see an instance for the first time. It is part of the turn: if that is undone, so is this.
func (r *Runtime) meet(ctx context.Context, t *durable.Turn, w work) error {
	r.trimEvents(ctx, t)
	m := memoryOf(t)
	code := w.rec.plugin.Digest
	if m.code == code {
		return nil
	}
	was, err := t.Get(ctx, keyCode)
	if err != nil {
		return err
	}
	before := ""
	if len(was) > 0 {
		before = string(was[0].Value.Body)
	}
	if before != string(code) {
		if err := r.greet(ctx, t, w, before); err != nil {
			return err
		}
		_, err := t.Edit(ctx, unbounded, agent.StateEdit{Act: agent.StateSet, Key: keyCode, Value: agent.Text(string(code))})
		if err != nil {
			return err
		}
	}
	t.Then(func() { m.code = code })
	return nil
}

// unbounded is for what is ours.
var unbounded = agent.StateGrant{Bytes: agent.MaxStateBytes, Keys: agent.MaxStateKeys}

func (r *Runtime) greet(ctx context.Context, t *durable.Turn, w work, before string) error {
	handler, ev, input := onStart, agent.Event{Kind: agent.EventCreated}, agent.Payload{Type: agent.TypeJSON}
	if before != "" {
		handler, ev.Kind, ev.Data = onUpgrade, agent.EventUpgraded, encode(map[string]string{"from": before, "to": string(w.rec.plugin.Digest)})
		input.Body = encode(before)
	}
	if function, ok := handlerOf(w.rec.plugin, handler); ok {
		w.function, w.input = function, input
		if _, err := r.runIn(ctx, w, placeIn(t)); err != nil {
			return err
		}
	}
	return t.Append(ctx, instance.OwnLog(ownEvents), ev)
}

// runIn runs one function at a place.
func (r *Runtime) runIn(ctx context.Context, w work, at *place) (host.Result, error) {
	j := r.jobOf(w.kind, w.rec, w.limits)
	at.socket = w.socket
	j.function, j.input, j.depth, j.place = w.function, w.input, w.depth, at
	j.sinks = r.turnSinks(at, w.rec.agent)
	leave, err := r.brief(ctx, &j)
	if err != nil {
		return host.Result{}, err
	}
	defer leave()
	var res host.Result
	err = r.inCell(ctx, j, func(ctx context.Context, c host.Call) (agent.Usage, error) {
		var err error
		res, err = r.cells.Call(ctx, c)
		res.Output.Body = j.secrets.Bytes(res.Output.Body)
		return res.Usage, err
	})
	return res, err
}

// Most turns are over in less than a millisecond of computing. A few of them at a time find their memory in the processors' caches, many do
// not, and each costs twice as much. So few are begun at once; one that is not over soon gives its place away and goes on.
const (
	briefPlaces = 2 // for each processor
	briefTime   = 5 * time.Millisecond
	briefLine   = 1 << 16
)

// brief waits for a place among the turns that are begun. Calls from within turns have their caller's.
func (r *Runtime) brief(ctx context.Context, j *job) (leave func(), err error) {
	if j.depth > 0 {
		return func() {}, nil
	}
	give, err := r.begins.Enter(ctx, fair.Who{App: j.App, Agent: j.Agent, Weight: j.weight})
	if err != nil {
		return nil, err
	}
	once := sync.OnceFunc(give)
	timer := time.AfterFunc(briefTime, once)
	return func() { timer.Stop(); once() }, nil
}

// turnSinks are where a cell's output goes in a turn: events are the instance's own, and leave with the commit; console output is its
// agent's, and leaves as it comes.
func (r *Runtime) turnSinks(at *place, a *agent.Agent) sinks {
	s := r.logbook.sinks(a)
	s.emit = func(ctx context.Context, name string, data json.RawMessage) error {
		t, err := at.turn(ctx)
		if err != nil {
			return err
		}
		return t.Append(ctx, instance.OwnLog(ownEvents), agent.Event{Kind: agent.EventEmit, Name: name, Data: data})
	}
	return s
}

// callInstance calls a method in a turn of its own.
func (r *Runtime) callInstance(ctx context.Context, app agent.App, req InstanceCall, depth int) (host.Result, error) {
	if req.Function == "" {
		return host.Result{}, r.stats.failed(agent.Errorf(agent.Invalid, "a call must name a method"))
	}
	id, rec, err := r.instanceOf(ctx, app, req.Agent, req.Key)
	if err != nil {
		return host.Result{}, r.stats.failed(err)
	}
	if isReserved(rec.plugin, req.Function) {
		return host.Result{}, r.stats.failed(agent.Errorf(agent.NotFound, "there is no method %.80q that can be called: the host calls it itself", req.Function))
	}
	w := r.work(rec, agent.UseTurn, req.Function, req.Input)
	if err := req.Limits.Check(w.limits); err != nil {
		return host.Result{}, r.stats.failed(err)
	}
	w.limits, w.depth = req.Limits.Or(w.limits), depth
	if n := int64(len(req.Input.Body)); n > w.limits.Input {
		return host.Result{}, r.stats.failed(agent.Exceeded(agent.LimitInput, "the input has %d bytes, more than %d", n, w.limits.Input))
	}
	if !slices.Contains(rec.plugin.Exports, req.Function) { // before an instance is made for nothing
		return host.Result{}, r.stats.failed(&agent.Error{
			Kind: agent.NotFound, Msg: "the code of agent " + req.Agent + " has no method " + quoted(req.Function),
			Hint: "it has: " + strings.Join(callable(rec.plugin), ", "),
		})
	}
	if req.Each != nil {
		return r.callYielding(ctx, id, w, req)
	}
	res, err := r.turn(ctx, id, w, req.Once)
	return res, r.ended(ctx, rec.agent, err)
}

// turn does work in a turn of its own and commits it. once, unless it is empty, names the call: made again, it is answered with what it
// came to the first time.
func (r *Runtime) turn(ctx context.Context, id instance.ID, w work, once string) (host.Result, error) {
	start := time.Now()
	s := &seat{r: r, id: id, by: durable.Holder(ctx), limits: w.limits, once: once}
	if err := s.enter(ctx); err != nil {
		return host.Result{}, r.stats.failed(err)
	}
	defer s.end()
	defer r.keeper.Await(s.by, id)() // also while it has left its turn

	w.limits.Wall = max(w.limits.Wall-time.Since(start), time.Millisecond) // waiting in line counts
	ctx = durable.Holding(ctx, id)
	if once != "" {
		if out, done, err := r.madeBefore(ctx, s.t, once, w); err != nil || done {
			return host.Result{Output: out}, err
		}
	}
	if err := r.meet(ctx, s.t, w); err != nil {
		return host.Result{}, err
	}
	res, err := r.runIn(ctx, w, &place{id: id, turn: s.turn, seat: s})
	if err != nil {
		return res, err
	}
	if err := s.enter(ctx); err != nil { // code that left and did not come back
		return res, err
	}
	if once != "" {
		if err := r.keepAnswer(ctx, s.t, once, w, res.Output); err != nil {
			return res, err
		}
	}
	return res, r.leave(ctx, s.t)
}

// enter waits in an instance's line no longer than the call may take.
func (r *Runtime) enter(ctx context.Context, id instance.ID, e durable.Entry, limits agent.Limits) (*durable.Turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Wall, agent.Exceeded(agent.LimitWall, "instance %q was busy with other calls for %v", id.Key, limits.Wall))
	defer cancel()
	ctx, span := r.opts.Tracer.Start(ctx, "enter")
	defer span.End()
	return r.keeper.Enter(ctx, id, e)
}

// leave commits a turn, and says what it means when that cannot be.
func (r *Runtime) leave(ctx context.Context, t *durable.Turn) error {
	ctx, span := r.opts.Tracer.Start(ctx, "commit")
	defer span.End()
	err := t.Leave(ctx)
	if errors.Is(err, instance.ErrFenced) || errors.Is(err, instance.ErrGone) {
		return agent.Wrap(agent.Unavailable, err, "the instance was taken over or deleted meanwhile, and nothing was changed")
	}
	return err
}

func quoted(s string) string { return string(encode(s)) }

// callable lists what clients can call.
func callable(p *agent.Plugin) []string {
	return slices.DeleteFunc(slices.Clone(p.Exports), func(name string) bool { return isReserved(p, name) })
}

// committed shows what a commit of an instance has added to logs, and what it did to runs.
func (r *Runtime) committed(id instance.ID, b *instance.Batch, res instance.Result) {
	byLog := map[instance.Log][]agent.Event{}
	for i, a := range b.Events {
		ev := a.Event
		ev.Seq = res.Events[i]
		byLog[a.Log] = append(byLog[a.Log], ev)
	}
	for log, events := range byLog {
		to := store.InstanceLog(id, log.Name)
		if log.Session != "" {
			to = store.SessionLog(id.App, log.Session)
		}
		r.feeds.publish(to, events)
	}
	for _, e := range b.Runs {
		switch {
		case e.Run.Status == agent.Queued:
			r.queue.push(taskOf(e.Run))
		case e.Run.Status.Terminal():
			r.stats.ended(e.Run.Status)
			r.watches.ended(e.Run.ID)
			r.boxEnded(e.Run)
		}
	}
}

// An instance keeps the newest of its own events.
const (
	keepEvents = 10_000
	trimEach   = 64 // turns
)

// trimEvents lets go of old events, once in a while: in the first turn of an instance that was asleep, and in others.
func (r *Runtime) trimEvents(ctx context.Context, t *durable.Turn) {
	m := memoryOf(t)
	if m.turns++; m.turns%trimEach != 1 {
		return
	}
	first, last, err := r.store.Bounds(ctx, store.InstanceLog(t.ID(), ownEvents))
	if err == nil && last-first >= keepEvents {
		err = t.Trim(ctx, instance.OwnLog(ownEvents), last-keepEvents+1)
	}
	if err != nil {
		r.log.WarnContext(ctx, "old events of an instance were not removed and will be later", "instance", t.ID().Key, "error", err)
	}
}
