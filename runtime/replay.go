package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// maxShown is how much of a result a person is shown.
const maxShown = 4 << 10

// Journal returns one page of a run's journal.
func (r *Runtime) Journal(ctx context.Context, app agent.App, id agent.RunID, after int64, limit int) ([]agent.JournalEntry, error) {
	if limit == 0 {
		limit = agent.DefaultPage
	}
	if limit < 0 || limit > agent.MaxPage {
		return nil, agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and %d", limit, agent.MaxPage)
	}
	run, err := r.store.Run(ctx, app, id)
	if err != nil {
		return nil, err
	}
	out := []agent.JournalEntry{}
	seq := int64(0)
	err = r.eachEntryOf(ctx, run, func(e journal.Entry) error {
		if seq++; seq <= after {
			return nil
		}
		if len(out) == limit {
			return io.EOF
		}
		out = append(out, shown(seq, &e))
		return nil
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return out, err
}

// eachEntryOf reads the journal of a run, which is empty when its instance or its agent is gone.
func (r *Runtime) eachEntryOf(ctx context.Context, run agent.Run, fn func(journal.Entry) error) error {
	id, err := r.instanceOfRun(ctx, run)
	if err == nil {
		err = r.eachEntry(ctx, id, run.ID, fn)
	}
	return ignoreGone(err)
}

func shown(seq int64, e *journal.Entry) agent.JournalEntry {
	out := agent.JournalEntry{Seq: seq, Kind: e.Kind.String(), Time: e.Time, Call: e.Call, Name: e.Name, Bytes: e.Bytes}
	if e.Err != nil {
		out.Error = agent.ErrorOf(e.Err)
	}
	switch e.Kind {
	case journal.Life, journal.Crash:
		out.Life = int(e.Count)
	case journal.Snapshot:
		out.Bytes = max(int64(len(e.Out)), 0)
		return out
	case journal.Mark:
		out.Bytes = 0
		return out
	case journal.Start, journal.Done, journal.Deliver, journal.Answered, journal.Judged:
		if e.Class != journal.UnknownClass {
			out.Class = e.Class.String()
		}
	}
	if e.Text != "" {
		out.Input = encode(e.Text)
	}
	if len(e.Out) > 0 {
		out.Bytes = int64(len(e.Out))
		out.Output = encode(phrase.Clip(string(bytes.ToValidUTF8(e.Out, []byte("\uFFFD"))), maxShown))
		if len(e.Out) <= maxShown && json.Valid(e.Out) {
			out.Output = bytes.Clone(e.Out)
		}
	}
	return out
}

// ReplayRequest says with what a run is played again: its own code, another version, or code given here.
type ReplayRequest struct {
	Plugin string        // reference; empty for the run's own
	Source *agent.Source // code of this text; nil for Plugin
}

// player plays a journal offline.
type player struct {
	r      *Runtime
	view   *journal.View
	random *stream
	self   []byte
	stop   context.CancelFunc
	script bool // its rest tells that the journal has no more

	mu     sync.Mutex
	clock  time.Time
	next   uint64
	times  []time.Time
	played map[uint64]time.Time
	calls  int
	ended  bool // the journal has no more
	diff   *agent.ReplayDifference
}

// ReplayRun plays a run again, offline: nothing leaves, nothing is changed.
func (r *Runtime) ReplayRun(ctx context.Context, app agent.App, id agent.RunID, req ReplayRequest) (agent.Replay, error) {
	run, err := r.store.Run(ctx, app, id)
	if err != nil {
		return agent.Replay{}, err
	}
	v := journal.NewView()
	v.Whole = true
	if err := r.eachEntryOf(ctx, run, func(e journal.Entry) error { v.Add(e); return nil }); err != nil {
		return agent.Replay{}, err
	}
	if !v.Begun {
		return agent.Replay{}, agent.Errorf(agent.NotFound, "run %s has no journal: it has not begun, or it was so long ago that its journal is gone", id)
	}
	digest, kind := run.Plugin, agent.UnknownCode
	if run.Code && req.Source == nil && req.Plugin == "" {
		src, err := r.LoadSource(ctx, run.Plugin)
		if err != nil {
			return agent.Replay{}, err
		}
		req.Source = &src
	}
	if req.Source != nil {
		kind = req.Source.Kind
	} else {
		ref := req.Plugin
		if ref == "" {
			ref = string(run.Plugin)
		}
		p, err := r.records.plugin(ctx, r.store, recordKey{app, ref})
		if err != nil {
			return agent.Replay{}, err
		}
		digest, kind = p.Digest, p.Kind
	}
	rec, limits, err := r.admitCode(ctx, app, run.Agent, agent.Limits{})
	if err != nil {
		return agent.Replay{}, err
	}
	of, err := r.instanceOfRun(ctx, run)
	if err != nil {
		return agent.Replay{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &player{r: r, view: v, random: newStream(v.Seed, 0), stop: stop, clock: v.Began, played: map[uint64]time.Time{}}
	p.self = encode(abi.Self{Agent: run.Agent, Key: of.Key, Session: string(run.Session), Run: string(id), Version: string(run.Plugin)})
	c := host.Call{
		Plugin: digest, Tenant: app, Agent: run.Agent, Weight: rec.weight, Function: run.Function, Input: run.Input, Config: rec.agent.Config,
		Limits: limits, Now: p.now, Random: p.random,
	}
	c.Calls = p.answer
	if p.script = kind == agent.Script; p.script {
		if c.Waiting, err = p.waiting(ctx); err != nil {
			return agent.Replay{}, err
		}
	} else {
		for _, d := range v.Deliveries {
			p.played[d.Call] = d.Time
		}
	}
	j := job{
		Subject: grant.Subject{App: app, Agent: run.Agent, ID: rec.agent.ID}, kind: agent.UseCode, function: run.Function, input: run.Input,
		limits: limits, weight: rec.weight, quota: rec.agent.Quota, appQuota: rec.quota, sinks: sinks{line: new(lineList).add},
	}
	var res host.Result
	err = r.inCell(ctx, j, func(ctx context.Context, made host.Call) (agent.Usage, error) {
		c.Limits = made.Limits
		var err error
		if req.Source != nil {
			res, err = r.cells.Eval(ctx, *req.Source, c)
		} else {
			res, err = r.cells.Call(ctx, c)
		}
		return res.Usage, err
	})
	return p.compare(run, res, err), nil
}

func (p *player) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock
}

// waiting delivers all that the code of a script got.
func (p *player) waiting(ctx context.Context) (*host.Waiting, error) {
	w := &host.Waiting{
		Rest: func(context.Context, host.Pending) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ended = true
			return true
		},
		Delivered: func(host.Delivery) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.times) > 0 {
				p.clock, p.times = p.times[0], p.times[1:]
			}
		},
		Diverged: func(d host.Delivery, now host.Pending) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.diff == nil {
				p.diff = differenceOf(p.view, d, now)
			}
		},
	}
	for _, d := range p.view.Deliveries {
		given := host.Delivery{ID: d.Call}
		if d.Call != 0 {
			c := p.view.Calls[d.Call]
			given.Name, given.Sum = c.Name, c.Sum
			var err error
			if given.Out, err = p.r.resultOf(ctx, c.Result); err != nil && c.Err == nil {
				return nil, err
			}
			given.Err = err
			p.calls++
		}
		w.Deliver = append(w.Deliver, given)
		p.times = append(p.times, d.Time)
	}
	return w, nil
}

