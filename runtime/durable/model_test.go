package durable_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// The state as a turn has it is what a map has, whatever was committed, changed, deleted and undone: one by one, and in ranges in both
// directions.
func TestStateModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, durable.Options{})
		model := map[string]string{}
		for range 4 {
			x := r.enter("k")
			undone := maps.Clone(model)
			for range 30 {
				key := fmt.Sprintf("%c%c", 'a'+rng.IntN(3), 'a'+rng.IntN(5))
				switch rng.IntN(8) {
				case 0, 1, 2:
					value := fmt.Sprint(rng.IntN(1000))
					r.set(x, key, value)
					model[key] = value
				case 3, 4:
					if _, err := x.Edit(t.Context(), bounds, agent.StateEdit{Act: agent.StateDelete, Key: key}); err != nil {
						t.Fatal(err)
					}
					delete(model, key)
				case 5:
					if got := r.get(x, key); got != model[key] {
						t.Fatalf("seed %d: %s is %q, want %q", seed, key, got, model[key])
					}
				default:
					sameList(t, seed, x, model, anyRange(rng))
				}
				if rng.IntN(20) == 0 {
					if err := x.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
					undone = maps.Clone(model)
				}
			}
			size := int64(0)
			for k, v := range model {
				size += int64(len(k) + len(v))
			}
			if rng.IntN(3) == 0 {
				x.Abandon()
				model = undone
				continue
			}
			if err := x.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i, err := r.memory.Info(t.Context(), name("k")); err != nil || i.State != (agent.StateSize{Bytes: size, Keys: int64(len(model))}) {
				t.Fatalf("seed %d: %+v, %v, want %d keys of %d bytes", seed, i.State, err, len(model), size)
			}
		}
	}
}

func anyRange(rng *rand.Rand) agent.StateRange {
	edge := func() string {
		return []string{"", "a", "ac", "b", "bd", "c", "cz"}[rng.IntN(7)]
	}
	q := agent.StateRange{Limit: 1 + rng.IntN(6), Reverse: rng.IntN(2) == 0}
	switch rng.IntN(3) {
	case 0:
		q.Prefix = []string{"a", "b", "z"}[rng.IntN(3)]
	case 1:
		q.Start, q.End = edge(), edge()
	}
	return q
}

func sameList(t *testing.T, seed uint64, x *durable.Turn, model map[string]string, q agent.StateRange) {
	t.Helper()
	var want, got []string
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if strings.HasPrefix(k, q.Prefix) && k >= q.Start && (q.End == "" || k < q.End) {
			want = append(want, k+"="+model[k])
		}
	}
	if q.Reverse {
		slices.Reverse(want)
	}
	for p := q; ; {
		page, next, err := x.List(t.Context(), p)
		if err != nil || len(page) > q.Limit || len(page) == 0 && next != "" {
			t.Fatalf("seed %d: %+v: a page of %d, %q, %v", seed, p, len(page), next, err)
		}
		for _, e := range page {
			got = append(got, e.Key+"="+string(e.Value.Body))
		}
		if p.After = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("seed %d: %+v: %v, want %v", seed, q, got, want)
	}
}

// A version is what the state has after the commit, and a check of it holds within a turn and behind it.
func TestVersions(t *testing.T) {
	r := newRig(t, durable.Options{})
	edit := func(x *durable.Turn, e agent.StateEdit, version int64) (int64, error) {
		e.If = &version
		return x.Edit(t.Context(), bounds, e)
	}
	x := r.enter("k")
	v, err := edit(x, set("n", "1"), 0)
	if err != nil || v != 1 {
		t.Fatalf("version %d, %v", v, err)
	}
	_, err = edit(x, set("n", "2"), 0)
	wantKind(t, err, agent.Conflict)
	if v, err = edit(x, set("n", "2"), 1); err != nil || v != 1 {
		t.Fatalf("version %d, %v", v, err)
	}
	if err := x.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	x = r.enter("k")
	_, err = edit(x, set("n", "3"), 0)
	wantKind(t, err, agent.Conflict)
	if v, err = edit(x, set("n", "3"), 1); err != nil || v != 2 {
		t.Fatalf("version %d, %v", v, err)
	}
	if err := x.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := r.memory.Load(t.Context(), name("k"), "n")
	if err != nil || got[0].Version != 2 || string(got[0].Value.Body) != "3" {
		t.Errorf("%+v, %v", got, err)
	}
}

// The state may not grow past its bounds, and may always shrink.
func TestBounds(t *testing.T) {
	r := newRig(t, durable.Options{})
	small := agent.StateGrant{Bytes: 10, Keys: 2}
	x := r.enter("k")
	for _, c := range []struct {
		edits []agent.StateEdit
		ok    bool
	}{
		{[]agent.StateEdit{set("a", "12345678")}, true},
		{[]agent.StateEdit{set("b", "1")}, false},
		{[]agent.StateEdit{set("a", "1"), set("b", "1")}, true},
		{[]agent.StateEdit{set("c", "1")}, false},
		{[]agent.StateEdit{{Act: agent.StateDelete, Key: "a"}, set("c", "1")}, true},
	} {
		if _, err := x.Edit(t.Context(), small, c.edits...); (err == nil) != c.ok || err != nil && agent.AsError(err).Limit != agent.LimitState {
			t.Errorf("%+v: %v", c.edits, err)
		}
	}
	r.set(x, "large", strings.Repeat("x", 100)) // under other bounds
	if _, err := x.Edit(t.Context(), small, set("large", "12345")); err != nil {
		t.Errorf("shrinking: %v", err)
	}
}

