package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// instanceOf is the instance that a writer commits turns to.
func instanceOf(s *store.Store, writer int) (instance.ID, error) {
	a, err := s.Agent(context.Background(), app, "a")
	return instance.ID{App: app, Agent: a.ID, Key: strconv.Itoa(writer)}, err
}

// entry is what the journal has of a turn: its number and its run.
func entry(turn int64, run agent.RunID) string { return fmt.Sprintf("%d %s", turn, run) }

// firstMessage is the number below the first message of an instance, which was made in its first epoch.
const firstMessage = 1 << 32

// turnOf is a commit that has the number of its turn in every part, and ends what the turn before began.
func turnOf(id instance.ID, writer int, turn int64, now, before agent.RunID) *instance.Batch {
	data := strconv.AppendInt(nil, turn, 10)
	run := agent.Run{App: app, ID: now, Session: session(writer), Input: agent.Payload{Type: agent.TypeText, Body: data}}
	b := &instance.Batch{
		ID:    instance.NewBatchID(),
		State: []agent.StateEdit{{Act: agent.StateSet, Key: "n", Value: agent.Text(string(data))}},
		Events: []instance.Append{
			{Log: instance.OwnLog("l"), Event: agent.Event{Kind: agent.EventEmit, Data: data}},
			{Log: instance.SessionLog(session(writer)), Event: agent.Event{Kind: agent.EventRunQueued, Run: run.ID, Data: data}},
		},
		Journal: []instance.Entry{{Run: "J", Data: []byte(entry(turn, now))}},
		Alarms:  []instance.AlarmEdit{{Alarm: instance.Alarm{Name: string(data), At: time.UnixMilli(turn), Data: data}}},
		Outbox:  []instance.Send{{To: id, Data: data}},
		Runs:    []instance.RunEdit{{Run: run}},
	}
	if turn > 1 {
		old := []instance.Mark{{Peer: id, Seq: firstMessage + turn - 1, Oldest: true}}
		b.Alarms = append(b.Alarms, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: strconv.FormatInt(turn-1, 10)}})
		b.Sent, b.Inbox = old, old
		ended := agent.Run{App: app, ID: before, Status: agent.Completed}
		b.Runs = append(b.Runs, instance.RunEdit{From: agent.Queued, Run: ended})
	}
	return b
}

// turn commits the next turn of a writer's instance. One that the disk had no room for is tried again the next time.
func (w *writer) turn(ctx context.Context, i int) (ack, error) {
	f, run := w.fences[i], agent.NewRunID(time.Now())
	res, err := w.store.Instances().Commit(ctx, w.ids[i], f, turnOf(w.ids[i], i, f.Head+1, run, w.runs[i]))
	if err != nil {
		return ack{}, err
	}
	w.fences[i], w.runs[i] = res.Fence, run
	return ack{What: "turn", ID: w.ids[i].Key, Seq: res.Fence.Head}, nil
}

// acquire makes the writers the owners of their instances, and prints where those are: the turn that was under way when the process
// before was killed may have been the last.
func (w *writer) acquire(ctx context.Context) error {
	for i := range writers {
		id, err := instanceOf(w.store, i)
		if err != nil {
			return err
		}
		info, err := w.store.Instances().Acquire(ctx, id, instance.ID{})
		if err != nil {
			return err
		}
		w.ids[i], w.fences[i] = id, info.Fence
		if info.Fence.Head == 0 {
			continue
		}
		es, err := w.store.Instances().ReadJournal(ctx, id, "J", info.Fence.Head-1, 1)
		if err != nil || len(es) != 1 {
			return fmt.Errorf("entry %d of the journal of instance %s is missing: %w", info.Fence.Head, id.Key, err)
		}
		if _, err := fmt.Sscanf(string(es[0].Data), "%d %s", new(int64), &w.runs[i]); err != nil {
			return err
		}
		w.print(ack{What: "at", ID: id.Key, Seq: info.Fence.Head})
	}
	return nil
}

// instances checks that each instance is at the turn that was acknowledged or at the one after, in all of its parts.
func (o *outcome) instances(ctx context.Context, s *store.Store, turns map[string]int64) {
	due, dueErr := dueAlarms(ctx, s.Instances())
	for i := range writers {
		c := turnCheck{o: o, s: s, in: s.Instances(), ctx: ctx, writer: i, acked: turns[strconv.Itoa(i)]}
		var err error
		if c.id, err = instanceOf(s, i); err != nil {
			c.note("agent", nil, err)
			continue
		}
		info, err := c.in.Info(ctx, c.id)
		if c.acked == 0 && errors.Is(err, instance.ErrGone) {
			continue
		}
		if err == nil && info.Fence.Head != c.acked && info.Fence.Head != c.acked+1 {
			err = agent.Errorf(agent.NotFound, "the instance is at turn %d", info.Fence.Head)
		}
		if c.note("head", nil, err); err != nil {
			continue
		}
		if c.turn = info.Fence.Head; c.turn > 0 {
			c.parts(info)
			c.note("due", []string{strconv.FormatInt(c.turn, 10)}, dueErr, due[c.id]...)
		}
	}
}

