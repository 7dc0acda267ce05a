package instancetest

import (
	"fmt"
	"testing"

	"github.com/skep-dev/skep/store/instance"
)

// outgoing walks all that waits, page by page.
func outgoing(t *testing.T, s instance.Store, limit int) (out []instance.Message) {
	t.Helper()
	var after instance.Cursor
	for {
		ms, next, err := s.Outgoing(ctx, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ms...)
		if next == "" {
			return out
		}
		after = next
	}
}

func texts(ms []instance.Message) (out []string) {
	for _, m := range ms {
		oldest := ""
		if m.Oldest {
			oldest = "!"
		}
		out = append(out, fmt.Sprintf("%s>%s %s%s", m.From.Key, m.To.Key, m.Data, oldest))
	}
	return out
}

func send(to *owner, data string) instance.Send { return instance.Send{To: to.id, Data: []byte(data)} }

func mark(m instance.Message, peer instance.ID) instance.Mark {
	return instance.Mark{Peer: peer, Seq: m.Seq, Oldest: m.Oldest}
}

// Messages wait in order until a commit of their sender says that they were received.
func testOutbox(t *testing.T, rig Rig) {
	s := rig.Store
	a, b, c := acquire(t, s, "a"), acquire(t, s, "b"), acquire(t, s, "c")
	n := a.commit(instance.Batch{Outbox: []instance.Send{send(b, "1"), send(c, "1"), send(b, "2")}}).Outbox
	b.commit(instance.Batch{Outbox: []instance.Send{send(a, "1"), send(b, "self")}})
	n = append(n, a.commit(instance.Batch{Outbox: []instance.Send{send(b, "3")}}).Outbox...)
	if n[2] != n[0]+1 || n[3] != n[2]+1 {
		t.Errorf("numbers %v", n)
	}
	want := []string{"a>b 1!", "a>c 1!", "a>b 2", "b>a 1!", "b>b self!", "a>b 3"}
	for limit := range 7 {
		for range 2 {
			same(t, want, texts(outgoing(t, s, limit)))
		}
	}
	to := func(seq int64) []instance.Mark { return []instance.Mark{{Peer: b.id, Seq: seq}} }
	for _, bad := range []int64{n[2], n[3], n[3] + 1} {
		a.refuse(instance.Batch{Sent: to(bad)}, instance.ErrOrder)
	}
	a.commit(instance.Batch{Sent: append(to(n[0]), to(n[2])...)})
	a.refuse(instance.Batch{Sent: to(n[0])}, instance.ErrOrder)
	same(t, []string{"a>c 1!", "b>a 1!", "b>b self!", "a>b 3!"}, texts(outgoing(t, s, 0)))
	if i := a.info(); i.Outbox != 2 {
		t.Errorf("%d messages", i.Outbox)
	}
	a.commit(instance.Batch{Sent: to(n[3])})
	a.refuse(instance.Batch{Sent: to(n[3] + 1)}, instance.ErrOrder)
}

// A message takes effect once: its mark is refused the second time, and before its turn.
func testInbox(t *testing.T, rig Rig) {
	s := rig.Store
	a, b := acquire(t, s, "a"), acquire(t, s, "b")
	a.commit(instance.Batch{Outbox: []instance.Send{send(b, "1"), send(b, "2"), send(b, "3")}})
	ms := outgoing(t, s, 0)
	in := func(m instance.Message) instance.Batch {
		return instance.Batch{Inbox: []instance.Mark{mark(m, a.id)}, Events: []instance.Append{emit("got", string(m.Data))}}
	}
	b.refuse(in(ms[1]), instance.ErrOrder)
	b.commit(in(ms[0]))
	b.refuse(in(ms[0]), instance.ErrSeen)
	b.refuse(in(ms[2]), instance.ErrOrder)
	twice := in(ms[1])
	twice.Inbox = append(twice.Inbox, twice.Inbox...)
	b.refuse(twice, instance.ErrSeen)
	seq, err := s.Received(ctx, b.id, a.id)
	if err != nil || seq != ms[0].Seq {
		t.Error(seq, err)
	}
	both := in(ms[1])
	both.Inbox = append(both.Inbox, mark(ms[2], a.id))
	b.commit(both)
	b = acquire(t, s, "b") // another owner knows as well
	b.refuse(in(ms[1]), instance.ErrSeen)
	same(t, []string{`1 "1"`, `2 "2"`}, b.log(instance.OwnLog("got")))
	if seq, err := s.Received(ctx, a.id, b.id); err != nil || seq != 0 {
		t.Error(seq, err)
	}
}

