package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/instance/instancetest"
)

const agentID = agent.AgentID("01AGENT")

func name(key string) instance.ID {
	return instance.ID{App: agent.DefaultApp, Agent: agentID, Key: key}
}

var bounds = agent.StateGrant{}.Or()

// rig is a Keeper over a memory store whose operations fail when a test says so.
type rig struct {
	*durable.Keeper
	t      *testing.T
	memory *instancetest.Memory
	store  *instancetest.Faulty
	fault  func(instancetest.Op) instancetest.Fault
}

func newRig(t *testing.T, o durable.Options) *rig {
	r := &rig{t: t, memory: instancetest.NewMemory(nil)}
	r.memory.AddAgent(agent.DefaultApp, agentID)
	r.store = &instancetest.Faulty{Store: r.memory, Fault: func(op instancetest.Op) instancetest.Fault {
		if r.fault != nil {
			return r.fault(op)
		}
		return instancetest.Fault{}
	}}
	r.Keeper = durable.New(r.store, &o)
	return r
}

// next is another Keeper over the same store.
func (r *rig) next(o durable.Options) *rig {
	n := *r
	n.Keeper = durable.New(r.store, &o)
	return &n
}

// bubble runs a test whose time passes as fast as it can.
func bubble(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

// start runs the Keeper until the function it returns is called.
func (r *rig) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { r.Run(ctx) })
	return func() { cancel(); done.Wait() }
}

func pass(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func (r *rig) enter(key string) *durable.Turn {
	r.t.Helper()
	t, err := r.Enter(r.t.Context(), name(key), durable.Entry{})
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

// turn does f in a turn of its own and commits it.
func (r *rig) turn(key string, f func(*durable.Turn)) {
	r.t.Helper()
	t := r.enter(key)
	f(t)
	if err := t.Leave(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func set(key, value string) agent.StateEdit {
	return agent.StateEdit{Act: agent.StateSet, Key: key, Value: agent.Text(value)}
}

func (r *rig) set(t *durable.Turn, key, value string) {
	r.t.Helper()
	if _, err := t.Edit(r.t.Context(), bounds, set(key, value)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) get(t *durable.Turn, key string) string {
	r.t.Helper()
	got, err := t.Get(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(got) == 0 {
		return ""
	}
	return string(got[0].Value.Body)
}

// count adds one to a number in the state, and returns it.
func count(ctx context.Context, t *durable.Turn, key string) (int, error) {
	got, err := t.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	n := 0
	if len(got) > 0 {
		if _, err := fmt.Sscan(string(got[0].Value.Body), &n); err != nil {
			return 0, err
		}
	}
	_, err = t.Edit(ctx, bounds, set(key, fmt.Sprint(n+1)))
	return n + 1, err
}

func (r *rig) setAlarm(t *durable.Turn, e instance.AlarmEdit) {
	r.t.Helper()
	if err := t.SetAlarm(r.t.Context(), e); err != nil {
		r.t.Fatal(err)
	}
}

func alarm(name string, at time.Time) instance.AlarmEdit {
	return instance.AlarmEdit{Alarm: instance.Alarm{Name: name, At: at}}
}

func cleared(name string, gen int64) instance.AlarmEdit {
	return instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: name, Gen: gen}}
}

// stored returns what the store has of a key.
func (r *rig) stored(key, state string) string {
	r.t.Helper()
	got, err := r.memory.Load(context.Background(), name(key), state)
	if err != nil && !errors.Is(err, instance.ErrGone) {
		r.t.Fatal(err)
	}
	if len(got) == 0 {
		return ""
	}
	return string(got[0].Value.Body)
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func wantKind(t *testing.T, err error, kind agent.Kind) {
	t.Helper()
	if err == nil || agent.KindOf(err) != kind {
		t.Fatalf("error is %v, want one of kind %s", err, kind)
	}
}

func wantList[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