// answer answers from the journal alone.
func (p *player) answer(ctx context.Context, name string, in []byte) ([]byte, error) {
	if name == abi.CallLog || name == abi.CallHTTPClose {
		return nil, nil
	}
	pending := host.PendingCall{Name: name, Input: in}
	p.mu.Lock()
	n := host.Number(ctx)
	if n == 0 {
		p.next++
		n = p.next
	}
	c := p.view.Calls[n]
	if c != nil && c.Name != "" && c.Sum != (journal.Sum{}) && c.Sum != pending.Sum() {
		if p.diff == nil {
			p.diff = &agent.ReplayDifference{Call: n, Was: journal.Describe(c.Name, c.Text), Now: describeNow(c, name, in)}
		}
		p.stop()
		p.mu.Unlock()
		return nil, errGoneAway
	}
	if c != nil && c.Known {
		p.calls++
		if at := p.played[n]; at.After(p.clock) {
			p.clock = at
		}
		p.mu.Unlock()
		return p.r.resultOf(ctx, c.Result)
	}
	p.mu.Unlock()
	switch name {
	case abi.CallEmit, abi.CallStepBegin, abi.CallStepEnd:
		return nil, nil
	case abi.CallSelf:
		return p.self, nil
	}
	if p.script && !whileItRuns(name) { // the code may come to its end without, as it did then
		<-ctx.Done()
		return nil, errGoneAway
	}
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.stop()
	return nil, errGoneAway
}

// compare says how the two differ.
func (p *player) compare(run agent.Run, res host.Result, err error) agent.Replay {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := agent.Replay{Calls: p.calls, Complete: p.view.Ended, Difference: p.diff}
	played := err == nil && res.Suspended == nil
	if played {
		out.Output = &res.Output
	} else if err != nil && !p.ended && p.diff == nil {
		out.Error = clipped(agent.ErrorOf(err))
	}
	switch {
	case p.diff != nil:
	case p.ended || res.Suspended != nil: // it has come as far as the journal goes
		if run.Status == agent.Completed {
			out.Difference = &agent.ReplayDifference{Was: resultText(run.Output, nil), Now: "the code waits for more than the journal has"}
		}
	case run.Status == agent.Completed || run.Status == agent.RunFailed:
		if was, now := resultText(run.Output, run.Error), resultText(out.Output, out.Error); was != now {
			out.Difference = &agent.ReplayDifference{Was: phrase.Clip(was, maxShown), Now: phrase.Clip(now, maxShown)}
		}
	case !run.Status.Terminal():
		out.Difference = &agent.ReplayDifference{Was: "the run is " + run.Status.String(), Now: resultText(out.Output, out.Error)}
	}
	out.Same = out.Difference == nil
	return out
}

