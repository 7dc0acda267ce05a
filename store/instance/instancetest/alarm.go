package instancetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/skep-dev/skep/store/instance"
)

func at(unix int64) time.Time { return time.Unix(unix, 0).UTC() }

// due walks all that is due, page by page, and returns it as "key/name@seconds".
func due(t *testing.T, s instance.Store, now time.Time, limit int) (out []string, wake time.Time) {
	t.Helper()
	var after instance.Cursor
	for {
		p, err := s.Due(ctx, now, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range p.Alarms {
			out = append(out, fmt.Sprintf("%s/%s@%d", a.ID.Key, a.Name, a.At.Unix()))
		}
		if p.Next == "" {
			return out, p.Wake
		}
		after = p.Next
	}
}

func testAlarms(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("b", 20), alarm("a", 10), alarm("a", 15), {Alarm: instance.Alarm{Name: "é/", At: at(5), Data: []byte("d")}}}})
	list := func() []instance.Alarm {
		as, err := o.s.Alarms(ctx, o.id, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		return as
	}
	same(t, []instance.Alarm{{Name: "a", At: at(15), Gen: 1}, {Name: "b", At: at(20), Gen: 1}, {Name: "é/", At: at(5), Gen: 1, Data: []byte("d")}}, list())
	page, err := o.s.Alarms(ctx, o.id, "a", 1)
	if err != nil || len(page) != 1 || page[0].Name != "b" {
		t.Error(page, err)
	}
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("a", 11)}})
	// What fired was an earlier generation: the alarm that took its place stays.
	stale, fresh := clear("a"), clear("b")
	stale.Gen, fresh.Gen = 1, 1
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{stale, fresh, clear("none"), clear("é/")}})
	same(t, []instance.Alarm{{Name: "a", At: at(11), Gen: 2}}, list())
	got, _ := due(t, o.s, at(100), 0)
	same(t, []string{"k/a@11"}, got)
	one, there, err := o.s.Alarm(ctx, o.id, "a")
	same(t, []any{instance.Alarm{Name: "a", At: at(11), Gen: 2}, true, nil}, []any{one, there, err})
	_, there, err = o.s.Alarm(ctx, o.id, "é/")
	same(t, []any{false, nil}, []any{there, err})
	_, _, err = o.s.Alarm(ctx, name("none"), "a")
	wantIs(t, err, instance.ErrGone)
	// In one turn an alarm is used up and set anew.
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{clear("a"), alarm("a", 11)}})
	same(t, []instance.Alarm{{Name: "a", At: at(11), Gen: 4}}, list())
	if n := o.info().Alarms; n != 1 {
		t.Errorf("%d alarms", n)
	}
}

// Alarms are due in order, stay until a commit clears them, and are never early.
func testDue(t *testing.T, rig Rig) {
	s := rig.Store
	if got, wake := due(t, s, at(1e9), 0); len(got) > 0 || !wake.IsZero() {
		t.Error(got, wake)
	}
	a, b := acquire(t, s, "a"), acquire(t, s, "b")
	a.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("x", 30), alarm("y", 10)}})
	b.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("x", 20), alarm("z", 40)}})
	all := []string{"a/y@10", "b/x@20", "a/x@30", "b/z@40"}
	for limit := range 5 {
		for range 2 {
			got, wake := due(t, s, at(30), limit)
			same(t, all[:3], got)
			same(t, at(40), wake)
		}
	}
	frac := alarm("w", 0)
	frac.At = at(50).Add(time.Millisecond + time.Microsecond)
	b.commit(instance.Batch{Alarms: []instance.AlarmEdit{frac}})
	if got, wake := due(t, s, at(50).Add(time.Millisecond+time.Microsecond), 0); len(got) != 4 || !wake.Equal(at(50).Add(2*time.Millisecond)) {
		t.Error(got, wake)
	}
	a.commit(instance.Batch{Alarms: []instance.AlarmEdit{clear("y")}})
	got, _ := due(t, s, at(40), 1)
	same(t, all[1:], got)
}

// A walk that goes on where one has ended finds what has become due since, and nothing that was found.
func testDueOn(t *testing.T, rig Rig) {
	s := rig.Store
	o := acquire(t, s, "k")
	last := instance.Cursor("")
	more := func(now time.Time, want ...string) {
		t.Helper()
		p, err := s.Due(ctx, now, last, 10)
		if err != nil || p.Next != "" {
			t.Fatal(p, err)
		}
		got := []string{}
		for _, a := range p.Alarms {
			got = append(got, a.Name)
		}
		same(t, append([]string{}, want...), got)
		last = p.Last
	}
	more(at(5))
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("a", 10), alarm("b", 20), alarm("c", 30)}})
	more(at(5))
	more(at(20), "a", "b")
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("early", 15), alarm("d", 25), clear("b")}})
	more(at(20))
	more(at(1e9), "d", "c")
	more(at(1e9))
	last = ""
	more(at(1e9), "a", "early", "d", "c")
}

// The clock of the caller alone says what is due: it may jump either way, and what is set in the past is due.
func testDueClock(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("a", 100_000), alarm("b", 200_000)}})
	for _, c := range []struct {
		now  int64
		want []string
	}{{99_999, nil}, {203_600, []string{"k/a@100000", "k/b@200000"}}, {0, nil}, {100_000, []string{"k/a@100000"}}} {
		got, _ := due(t, o.s, at(c.now), 0)
		same(t, c.want, got)
	}
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{clear("a"), clear("b")}})
	got, _ := due(t, o.s, at(1e9), 0)
	same(t, []string(nil), got)
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("late", 1), alarm("far", 2e9)}})
	got, wake := due(t, o.s, at(1e9), 0)
	same(t, []string{"k/late@1"}, got)
	same(t, at(2e9), wake)
	o.commit(instance.Batch{Alarms: []instance.AlarmEdit{clear("late"), alarm("zero", 0)}})
	got, _ = due(t, o.s, at(1e9), 0)
	same(t, []string{"k/zero@0"}, got)
}

func testManyAlarms(t *testing.T, rig Rig) {
	const owners, each = 20, 500
	rng := rand.New(rand.NewPCG(1, 2))
	var all []*owner
	for i := range owners {
		o := acquire(t, rig.Store, fmt.Sprintf("k%02d", i))
		b := instance.Batch{}
		for j := range each {
			b.Alarms = append(b.Alarms, alarm(fmt.Sprintf("a%03d", j), int64(rng.IntN(600))))
		}
		o.commit(b)
		all = append(all, o)
	}
	got, wake := due(t, rig.Store, at(600), 300)
	if len(got) != owners*each || !wake.IsZero() {
		t.Fatalf("%d are due, %v", len(got), wake)
	}
	for _, o := range all[1:] {
		b := instance.Batch{}
		for j := range each {
			b.Alarms = append(b.Alarms, clear(fmt.Sprintf("a%03d", j)))
		}
		o.commit(b)
	}
	if got, _ := due(t, rig.Store, at(600), 300); len(got) != each {
		t.Errorf("%d are left", len(got))
	}
}
