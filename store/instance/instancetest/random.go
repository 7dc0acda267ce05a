package instancetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Owners of many instances commit at once, and each finds exactly what it committed.
func testOwners(t *testing.T, rig Rig) {
	const owners, turns = 64, 8
	var all sync.WaitGroup
	for i := range owners {
		o := acquire(t, rig.Store, fmt.Sprint("k", i))
		all.Go(func() {
			f := o.f
			for n := range turns {
				b := instance.Batch{
					ID: instance.NewBatchID(), State: []agent.StateEdit{set("n", fmt.Sprint(n))}, Events: []instance.Append{emit("l", n)},
					Alarms: []instance.AlarmEdit{alarm("a", int64(n))}, Outbox: []instance.Send{{To: o.id}}, Journal: []instance.Entry{{Run: "R"}},
				}
				res, err := o.s.Commit(ctx, o.id, f, &b)
				if err != nil || res.Events[0] != int64(n+1) || res.Journal[0] != int64(n+1) {
					t.Errorf("turn %d: %+v, %v", n, res, err)
					return
				}
				f = res.Fence
			}
			i, err := o.s.Info(ctx, o.id)
			if err != nil || i.Fence.Head != turns || i.Outbox != turns || i.Alarms != 1 || i.State.Keys != 1 {
				t.Errorf("%+v, %v", i, err)
			}
		})
	}
	all.Wait()
	if n := len(outgoing(t, rig.Store, 100)); n != owners*turns {
		t.Errorf("%d messages", n)
	}
	if got, _ := due(t, rig.Store, at(turns), 10); len(got) != owners {
		t.Errorf("%d alarms", len(got))
	}
}