// When a sender or a receiver is deleted and made anew, messages go on, and those of a former life are not mistaken.
func testLives(t *testing.T, rig Rig) {
	s := rig.Store
	a, b := acquire(t, s, "a"), acquire(t, s, "b")
	deliver := func() {
		t.Helper()
		for _, m := range outgoing(t, s, 0) {
			b.commit(instance.Batch{Inbox: []instance.Mark{mark(m, a.id)}, Events: []instance.Append{emit("got", string(m.Data))}})
			a.commit(instance.Batch{Sent: []instance.Mark{{Peer: b.id, Seq: m.Seq}}})
		}
	}
	remake := func(o *owner) *owner {
		t.Helper()
		if err := s.Delete(ctx, o.id, o.f); err != nil {
			t.Fatal(err)
		}
		again := acquire(t, s, o.id.Key)
		if again.f.Epoch <= o.f.Epoch || again.f.Head < o.f.Head {
			t.Fatalf("made anew at %v after %v", again.f, o.f)
		}
		o.refuse(instance.Batch{}, instance.ErrFenced)
		return again
	}
	a.commit(instance.Batch{Outbox: []instance.Send{send(b, "1"), send(b, "2")}})
	old := outgoing(t, s, 0)
	deliver()
	a = remake(a)
	a.commit(instance.Batch{Outbox: []instance.Send{send(b, "3"), send(b, "4")}})
	deliver()
	same(t, []string{`1 "1"`, `2 "2"`, `3 "3"`, `4 "4"`}, b.log(instance.OwnLog("got")))
	b.refuse(instance.Batch{Inbox: []instance.Mark{mark(old[1], a.id)}}, instance.ErrSeen)
	b = remake(b)
	a.commit(instance.Batch{Outbox: []instance.Send{send(b, "5"), send(b, "6")}})
	late := outgoing(t, s, 0)
	b.refuse(instance.Batch{Inbox: []instance.Mark{mark(late[1], a.id)}}, instance.ErrOrder)
	deliver()
	same(t, []string{`1 "5"`, `2 "6"`}, b.log(instance.OwnLog("got")))
}

func testChildren(t *testing.T, rig Rig) {
	s := rig.Store
	p := acquire(t, s, "parent")
	_, err := s.Acquire(ctx, name("c1"), p.id)
	if err == nil {
		t.Fatal("a child was made that its parent does not know")
	}
	_, err = s.Info(ctx, name("c1"))
	wantIs(t, err, instance.ErrGone)
	add := func(key string) instance.Child { return instance.Child{ID: name(key)} }
	p.commit(instance.Batch{Children: []instance.Child{add("c2"), add("c1"), add("c3"), add("c2")}})
	info, err := s.Acquire(ctx, name("c1"), p.id)
	if err != nil || info.Parent != p.id {
		t.Fatal(info, err)
	}
	if _, err = s.Acquire(ctx, name("c1"), p.id); err != nil {
		t.Error(err)
	}
	if _, err = s.Acquire(ctx, name("c1"), name("other")); err == nil {
		t.Error("a child has another parent")
	}
	list, err := s.Children(ctx, p.id, instance.ID{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []instance.ID{name("c1"), name("c2")}, list)
	list, err = s.Children(ctx, p.id, list[1], 2)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []instance.ID{name("c3")}, list)
	if n := p.info().Children; n != 3 {
		t.Errorf("%d children", n)
	}
	if err := s.Delete(ctx, p.id, p.f); err == nil {
		t.Error("a parent was deleted before its children")
	}
	rm := func(key string) instance.Child { return instance.Child{Remove: true, ID: name(key)} }
	p.commit(instance.Batch{Children: []instance.Child{rm("c1"), rm("c2"), rm("c3"), rm("none")}})
	if err := s.Delete(ctx, p.id, p.f); err != nil {
		t.Error(err)
	}
}
