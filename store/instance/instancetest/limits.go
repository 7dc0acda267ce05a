package instancetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Each bound of a batch is reached, and a step past it is refused.
func testLimits(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, strings.Repeat("\x01", instance.MaxKey)) // as long as keys get, however a store escapes them
	long := func(n int) []byte { return []byte(strings.Repeat("x", n)) }
	text := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	ops := func(n int) (b instance.Batch) {
		for i := range n {
			name := fmt.Sprintf("%03d%s", i, strings.Repeat("\x02", instance.MaxAlarmName-3))
			b.Alarms = append(b.Alarms, instance.AlarmEdit{Alarm: instance.Alarm{Name: name, At: at(int64(i))}})
		}
		return b
	}
	size := func(n int) (b instance.Batch) {
		for n > 0 {
			part := min(n, instance.MaxData)
			b.Journal = append(b.Journal, instance.Entry{Run: "R", Data: long(part)})
			n -= part
		}
		return b
	}
	mixed := func(n int) (b instance.Batch) { // as many bytes in as many parts as there may be
		for i := range instance.MaxOps {
			part := n / (instance.MaxOps - i)
			n -= part
			b.Outbox = append(b.Outbox, instance.Send{To: o.id, Data: long(part)})
		}
		return b
	}
	keys := func(n int) (b instance.Batch) {
		for i := 0; n > 0; i++ {
			k := strings.Repeat("\x03", agent.MaxStateKey-4) + fmt.Sprintf("%04d", i)
			part := max(0, min(n-3*len(k)-len(agent.TypeText), agent.MaxStateValue))
			b.State = append(b.State, set(k, string(long(part))))
			n = max(0, n-part-3*len(k)-len(agent.TypeText))
			if i < 300 {
				b.State[i].Value.Body = nil
				n += part
			}
		}
		return b
	}
	events := func(n int) (b instance.Batch) { // each counts as MaxInline
		for range n {
			b.Events = append(b.Events, instance.Append{Log: instance.OwnLog("l"), Event: agent.Event{Kind: agent.EventEmit, Data: text(instance.MaxData)}})
		}
		return b
	}
	rig.AddSession("01SESSION", o.id)
	runs := func(prefix string, n int, sessions bool) (b instance.Batch) {
		for i := range n {
			id := fmt.Sprintf("%s%063d", prefix, i)
			e := newRun(o, agent.RunID(id), "01SESSION", false)
			if sessions {
				e = newRun(o, agent.RunID(id), agent.SessionID(id), true)
			}
			b.Runs = append(b.Runs, e)
		}
		return b
	}
	inputs := func(prefix string, n int) instance.Batch {
		b := runs(prefix, n, false)
		for i := range b.Runs {
			b.Runs[i].Run.Input.Body = long(instance.MaxInline)
		}
		return b
	}
	blobs := func(n int) (ds []agent.Digest) {
		for i := range n {
			ds = append(ds, agent.DigestOf(fmt.Append(nil, i)))
		}
		return ds
	}
	for _, c := range []struct {
		name     string
		at, past instance.Batch
	}{
		{"parts", ops(instance.MaxOps), ops(instance.MaxOps + 1)},
		{"bytes", size(instance.MaxBytes), size(instance.MaxBytes + 1)},
		{"bytes and parts", mixed(instance.MaxBytes), mixed(instance.MaxBytes + 1)},
		{"keys", keys(instance.MaxBytes), keys(instance.MaxBytes + 1)},
		{"events", events(10), events(11)},
		{"runs", runs("a", instance.MaxOps, false), runs("b", instance.MaxOps+1, false)},
		{"runs and sessions", runs("c", instance.MaxOps/2, true), runs("d", instance.MaxOps/2+1, true)},
		{"inputs", inputs("e", 10), inputs("f", 11)},
		{"entry", instance.Batch{Journal: []instance.Entry{{Run: "R", Data: long(instance.MaxData)}}},
			instance.Batch{Journal: []instance.Entry{{Run: "R", Data: long(instance.MaxData + 1)}}}},
		{"alarm", instance.Batch{Alarms: []instance.AlarmEdit{{Alarm: instance.Alarm{Name: "a", At: at(1), Data: long(instance.MaxData)}}}},
			instance.Batch{Alarms: []instance.AlarmEdit{{Alarm: instance.Alarm{Name: "a", At: at(1), Data: long(instance.MaxData + 1)}}}}},
		{"message", instance.Batch{Outbox: []instance.Send{{To: o.id, Data: long(instance.MaxData)}}},
			instance.Batch{Outbox: []instance.Send{{To: o.id, Data: long(instance.MaxData + 1)}}}},
		{"snapshot", instance.Batch{Snapshot: &instance.Snapshot{Data: long(instance.MaxSnapshot)}},
			instance.Batch{Snapshot: &instance.Snapshot{Data: long(instance.MaxSnapshot + 1)}}},
		{"blobs", instance.Batch{}, instance.Batch{Snapshot: &instance.Snapshot{Blobs: blobs(instance.MaxBlobs + 1)}}},
	} {
		c.at.ID, c.past.ID = instance.NewBatchID(), instance.NewBatchID()
		res, err := o.s.Commit(ctx, o.id, o.f, &c.at)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		o.f = res.Fence
		_, err = o.s.Commit(ctx, o.id, o.f, &c.past)
		wantIs(t, err, instance.ErrTooBig)
	}
	if n := len(outgoing(t, o.s, 0)); n != instance.MaxOps+1 {
		t.Errorf("%d messages", n)
	}
	if got, _ := due(t, o.s, at(1000), 0); len(got) != instance.MaxOps+1 {
		t.Errorf("%d alarms", len(got))
	}
}

