package runtime

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
)

// wakeRun lets a run go on whose time has come.
func (r *Runtime) wakeRun(ctx context.Context, due instance.Due, id agent.RunID) error {
	t, err := r.keeper.Enter(ctx, due.ID, durable.Entry{Exists: true})
	if agent.KindOf(err) == agent.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Abandon()
	a, there, err := t.Alarm(ctx, due.Name)
	if err != nil || !there || a.Gen != due.Gen || a.At.After(time.Now()) {
		return err // it was cleared or moved meanwhile
	}
	if err := t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: due.Name}}); err != nil {
		return err
	}
	if err := r.tellRun(ctx, t, due.ID.App, id, nil, nil); err != nil && !over(err) {
		return err
	}
	return t.Leave(ctx)
}

// over reports whether a run could not be told because it has ended.
func over(err error) bool {
	kind := agent.KindOf(err)
	return kind == agent.Conflict || kind == agent.NotFound
}

// tellRun gives a run entries of its journal, in a turn of its instance, and lets it go on when it waits.
// What answered names are questions that are open no more.
func (r *Runtime) tellRun(
	ctx context.Context, t *durable.Turn, app agent.App, id agent.RunID, entries []journal.Entry, events []agent.Event, answered ...agent.ApprovalID,
) error {
	run, err := r.store.Run(ctx, app, id)
	if err != nil {
		return err
	}
	if run.Status.Terminal() {
		return errEnded(run)
	}
	for _, e := range journal.Pack(id, entries) {
		if err := t.Journal(ctx, e); err != nil {
			return err
		}
	}
	for _, ev := range events {
		ev.Run = id
		if err := t.Append(ctx, instance.SessionLog(run.Session), ev); err != nil {
			return err
		}
	}
	x := r.executionOf(id)
	waits := run.Status == agent.Waiting || run.Status == agent.Running && x != nil && x.isDetached()
	if waits || len(answered) > 0 {
		next := run
		if waits {
			next.Status, next.Wait = agent.Queued, nil
		}
		next.Asks = without(run.Asks, answered)
		if err := t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next}); err != nil {
			return err
		}
	}
	if x != nil {
		t.Then(func() { x.arrived(entries, answered...) })
	}
	return nil
}

func (r *Runtime) executionOf(id agent.RunID) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active[id]
}

func (x *execution) isDetached() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.detached
}

// arrived takes entries that are committed already.
func (x *execution) arrived(entries []journal.Entry, answered ...agent.ApprovalID) {
	x.mu.Lock()
	x.asks = without(x.asks, answered)
	if x.view != nil {
		for _, e := range entries {
			x.view.Add(e)
			if e.Kind == journal.Terminate {
				x.terminate()
			}
		}
	}
	for _, a := range x.asked {
		a.looked = false
	}
	x.pokeLocked()
	x.mu.Unlock()
	x.ask()
}

// terminate refuses what the code waits for. The caller holds mu.
func (x *execution) terminate() {
	x.rejects = x.view.Rejected == 0
	for _, a := range x.asked {
		if a.cancel != nil && !a.returned {
			a.cancel(errTerminated())
		}
	}
}

// receiveForRun gives a run what it waits for, in a turn of its instance.
func (r *Runtime) receiveForRun(ctx context.Context, t *durable.Turn, _ instance.ID, m message) error {
	var err error
	switch m.Kind {
	case messageReply:
		e := journal.Entry{Kind: journal.Done, Call: m.Call}
		if m.Error != nil {
			e.Err = &agent.Error{Kind: m.Error.Kind, Msg: m.Error.Msg, Hint: m.Error.Hint, Limit: m.Error.Limit}
		} else if e.Out = encode(abi.AgentResult{Type: m.Type, Output: m.Body}); len(e.Out) > journal.MaxInline {
			e.Bytes = int64(len(e.Out))
			if e.Blob, err = r.store.PutBlob(ctx, e.Out); err != nil {
				return err
			}
			e.Out = nil
		}
		err = r.tellRun(ctx, t, t.ID().App, m.Run, []journal.Entry{e}, nil)
	case messageEnded:
		err = r.tellRun(ctx, t, t.ID().App, m.Run, nil, nil)
	case messageStart:
		return r.receiveStart(ctx, t, m)
	}
	if over(err) {
		return nil
	}
	return err
}

