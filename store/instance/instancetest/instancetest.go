// Package instancetest holds the tests that every instance.Store passes, and Memory, a reference that they are held against. An
// implementation's own test calls Run.
package instancetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Rig is an empty Store, and the things beside it that instances belong to, all in agent.DefaultApp. Session and Run read what is
// stored, and say NotFound of what is not.
type Rig struct {
	Store       instance.Store
	AddAgent    func(id agent.AgentID)
	RemoveAgent func(id agent.AgentID)
	AddSession  func(s agent.SessionID, with instance.ID)
	Session     func(id agent.SessionID) (agent.Session, error)
	Run         func(id agent.RunID) (agent.Run, error)
	Check       func() error // looks through all that is stored; nil for none
}

// Run tests the Stores that open returns.
func Run(t *testing.T, open func(t *testing.T) Rig) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Rig)
	}{
		{"Acquire", testAcquire}, {"Fence", testFence}, {"Zombie", testZombie}, {"Resubmit", testResubmit}, {"Resolve", testResolve},
		{"Atomic", testAtomic}, {"State", testState}, {"StateConflict", testStateConflict}, {"StateBounds", testStateBounds},
		{"Logs", testLogs}, {"Sessions", testSessions}, {"Journal", testJournal}, {"Journals", testJournals}, {"Trim", testTrim},
		{"Runs", testRuns}, {"RunsRefused", testRunsRefused}, {"RunsTwice", testRunsTwice}, {"Asks", testAsks}, {"Large", testLarge},
		{"Alarms", testAlarms}, {"Due", testDue}, {"DueClock", testDueClock}, {"DueOn", testDueOn}, {"ManyAlarms", testManyAlarms},
		{"Outbox", testOutbox}, {"Inbox", testInbox}, {"Lives", testLives}, {"Children", testChildren}, {"Snapshot", testSnapshot},
		{"List", testList}, {"Delete", testDelete}, {"DeleteRace", testDeleteRace}, {"RemoveAgent", testRemoveAgent},
		{"Limits", testLimits}, {"Invalid", testInvalid}, {"Cancelled", testCancelled},
		{"Owners", testOwners}, {"Rivals", testRivals}, {"Random", testRandom},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig := open(t)
			rig.AddAgent(agentID)
			c.test(t, rig)
			if rig.Check != nil {
				if err := rig.Check(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

const (
	app     = agent.DefaultApp
	agentID = agent.AgentID("01AGENT")
)

var ctx = context.Background()

func name(key string) instance.ID { return instance.ID{App: app, Agent: agentID, Key: key} }

// owner is an instance and its newest fence.
type owner struct {
	t  *testing.T
	s  instance.Store
	id instance.ID
	f  instance.Fence
}

func acquire(t *testing.T, s instance.Store, key string) *owner {
	t.Helper()
	info, err := s.Acquire(ctx, name(key), instance.ID{})
	if err != nil {
		t.Fatal(err)
	}
	return &owner{t, s, name(key), info.Fence}
}

// commit commits b, which must work, under a new id.
func (o *owner) commit(b instance.Batch) instance.Result {
	o.t.Helper()
	b.ID = instance.NewBatchID()
	res, err := o.s.Commit(ctx, o.id, o.f, &b)
	if err != nil {
		o.t.Fatal(err)
	}
	if want := (instance.Fence{Epoch: o.f.Epoch, Head: o.f.Head + 1}); res.Fence != want {
		o.t.Fatalf("commit at %v leads to %v", o.f, res.Fence)
	}
	o.f = res.Fence
	i := o.info()
	same(o.t, instance.Counts{LogBytes: i.LogBytes, Alarms: i.Alarms, Outbox: i.Outbox, Children: i.Children}, res.Counts)
	return res
}

// refuse commits b, which must fail with err and change nothing.
func (o *owner) refuse(b instance.Batch, want error) {
	o.t.Helper()
	b.ID = instance.NewBatchID()
	was := o.info()
	_, err := o.s.Commit(ctx, o.id, o.f, &b)
	wantIs(o.t, err, want)
	same(o.t, was, o.info())
}

func (o *owner) info() instance.Info {
	o.t.Helper()
	info, err := o.s.Info(ctx, o.id)
	if err != nil {
		o.t.Fatal(err)
	}
	return info
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
}

// wantIs checks that err is want, with the kind that belongs to it.
func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
	kind := map[error]agent.Kind{
		instance.ErrFenced: agent.Conflict, instance.ErrUnknown: agent.Unavailable, instance.ErrGone: agent.NotFound,
		instance.ErrSeen: agent.Conflict, instance.ErrOrder: agent.Conflict, instance.ErrTooBig: agent.Invalid, instance.ErrCorrupt: agent.Internal,
	}[want]
	wantKind(t, err, kind)
}

func wantKind(t *testing.T, err error, kind agent.Kind) {
	t.Helper()
	if err == nil || agent.KindOf(err) != kind {
		t.Fatalf("error is %v of kind %s, want one of kind %s", err, agent.KindOf(err), kind)
	}
}

func set(key, value string) agent.StateEdit {
	return agent.StateEdit{Act: agent.StateSet, Key: key, Value: agent.Text(value)}
}

func when(e agent.StateEdit, version int64) agent.StateEdit {
	e.If = &version
	return e
}

func event(data any) agent.Event {
	return agent.Event{Kind: agent.EventEmit, Name: "n", Data: fmt.Appendf(nil, "%q", fmt.Sprint(data))}
}

func emit(log string, data any) instance.Append {
	return instance.Append{Log: instance.OwnLog(log), Event: event(data)}
}

func alarm(name string, unix int64) instance.AlarmEdit {
	return instance.AlarmEdit{Alarm: instance.Alarm{Name: name, At: at(unix)}}
}

func clear(name string) instance.AlarmEdit {
	return instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: name}}
}

// state returns a whole state as "key=value@version", page by page.
func (o *owner) state(r agent.StateRange) (out []string) {
	o.t.Helper()
	for {
		page, next, err := o.s.Scan(ctx, o.id, r)
		if err != nil {
			o.t.Fatal(err)
		}
		for _, e := range page {
			out = append(out, fmt.Sprintf("%s=%s@%d", e.Key, e.Value.Body, e.Version))
		}
		if next == "" {
			return out
		}
		r.After = next
	}
}

// log returns what is left of a log as "seq data".
func (o *owner) log(l instance.Log) (out []string) {
	o.t.Helper()
	evs, err := o.s.ReadLog(ctx, o.id, l, 0, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, e := range evs {
		out = append(out, fmt.Sprintf("%d %s", e.Seq, e.Data))
	}
	return out
}

// journal returns what is left of a journal as "seq data".
func (o *owner) journal(run agent.RunID) (out []string) {
	o.t.Helper()
	es, err := o.s.ReadJournal(ctx, o.id, run, 0, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, e := range es {
		out = append(out, fmt.Sprintf("%d %s", e.Seq, e.Data))
	}
	return out
}