func dueAlarms(ctx context.Context, in instance.Store) (map[instance.ID][]string, error) {
	due := map[instance.ID][]string{}
	for after := instance.Cursor(""); ; {
		p, err := in.Due(ctx, time.Now(), after, 0)
		if err != nil {
			return nil, err
		}
		for _, a := range p.Alarms {
			due[a.ID] = append(due[a.ID], a.Name)
		}
		if after = p.Next; after == "" {
			return due, nil
		}
	}
}

// turnCheck reads one instance, which is at a turn.
type turnCheck struct {
	o           *outcome
	s           *store.Store
	in          instance.Store
	ctx         context.Context // of the one check
	id          instance.ID
	writer      int
	acked, turn int64
}

// note compares what was read of a part with what the turn left there.
func (c turnCheck) note(part string, want []string, err error, got ...string) {
	c.o.note(ack{What: "instance " + part, ID: c.id.Key, Seq: c.turn, Data: fmt.Sprint(want)}, fmt.Sprint(got), err)
}

func (c turnCheck) parts(info instance.Info) {
	ctx, n := c.ctx, strconv.FormatInt(c.turn, 10)
	state, err := c.in.Load(ctx, c.id, "n")
	var got []string
	for _, e := range state {
		got = append(got, fmt.Sprintf("%s@%d", e.Value.Body, e.Version))
	}
	c.note("state", []string{n + "@" + n}, err, got...)

	got = nil
	alarms, err := c.in.Alarms(ctx, c.id, "", 0)
	for _, a := range alarms {
		got = append(got, fmt.Sprintf("%s %s@%d", a.Name, a.Data, a.Gen))
	}
	c.note("alarm", []string{n + " " + n + "@" + n}, err, got...)

	seq, err := c.in.Received(ctx, c.id, c.id)
	want := int64(0)
	if c.turn > 1 {
		want = firstMessage + c.turn - 1
	}
	c.note("mark", []string{strconv.FormatInt(want, 10)}, err, strconv.FormatInt(seq, 10))
	c.note("outbox", []string{"1"}, nil, strconv.FormatInt(info.Outbox, 10))

	c.log("log", func(after int64) (next int64, err error) {
		evs, err := c.in.ReadLog(ctx, c.id, instance.OwnLog("l"), after, 0)
		for _, e := range evs {
			if after++; e.Seq != after || string(e.Data) != strconv.FormatInt(after, 10) {
				return 0, fmt.Errorf("event %d stands at %d: %s", e.Seq, after, e.Data)
			}
		}
		return after, err
	})
	runs := map[int64]agent.RunID{} // by their turns
	c.log("journal", func(after int64) (next int64, err error) {
		es, err := c.in.ReadJournal(ctx, c.id, "J", after, 0)
		for _, e := range es {
			var turn int64
			var run agent.RunID
			fmt.Sscanf(string(e.Data), "%d %s", &turn, &run)
			if after++; e.Seq != after || turn != after {
				return 0, fmt.Errorf("entry %d stands at %d: %s", e.Seq, after, e.Data)
			}
			runs[turn] = run
		}
		return after, err
	})
	for turn := max(1, c.turn-1); turn <= c.turn && runs[turn] != ""; turn++ {
		c.run(turn, runs[turn])
	}
}

// log reads a log with read, which returns the number after which to go on and refuses a wrong entry with an error without a kind.
func (c turnCheck) log(part string, read func(after int64) (int64, error)) {
	for last := int64(0); ; {
		next, err := read(last)
		var known *agent.Error
		switch {
		case err != nil && !errors.As(err, &known):
			c.note(part, []string{"entries in order"}, nil, err.Error())
			return
		case err != nil:
			c.note(part, nil, err)
			return
		case next == last:
			c.note(part, []string{strconv.FormatInt(c.turn, 10)}, nil, strconv.FormatInt(last, 10))
			return
		}
		last = next
	}
}

// run checks that the run of a turn is there and has ended when there was another turn since, and that the session's log tells of it.
func (c turnCheck) run(turn int64, id agent.RunID) {
	want := []string{strconv.FormatInt(turn, 10), agent.Completed.String()}
	if turn == c.turn {
		want[1] = agent.Queued.String()
	}
	run, err := c.s.Run(c.ctx, app, id)
	c.note("run", want, err, string(run.Input.Body), run.Status.String())
	if err != nil {
		return
	}
	evs, err := c.s.Read(c.ctx, store.SessionLog(app, session(c.writer)), run.FirstSeq-1, 1)
	if err == nil && len(evs) != 1 {
		err = agent.Errorf(agent.NotFound, "no event")
	}
	var of string
	if err == nil {
		of = string(evs[0].Run)
	}
	c.note("run's event", []string{string(id)}, err, of)
}