func testInvalid(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	for _, id := range []instance.ID{
		{}, name(""), name(strings.Repeat("x", instance.MaxKey+1)), name("\xff"), {App: app, Key: "k"}, {Agent: agentID, Key: "k"},
		{App: "a/b", Agent: agentID, Key: "k"}, {App: app, Agent: "a/b", Key: "k"},
	} {
		_, err := o.s.Acquire(ctx, id, instance.ID{})
		wantKind(t, err, agent.Invalid)
		_, err = o.s.Info(ctx, id)
		wantKind(t, err, agent.Invalid)
		_, err = o.s.Commit(ctx, id, o.f, &instance.Batch{ID: instance.NewBatchID()})
		wantKind(t, err, agent.Invalid)
	}
	foreign := instance.ID{App: "other", Agent: agentID, Key: "k"}
	early, late := alarm("a", -1), alarm("a", 1)
	late.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, b := range []instance.Batch{
		{State: []agent.StateEdit{{Key: "k"}}}, {State: []agent.StateEdit{set("", "v")}},
		{Events: []instance.Append{{Event: event(1)}}}, {Events: []instance.Append{emit("a/b", 1)}}, {Events: []instance.Append{emit("..", 1)}},
		{Events: []instance.Append{{Log: instance.Log{Name: "l", Session: "S"}, Event: event(1)}}},
		{Events: []instance.Append{{Log: instance.Journal("R"), Event: event(1)}}},
		{Journal: []instance.Entry{{}}}, {Journal: []instance.Entry{{Run: "a/b"}}}, {Journal: []instance.Entry{{Run: "R", Blobs: []agent.Digest{"x"}}}},
		{Alarms: []instance.AlarmEdit{alarm("", 1)}}, {Alarms: []instance.AlarmEdit{alarm("\xff", 1)}},
		{Alarms: []instance.AlarmEdit{alarm(strings.Repeat("x", instance.MaxAlarmName+1), 1)}},
		{Alarms: []instance.AlarmEdit{early}}, {Alarms: []instance.AlarmEdit{late}}, {Alarms: []instance.AlarmEdit{{Alarm: instance.Alarm{Name: "a"}}}},
		{Outbox: []instance.Send{{To: foreign}}}, {Outbox: []instance.Send{{}}},
		{Inbox: []instance.Mark{{Peer: foreign, Seq: 1}}}, {Inbox: []instance.Mark{{Peer: o.id}}}, {Sent: []instance.Mark{{Peer: o.id, Seq: -1}}},
		{Children: []instance.Child{{ID: o.id}}}, {Children: []instance.Child{{ID: foreign}}}, {Children: []instance.Child{{}}},
		{Snapshot: &instance.Snapshot{Blobs: []agent.Digest{"sha256:12"}}},
	} {
		o.refuseKind(b, agent.Invalid)
	}
	_, err := o.s.Commit(ctx, o.id, o.f, &instance.Batch{})
	wantKind(t, err, agent.Invalid)
	_, err = o.s.Due(ctx, at(1), "", instance.MaxPage+1)
	wantKind(t, err, agent.Invalid)
	_, _, err = o.s.Outgoing(ctx, "", -1)
	wantKind(t, err, agent.Invalid)
	_, err = o.s.ReadLog(ctx, o.id, instance.Log{}, 0, 0)
	wantKind(t, err, agent.Invalid)
	_, err = o.s.Alarms(ctx, o.id, "", -1)
	wantKind(t, err, agent.Invalid)
}