// Many who believe that they own one instance: of those with the same fence one commits.
func testRivals(t *testing.T, rig Rig) {
	const rivals, rounds = 16, 10
	o := acquire(t, rig.Store, "k")
	for round := range rounds {
		var all sync.WaitGroup
		var mu sync.Mutex
		var won []instance.Result
		for i := range rivals {
			all.Go(func() {
				res, err := o.s.Commit(ctx, o.id, o.f, &instance.Batch{ID: instance.NewBatchID(), Events: []instance.Append{emit("l", i)}})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, res)
				} else if !errors.Is(err, instance.ErrFenced) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(won) != 1 || won[0].Events[0] != int64(round+1) {
			t.Fatalf("round %d: %v", round, won)
		}
		o.f = won[0].Fence
	}
}

// story does one random thing after another to a Store; what each returned is its transcript.
type story struct {
	rig    Rig
	rng    *rand.Rand
	fences map[instance.ID]instance.Fence
	last   map[instance.ID]instance.Batch
	lastAt map[instance.ID]instance.Fence
	nonce  uint64
}

func newStory(rig Rig, seed uint64) *story {
	return &story{
		rig: rig, rng: rand.New(rand.NewPCG(seed, 1)), fences: map[instance.ID]instance.Fence{}, last: map[instance.ID]instance.Batch{},
		lastAt: map[instance.ID]instance.Fence{},
	}
}

func (s *story) id() instance.ID { return name(fmt.Sprint("k", s.rng.IntN(4))) }

func (s *story) batch(id instance.ID) instance.Batch {
	s.nonce++
	b := instance.Batch{}
	binary.BigEndian.PutUint64(b.ID[:], s.nonce)
	few := func() int { return s.rng.IntN(3) * s.rng.IntN(2) }
	for range few() {
		e := set(fmt.Sprint("s", s.rng.IntN(5)), fmt.Sprint(s.rng.IntN(100)))
		if e.Act = agent.StateAct(1 + s.rng.IntN(3)); e.Act == agent.StateCheck || s.rng.IntN(4) == 0 {
			e = when(e, int64(s.rng.IntN(4)*s.rng.IntN(8)))
		}
		b.State = append(b.State, e)
	}
	for range few() {
		a := emit(fmt.Sprint("l", s.rng.IntN(2)), s.rng.IntN(100))
		a.Event.Time = at(int64(s.nonce))
		b.Events = append(b.Events, a)
	}
	for range few() {
		b.Journal = append(b.Journal, instance.Entry{Run: agent.RunID(fmt.Sprint("R", s.rng.IntN(2))), Data: []byte{byte(s.rng.IntN(256))}})
	}
	for range few() {
		a := alarm(fmt.Sprint("a", s.rng.IntN(3)), int64(s.rng.IntN(1000)))
		if a.Clear = s.rng.IntN(2) == 0; a.Clear {
			a.Gen = int64(s.rng.IntN(2) * s.rng.IntN(10))
		}
		b.Alarms = append(b.Alarms, a)
	}
	for range few() {
		b.Outbox = append(b.Outbox, instance.Send{To: s.id(), Data: []byte{byte(s.rng.IntN(256))}})
	}
	for range few() {
		b.Children = append(b.Children, instance.Child{Remove: s.rng.IntN(2) == 0, ID: name(fmt.Sprint("c", s.rng.IntN(2)))})
	}
	for range few() * s.rng.IntN(2) {
		b.Runs = append(b.Runs, s.run(id))
	}
	if session := agent.SessionID("S" + id.Key); len(b.Runs) > 0 && s.rng.IntN(2) == 0 {
		e := event(s.rng.IntN(100))
		e.Time, e.Run = at(int64(s.nonce)), b.Runs[s.rng.IntN(len(b.Runs))].Run.ID
		b.Events = append(b.Events, instance.Append{Log: instance.SessionLog(session), Event: e})
	}
	if s.rng.IntN(5) == 0 {
		b.Snapshot = &instance.Snapshot{Data: []byte{byte(s.rng.IntN(256))}}
	}
	return b
}

// run makes or changes a run, which may be what cannot be done.
func (s *story) run(id instance.ID) instance.RunEdit {
	e := instance.RunEdit{From: agent.RunStatus(s.rng.IntN(5) * s.rng.IntN(2)), Run: agent.Run{
		App: app, ID: agent.RunID(fmt.Sprint("R", id.Key, s.rng.IntN(8))), Session: agent.SessionID("S" + id.Key), Created: at(int64(s.nonce)),
		Status: agent.RunStatus(1 + s.rng.IntN(8)), Input: agent.Text(fmt.Sprint(s.rng.IntN(100))), Lives: s.rng.IntN(3),
	}}
	if e.From == agent.UnknownStatus {
		e.Run.Status = agent.RunStatus(s.rng.IntN(6))
		if s.rng.IntN(3) == 0 {
			e.Session = &agent.Session{App: app, ID: e.Run.Session, Key: id.Key, Created: at(int64(s.nonce))}
		}
	}
	e.Run.Asks = questions(s.rng.IntN(3)*s.rng.IntN(2), 20)
	return e
}

// runs tells of the runs of an instance.
func (s *story) runs(id instance.ID) (out []string) {
	for i := range 8 {
		r, err := s.rig.Run(agent.RunID(fmt.Sprint("R", id.Key, i)))
		if r.Agent = ""; err != nil {
			out = append(out, agent.KindOf(err).String())
		} else {
			out = append(out, fmt.Sprintf("%+v", r))
		}
	}
	return out
}

func (s *story) step() string {
	st, id := s.rig.Store, s.id()
	f := s.fences[id]
	if s.rng.IntN(12) == 0 {
		f.Head += int64(s.rng.IntN(3) - 1)
	}
	var out any
	var err error
	commit := func(b instance.Batch, f instance.Fence) {
		var res instance.Result
		if res, err = st.Commit(ctx, id, f, &b); err == nil {
			s.last[id], s.lastAt[id], s.fences[id] = b, f, res.Fence
		}
		res.Counts.LogBytes = 0 // how it writes logs is a store's own
		out = res
	}
	op := s.rng.IntN(14)
	switch op {
	case 0:
		var i instance.Info
		if i, err = st.Acquire(ctx, id, instance.ID{}); err == nil {
			s.fences[id] = i.Fence
		}
		out = bare(i)
	case 1, 2, 3, 4:
		commit(s.batch(id), f)
	case 5: // one message is delivered, or tried
		ms, _, oerr := st.Outgoing(ctx, "", 0)
		if out, err = ms, oerr; len(ms) > 0 {
			m := ms[s.rng.IntN(len(ms))]
			id = m.To
			b := s.batch(id)
			b.Inbox = []instance.Mark{mark(m, m.From)}
			commit(b, s.fences[id])
			if err == nil || errors.Is(err, instance.ErrSeen) {
				id = m.From
				b = s.batch(id)
				b.Sent = []instance.Mark{{Peer: m.To, Seq: m.Seq}}
				commit(b, s.fences[id])
			}
		}
	case 6:
		commit(s.last[id], s.lastAt[id])
	case 7:
		b := s.last[id]
		if s.rng.IntN(2) == 0 {
			b = s.batch(id)
		}
		var o instance.Outcome
		var now instance.Fence
		if o, now, err = st.Resolve(ctx, id, f, b.ID); err == nil {
			s.fences[id] = now
		}
		out = []any{o, now}
	case 8:
		log := instance.OwnLog(fmt.Sprint("l", s.rng.IntN(2)))
		if s.rng.IntN(2) == 0 {
			log = instance.Journal(agent.RunID(fmt.Sprint("R", s.rng.IntN(2))))
		}
		err = st.Trim(ctx, id, f, log, int64(s.rng.IntN(12)))
	case 9:
		if s.rng.IntN(3) == 0 {
			err = st.Delete(ctx, id, f)
		}
	case 10:
		p, derr := st.Due(ctx, at(int64(s.rng.IntN(1000))), "", 0)
		p.Last = ""
		out, err = p, derr
	case 11:
		r := agent.StateRange{Limit: 1 + s.rng.IntN(5), Reverse: s.rng.IntN(2) == 0, After: []string{"", "s2"}[s.rng.IntN(2)]}
		page, next, serr := st.Scan(ctx, id, r)
		out, err = []any{page, next}, serr
	case 12:
		after := int64(s.rng.IntN(6))
		evs, e1 := st.ReadLog(ctx, id, instance.OwnLog("l0"), after, 1+s.rng.IntN(5))
		es, e2 := st.ReadJournal(ctx, id, "R0", after, 1+s.rng.IntN(5))
		out, err = fmt.Sprintf("%+v %+v", evs, es), errors.Join(e1, e2)
	case 13:
		list, _, e1 := st.List(ctx, app, agentID, agent.Page{})
		as, e2 := st.Alarms(ctx, id, "", 0)
		cs, e3 := st.Children(ctx, id, instance.ID{}, 0)
		seq, e4 := st.Received(ctx, id, s.id())
		js, e5 := st.Journals(ctx, id, "", 0)
		for i := range list {
			list[i] = bare(list[i])
		}
		out, err = fmt.Sprintf("%+v %+v %v %d %v %v", list, as, cs, seq, js, s.runs(id)), errors.Join(e1, e2, e3, e4, e5)
	}
	if err != nil {
		return fmt.Sprintf("%d %s: %s", op, id.Key, agent.KindOf(err))
	}
	return fmt.Sprintf("%d %s: %+v", op, id.Key, out)
}

// bare leaves out of what is known of an instance what is a store's own: times, and how it writes logs.
func bare(i instance.Info) instance.Info {
	return instance.Info{
		ID: i.ID, Fence: i.Fence, Parent: i.Parent, State: i.State, Alarms: i.Alarms, Outbox: i.Outbox, Children: i.Children, Snapshot: i.Snapshot,
	}
}

// A Store and the reference tell the same story, whatever is done. Cursors are a Store's own and not compared.
func testRandom(t *testing.T, rig Rig) {
	mem := NewMemory(nil)
	mem.AddAgent(app, agentID)
	for seed := range uint64(3) {
		want, got := newStory(Rig{Store: mem, Run: mem.Run}, seed), newStory(rig, seed)
		for i := range 300 {
			a, b := want.step(), got.step()
			if d := cmp.Diff(a, b, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("seed %d step %d (-reference +store):\n%s", seed, i, d)
			}
		}
		if rig.Check != nil {
			if err := rig.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