func (r *Runtime) receiveStart(ctx context.Context, t *durable.Turn, m message) error {
	rec, err := r.agentOf(ctx, t.ID())
	if err != nil {
		return err
	}
	if _, err := r.store.Run(ctx, t.ID().App, m.Of); err == nil {
		return nil // it was made before
	}
	return r.makeRun(ctx, t, rec, m)
}

// endedParent tells the run that began this one, in the commit that ends it.
func (r *Runtime) endedParent(ctx context.Context, t *durable.Turn, run agent.Run) error {
	if run.Parent == nil {
		return nil
	}
	parent, err := r.store.Run(ctx, run.App, run.Parent.Run)
	if err != nil || parent.Status.Terminal() {
		return ignoreGone(err)
	}
	id, err := r.instanceOfRun(ctx, parent)
	if err != nil {
		return ignoreGone(err)
	}
	if id == t.ID() {
		return r.tellRun(ctx, t, run.App, parent.ID, nil, nil)
	}
	return r.post(ctx, t, id, message{Kind: messageEnded, Run: parent.ID, Call: run.Parent.Call, Of: run.ID})
}

func ignoreGone(err error) error {
	if agent.KindOf(err) == agent.NotFound {
		return nil
	}
	return err
}

// instanceOfRun names the instance of a run's session.
func (r *Runtime) instanceOfRun(ctx context.Context, run agent.Run) (instance.ID, error) {
	session, err := r.store.Session(ctx, run.App, run.Session)
	if err != nil {
		return instance.ID{}, err
	}
	_, a, err := r.records.agent(ctx, r.store, recordKey{run.App, run.Agent})
	if err != nil {
		return instance.ID{}, err
	}
	return instance.ID{App: run.App, Agent: a.ID, Key: session.Key}, nil
}

// What is kept of journals of runs that have ended, for replay: the newest of each instance.
const (
	keptJournals = instance.MaxPage
	trimEvery    = 64 // runs that end
	trimmed      = 128
)

// trimJournals removes the oldest journals of an instance that has many. What fails is done another time.
func (r *Runtime) trimJournals(ctx context.Context, t *durable.Turn) {
	if r.endings.Add(1)%trimEvery != 0 {
		return
	}
	list, err := r.keeper.Store().Journals(ctx, t.ID(), "", keptJournals)
	if err != nil || len(list) < keptJournals {
		return
	}
	for _, id := range list[:trimmed] {
		run, err := r.store.Run(ctx, t.ID().App, id)
		if err == nil && !run.Status.Terminal() {
			continue
		}
		if err := t.Trim(ctx, instance.Journal(id), math.MaxInt64); err != nil {
			return
		}
	}
}

// images knows where the images of snapshots are kept: one for each version of code, of this version of Skep.
type images struct {
	mu  sync.Mutex
	has map[agent.Digest]imageOf
}

type imageOf struct{ image, blob agent.Digest }

func (m *images) there(plugin agent.Digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.has[plugin]
	return ok
}

func (m *images) put(plugin, image, blob agent.Digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.has == nil {
		m.has = map[agent.Digest]imageOf{}
	}
	m.has[plugin] = imageOf{image, blob}
	for p := range m.has {
		if len(m.has) <= maxRecords {
			break
		}
		delete(m.has, p)
	}
}

// blob returns where an image is; when that is not known the next suspension exports it.
func (m *images) blob(plugin, image agent.Digest) agent.Digest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.has[plugin]; i.image == image {
		return i.blob
	}
	delete(m.has, plugin)
	return ""
}
