package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/crashtest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

const crashOwners = 8

func crashID(a agent.AgentID, w int) instance.ID {
	return instance.ID{App: app, Agent: a, Key: strconv.Itoa(w)}
}

// turnForEver commits turn after turn to several instances of an agent, and prints each that was acknowledged.
func turnForEver(dir, a string) error {
	ctx := context.Background()
	s, _, err := openDir(ctx, dir)
	if err != nil {
		return err
	}
	var out sync.Mutex
	failed := make(chan error)
	for w := range crashOwners {
		id := crashID(agent.AgentID(a), w)
		go func() {
			failed <- turns(ctx, s.Instances(), id, func(n int) {
				out.Lock()
				defer out.Unlock()
				fmt.Printf("%d %d\n", w, n)
			})
		}()
	}
	return <-failed
}

// turns commits turns to one instance, the nth of which has n in each of its parts, and clears the alarm and the message of the one
// before.
func turns(ctx context.Context, in instance.Store, id instance.ID, acknowledged func(n int)) error {
	info, err := in.Acquire(ctx, id, instance.ID{})
	if err != nil {
		return err
	}
	f := info.Fence
	for n := int(f.Head) + 1; ; n++ {
		b := withRun(turnOf(id, n), id, n)
		b.Events[0].Event.Data = fmt.Append(nil, n)
		if n > 1 {
			b.Alarms = append(b.Alarms, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: fmt.Sprint(n - 1)}})
			b.Sent = []instance.Mark{{Peer: id, Seq: 1<<32 + int64(n-1), Oldest: true}}
			b.Inbox = b.Sent
		}
		res, err := in.Commit(ctx, id, f, b)
		if err != nil {
			return err
		}
		f = res.Fence
		acknowledged(n)
	}
}

// Instances whose process is killed again and again have every turn that was acknowledged, at most one each that was not, and
// none by half: state, logs, journal, alarm, outbox, inbox and runs are at the same turn.
func TestInstanceCrash(t *testing.T) {
	dir := t.TempDir()
	s, done := reopen(t, dir)
	a := addAgent(t, s, "a").ID
	done()
	acked := map[int]int{}
	for round := range 4 {
		crashtest.Kill(t, "turn", dir, string(a), 101+70*round, func(line string) {
			var w, turn int
			if _, err := fmt.Sscanf(line, "%d %d", &w, &turn); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			if turn != acked[w]+1 {
				t.Errorf("owner %d acknowledged turn %d after %d", w, turn, acked[w])
			}
			acked[w] = turn
		})
		s, done := reopen(t, dir)
		for w := range crashOwners {
			acked[w] = wholeTurns(t, s, crashID(a, w), acked[w])
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		done()
	}
}

// wholeTurns checks that an instance is at turn n or the one after, in all its parts, and returns which.
func wholeTurns(t *testing.T, s *store.Store, id instance.ID, n int) int {
	t.Helper()
	ctx, in := t.Context(), s.Instances()
	info, err := in.Info(ctx, id)
	if errors.Is(err, instance.ErrGone) && n == 0 {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	head := int(info.Fence.Head)
	if head != n && head != n+1 {
		t.Fatalf("instance %s is at turn %d, %d was acknowledged", id.Key, head, n)
	}
	if head == 0 {
		return 0
	}
	state := must(in.Load(ctx, id, "n"))(t)
	evs := must(in.ReadLog(ctx, id, instance.OwnLog("l"), 0, 0))(t)
	entries := must(in.ReadJournal(ctx, id, "R", 0, 0))(t)
	alarms := must(in.Alarms(ctx, id, "", 0))(t)
	if len(state) != 1 || string(state[0].Value.Body) != strconv.Itoa(head) || state[0].Version != int64(head) {
		t.Errorf("state %v at turn %d", state, head)
	}
	if len(evs) != head || string(evs[head-1].Data) != strconv.Itoa(head) {
		t.Errorf("%d events at turn %d", len(evs), head)
	}
	if len(entries) != head || string(entries[head-1].Data) != strconv.Itoa(head) {
		t.Errorf("%d entries at turn %d", len(entries), head)
	}
	if len(alarms) != 1 || alarms[0].Name != strconv.Itoa(head) || alarms[0].Gen != int64(head) {
		t.Errorf("alarms %v at turn %d", alarms, head)
	}
	for _, d := range must(in.Due(ctx, time.Now(), "", 0))(t).Alarms {
		if d.ID == id && d.Gen != int64(head) {
			t.Errorf("alarm %v is due at turn %d", d, head)
		}
	}
	if seq := must(in.Received(ctx, id, id))(t); info.Outbox != 1 || head > 1 && seq != 1<<32+int64(head-1) {
		t.Errorf("%d messages, mark %d at turn %d", info.Outbox, seq, head)
	}
	queued := must(in.ReadLog(ctx, id, instance.SessionLog(agent.SessionID("S-"+id.Key)), 0, 0))(t)
	if len(queued) != head || queued[head-1].Run != turnRun(id, head) {
		t.Errorf("%d events of the session at turn %d", len(queued), head)
	}
	if run := must(s.Run(ctx, app, turnRun(id, head)))(t); run.Status != agent.Queued || run.FirstSeq != int64(head) {
		t.Errorf("run %+v at turn %d", run, head)
	}
	if head > 1 && must(s.Run(ctx, app, turnRun(id, head-1)))(t).Status != agent.Completed {
		t.Errorf("the run before has not ended at turn %d", head)
	}
	if _, err := s.Run(ctx, app, turnRun(id, head+1)); agent.KindOf(err) != agent.NotFound {
		t.Errorf("a run after turn %d: %v", head, err)
	}
	return head
}