func resultText(out *agent.Payload, err *agent.RunError) string {
	if err != nil {
		return fmt.Sprintf("%s: %s", err.Kind, err.Msg)
	}
	if out == nil {
		return "nothing"
	}
	return string(encode(out))
}

// RestartRun starts a new run that has the journal of another up to where a step began, and goes on from there. An empty step is
// the beginning. The new run belongs to the same session. It runs the code of the other, or with newCode what its agent runs now: that has to do
// the same up to the step, or else the run fails as one that diverges.
func (r *Runtime) RestartRun(ctx context.Context, app agent.App, id agent.RunID, step string, newCode bool) (agent.Run, error) {
	old, err := r.store.Run(ctx, app, id)
	if err != nil {
		return agent.Run{}, err
	}
	var all []journal.Entry
	if err := r.eachEntryOf(ctx, old, func(e journal.Entry) error { all = append(all, e); return nil }); err != nil {
		return agent.Run{}, err
	}
	entries, ok := journal.Until(all, step)
	if !ok {
		return agent.Run{}, agent.Errorf(agent.NotFound, "the journal of run %s has no step %.80q", id, step)
	}
	of, err := r.instanceOfRun(ctx, old)
	if err != nil {
		return agent.Run{}, err
	}
	t, err := r.keeper.Enter(ctx, of, durable.Entry{})
	if err != nil {
		return agent.Run{}, err
	}
	defer t.Abandon()
	now := time.Now().UTC()
	run := agent.Run{
		App: app, ID: agent.NewRunID(now), Session: old.Session, Agent: old.Agent, Plugin: old.Plugin, Function: old.Function, Input: old.Input,
		Status: agent.Paused, Created: now, Trace: old.Trace, Code: old.Code, Tools: old.Tools,
	}
	switch {
	case newCode && old.Code:
		return agent.Run{}, agent.Errorf(agent.Invalid, "run %s is of a script that was given with it: there is no other code to take", id)
	case newCode:
		rec, err := r.records.resolve(ctx, r.store, app, old.Agent)
		if err != nil {
			return agent.Run{}, err
		}
		run.Plugin = rec.plugin.Digest
		entries = slices.DeleteFunc(entries, func(e journal.Entry) bool { return e.Kind == journal.Snapshot }) // of the old code's memory
	}
	for _, e := range journal.Pack(run.ID, entries) { // of a run that is not there yet, so that it may take several commits
		if err := t.Journal(ctx, e); err != nil {
			return agent.Run{}, err
		}
	}
	run.Status = agent.Queued
	if err := t.Append(ctx, instance.SessionLog(run.Session), agent.Event{
		Kind: agent.EventRunQueued, Run: run.ID, Time: now, Data: encode(map[string]string{"function": run.Function, "restarts": string(id), "step": step}),
	}); err != nil {
		return agent.Run{}, err
	}
	if err := t.ChangeRun(ctx, instance.RunEdit{Run: run}); err != nil {
		return agent.Run{}, err
	}
	if err := r.leave(ctx, t); err != nil {
		return agent.Run{}, err
	}
	return r.store.Run(ctx, app, run.ID)
}

// ExportRun writes a run, its events and its journal as NDJSON, clean of secrets.
func (r *Runtime) ExportRun(ctx context.Context, app agent.App, id agent.RunID, w io.Writer) error {
	run, err := r.store.Run(ctx, app, id)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	if err := out.Encode(struct {
		Kind string    `json:"kind"`
		Run  agent.Run `json:"run"`
	}{"run", run}); err != nil {
		return err
	}
	for after := max(run.FirstSeq-1, 0); ; {
		page, err := r.store.Read(ctx, store.SessionLog(app, run.Session), after, 0)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, ev := range page {
			if after = ev.Seq; ev.Run != id {
				continue
			}
			if err := out.Encode(struct {
				Kind  string      `json:"kind"`
				Event agent.Event `json:"event"`
			}{"event", ev}); err != nil {
				return err
			}
		}
	}
	seq := int64(0)
	return r.eachEntryOf(ctx, run, func(e journal.Entry) error {
		seq++
		return out.Encode(struct {
			Kind  string             `json:"kind"`
			Entry agent.JournalEntry `json:"entry"`
		}{"journal", shown(seq, &e)})
	})
}