// Alarms as a turn has them are what a map has, page by page and one by one.
func TestAlarmModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := newRig(t, durable.Options{})
		model := map[string]int64{}
		for range 4 {
			x := r.enter("k")
			for range 20 {
				n := fmt.Sprintf("%c%c", 'a'+rng.IntN(3), 'a'+rng.IntN(4))
				switch rng.IntN(5) {
				case 0, 1:
					at := int64(rng.IntN(1000))
					r.setAlarm(x, alarm(n, time.Unix(at, 0)))
					model[n] = at
				case 2:
					r.setAlarm(x, cleared(n, 0))
					delete(model, n)
				case 3:
					a, there, err := x.Alarm(t.Context(), n)
					if at, want := model[n]; err != nil || there != want || there && a.At.Unix() != at {
						t.Fatalf("seed %d: %s is %+v, %v, %v, want %v", seed, n, a, there, err, at)
					}
					if there && a.Gen != 0 && rng.IntN(2) == 0 {
						gen := a.Gen + int64(rng.IntN(2))
						r.setAlarm(x, cleared(n, gen))
						if gen == a.Gen {
							delete(model, n)
						}
					}
				case 4:
					sameAlarms(t, seed, x, model, 1+rng.IntN(5))
				}
			}
			if err := x.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			x = r.enter("k")
			sameAlarms(t, seed, x, model, 3)
			if i := x.Info(); i.Alarms != int64(len(model)) {
				t.Fatalf("seed %d: it counts %d alarms of %d", seed, i.Alarms, len(model))
			}
			x.Abandon()
		}
	}
}

func sameAlarms(t *testing.T, seed uint64, x *durable.Turn, model map[string]int64, limit int) {
	t.Helper()
	got := map[string]int64{}
	for after := ""; ; {
		page, err := x.Alarms(t.Context(), after, limit)
		if err != nil || !slices.IsSortedFunc(page, func(a, b instance.Alarm) int { return cmp.Compare(a.Name, b.Name) }) {
			t.Fatalf("seed %d: %+v, %v", seed, page, err)
		}
		for _, a := range page {
			got[a.Name] = a.At.Unix()
		}
		if len(page) < limit {
			break
		}
		after = page[len(page)-1].Name
	}
	if !maps.Equal(got, model) {
		t.Fatalf("seed %d: alarms %v, want %v", seed, got, model)
	}
}

// A list of as many alarms as one page may have, many of which the turn has changed, leaves none out.
func TestManyAlarms(t *testing.T) {
	r := newRig(t, durable.Options{})
	r.turn("k", func(x *durable.Turn) {
		for i := range 2500 {
			r.setAlarm(x, alarm(fmt.Sprintf("%04d", i), time.Unix(1, 0)))
		}
		if n := x.Info().Alarms; n != 2500 {
			t.Errorf("it counts %d", n)
		}
	})
	x := r.enter("k")
	defer x.Abandon()
	model := map[string]int64{}
	for i := range 2500 {
		switch {
		case i%10 == 0 && i < 1000:
			r.setAlarm(x, cleared(fmt.Sprintf("%04d", i), 0))
		case i%500 == 499:
			r.setAlarm(x, alarm(fmt.Sprintf("%04d+", i), time.Unix(2, 0)))
			model[fmt.Sprintf("%04d+", i)] = 2
			fallthrough
		default:
			model[fmt.Sprintf("%04d", i)] = 1
		}
	}
	sameAlarms(t, 0, x, model, instance.MaxPage)
	if _, there, err := x.Alarm(t.Context(), ""); there || err != nil {
		t.Errorf("an alarm without a name: %v, %v", there, err)
	}
}

// A clear that names a generation leaves an alarm that was set since, in the same turn too.
func TestClearOfAnOldAlarm(t *testing.T) {
	r := newRig(t, durable.Options{})
	r.turn("k", func(x *durable.Turn) {
		r.setAlarm(x, alarm("a", time.Unix(1, 0)))
		r.setAlarm(x, alarm("b", time.Unix(1, 0)))
	})
	r.turn("k", func(x *durable.Turn) {
		r.setAlarm(x, alarm("a", time.Unix(2, 0)))
		r.setAlarm(x, cleared("a", 1))
		r.setAlarm(x, cleared("b", 0))
		r.setAlarm(x, cleared("b", 7))
		sameAlarms(t, 0, x, map[string]int64{"a": 2}, 10)
	})
	x := r.enter("k")
	defer x.Abandon()
	sameAlarms(t, 0, x, map[string]int64{"a": 2}, 10)
}

// A zombie that goes on after it was taken over commits nothing, whenever it wakes; two hundred times.
func TestZombies(t *testing.T) {
	r := newRig(t, durable.Options{})
	for i := range 200 {
		zombie := r.enter("k")
		r.set(zombie, "n", "zombie")
		heir := r.next(durable.Options{})
		x := heir.enter("k")
		heir.set(x, "n", fmt.Sprint(i))
		if i%2 == 0 { // it wakes before the heir has committed, or after
			wantIs(t, zombie.Leave(t.Context()), instance.ErrFenced)
		}
		if err := x.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			wantIs(t, zombie.Leave(t.Context()), instance.ErrFenced)
		}
		if got := r.stored("k", "n"); got != fmt.Sprint(i) {
			t.Fatalf("round %d: n is %s", i, got)
		}
	}
}
