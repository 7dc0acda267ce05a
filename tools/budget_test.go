package tools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/tools/policy"
)

// budgeted is a catalogue of a server s, under a policy.
func budgeted(t *testing.T, text string) *rig {
	t.Helper()
	r := newRig(t, Options{})
	r.add(t, "s", &fake{offers: []Offer{offerOf("read", &Hints{ReadOnly: yes()}), offerOf("write", nil)}}, func(s *agent.ToolServer) { s.Trusted = true })
	r.policy(t, text)
	return r
}

func (r *rig) policy(t *testing.T, text string) {
	t.Helper()
	if _, err := r.store.PutDoc(t.Context(), store.Policies, agent.DefaultApp, PolicyName, store.AnyRev, PolicyText{Text: text}); err != nil {
		t.Fatal(err)
	}
}

// of judges a call of a run, or of none.
func (r *rig) of(t *testing.T, run agent.RunID, by, tool string, tally *Tally) agent.Decision {
	t.Helper()
	found, err := r.Resolve(t.Context(), agent.DefaultApp, tool)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Judge(t.Context(), found, agent.ToolCall{App: agent.DefaultApp, Agent: by, Run: run, Tool: tool, Args: json.RawMessage(`{}`)}, tally)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestBudgetAtOnce has many calls at once, of two catalogues on the same store, as of two processes.
func TestBudgetAtOnce(t *testing.T) {
	r := budgeted(t, "read: allow\nbudgets: [25 s.read per hour]\n")
	other := &rig{Catalogue: New(r.store, &r.opts), fakes: r.fakes}
	defer other.Close()
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			if []*rig{r, other}[i%2].of(t, agent.RunID(fmt.Sprint("R", i)), "bot", "s.read", new(Tally)).Verdict == agent.Allow {
				allowed.Add(1)
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 25 {
		t.Errorf("%d calls were allowed", allowed.Load())
	}
	d := r.of(t, "R", "bot", "s.read", new(Tally))
	if d.Verdict != agent.Deny || d.Rule != "25 s.read per hour" || d.From != "policy:2" || !strings.Contains(d.Reason, "there is room again in") {
		t.Errorf("%+v", d)
	}
	// Another number counts on, and another catalogue knows what was spent.
	r.policy(t, "read: allow\nbudgets: [27 s.read per hour]\n")
	for i, want := range []agent.Verdict{agent.Allow, agent.Allow, agent.Deny} {
		if d := other.of(t, "R", "bot", "s.read", new(Tally)); d.Verdict != want {
			t.Errorf("%d: %+v", i, d)
		}
	}
}

// TestBudgetRun counts runs apart, and work that is no run by its tally.
func TestBudgetRun(t *testing.T) {
	r := budgeted(t, "read: allow\nbudgets: [2 s.* per run, 100 s.read per day]\n")
	work := new(Tally)
	for _, run := range []agent.RunID{"R1", "R2", ""} {
		for i, want := range []agent.Verdict{agent.Allow, agent.Allow, agent.Deny, agent.Deny} {
			if d := r.of(t, run, "bot", "s.read", work); d.Verdict != want {
				t.Errorf("%d of %q: %+v", i, run, d)
			}
		}
	}
	if d := r.of(t, "", "bot", "s.read", new(Tally)); d.Verdict != agent.Allow {
		t.Errorf("other work: %+v", d)
	}
	// What one budget denies the other does not count.
	p, _, err := r.Policy(t.Context(), agent.DefaultApp)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := r.Resolve(t.Context(), agent.DefaultApp, "s.read")
	if err != nil {
		t.Fatal(err)
	}
	spent, err := r.Spent(t.Context(), agent.DefaultApp, p, policy.Call{Agent: "bot", Tool: tool})
	if err != nil || len(spent) != 2 || spent[0].Calls != nil || *spent[1].Calls != 7 { // two of each run and of the work, and one of other work
		t.Errorf("%+v %v", spent, err)
	}
}

// TestBudgetWhile wants no more calls within any hour than there may be, and room again soon after.
func TestBudgetWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := budgeted(t, "read: allow\nbudgets: [3 s.read per hour]\n")
		var made []time.Time
		for range 300 {
			if r.of(t, "R", "bot", "s.read", new(Tally)).Verdict == agent.Allow {
				made = append(made, time.Now())
			}
			time.Sleep(37 * time.Second)
		}
		for i := range made[3:] {
			if d := made[i+3].Sub(made[i]); d < time.Hour || d > 62*time.Minute {
				t.Errorf("call %d came %s after that before the last three", i+3, d)
			}
		}
		if len(made) < 9 {
			t.Errorf("%d calls in three hours", len(made))
		}
	})
}

// TestBudgetAsks asks beyond a budget, and takes no answer that was given to another question.
func TestBudgetAsks(t *testing.T) {
	r := budgeted(t, "read: allow\nbudgets: [1 s.read per run then ask count 2]\n")
	if d := r.of(t, "R1", "bot", "s.read", new(Tally)); d.Verdict != agent.Allow {
		t.Errorf("%+v", d)
	}
	if _, err := r.Allow(t.Context(), agent.Allowance{App: agent.DefaultApp, Agent: "bot", Pattern: "s.*"}); err != nil {
		t.Fatal(err)
	}
	d := r.of(t, "R1", "bot", "s.read", new(Tally))
	if d.Verdict != agent.Ask || d.Budget != "1 s.read per run then ask count 2" || d.Count != 2 {
		t.Errorf("%+v", d)
	}
	if _, err := r.Allow(t.Context(), agent.Allowance{App: agent.DefaultApp, Agent: "bot", Pattern: "s.read", Rule: d.Rule, Budget: d.Budget, Left: 1}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []agent.Verdict{agent.Allow, agent.Ask} {
		if d := r.of(t, "R1", "bot", "s.read", new(Tally)); d.Verdict != want {
			t.Errorf("%d: %+v", i, d)
		}
	}
}

// TestBudgetAhead counts the calls of a change set together before one of them is made, and spends nothing.
func TestBudgetAhead(t *testing.T) {
	r := budgeted(t, "read: allow\nbudgets: [2 s.read per day, 3 s.* per run]\n")
	for range 2 {
		set := &Tally{Ahead: true}
		for i, want := range []agent.Verdict{agent.Allow, agent.Allow, agent.Deny} {
			if d := r.of(t, "R1", "bot", "s.read", set); d.Verdict != want {
				t.Errorf("%d: %+v", i, d)
			}
		}
	}
}

// TestBudgetKept reads what was spent after the store was opened anew, and forgets runs that are no more.
func TestBudgetKept(t *testing.T) {
	db, dir := memkv.New(), t.TempDir()
	defer db.Close()
	text := "read: allow\nbudgets: [2 s.read per day, 1 s.read per run]\n"
	judge := func(run agent.RunID) (agent.Decision, int) {
		st, err := store.Open(t.Context(), db, dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		r := newRig(t, Options{})
		r.store = st
		if _, err := r.Server(t.Context(), agent.DefaultApp, "s"); err != nil {
			r.policy(t, text)
			r.add(t, "s", &fake{})
		}
		r.fakes["s"] = &fake{offers: []Offer{offerOf("read", nil)}}
		if _, err := r.Change(t.Context(), agent.DefaultApp, "s", func(s *agent.ToolServer) error {
			s.Effects = map[string]agent.Effect{"read": agent.Read}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		d := r.of(t, run, "bot", "s.read", new(Tally))
		r.Close()
		docs := 0
		if _, err := st.Docs(t.Context(), store.Budgets, agent.DefaultApp, "run/", agent.Page{}, func(string, int64, []byte) error { docs++; return nil }); err != nil {
			t.Fatal(err)
		}
		return d, docs
	}
	for i, want := range []agent.Verdict{agent.Allow, agent.Allow, agent.Deny} {
		if d, docs := judge(agent.RunID(fmt.Sprint("R", i))); d.Verdict != want || docs != 1 && want == agent.Allow {
			t.Errorf("%d: %+v, %d documents of runs", i, d, docs)
		}
	}
}

// TestBudgetTidies has a document that counts for nothing go, however many before it still count: the room for documents would be used up else.
func TestBudgetTidies(t *testing.T) {
	r := budgeted(t, "read: allow\nbudgets: [9 s.read per run]\n")
	put := func(name string, doc spent) {
		if _, err := r.store.PutDoc(t.Context(), store.Budgets, agent.DefaultApp, name, store.AnyRev, doc); err != nil {
			t.Fatal(err)
		}
	}
	const live = 3 * tidied
	for i := range live {
		doc := spent{Key: fmt.Sprint(i), Per: time.Hour}
		doc.add(time.Now(), 1)
		put(fmt.Sprintf("while/%03d", i), doc)
	}
	put("while/last", spent{Key: "last", Per: time.Hour})
	for i := range 2 * live / tidied {
		r.of(t, agent.RunID(fmt.Sprint("R", i)), "bot", "s.read", new(Tally))
	}
	var names []string
	if _, err := r.store.Docs(t.Context(), store.Budgets, agent.DefaultApp, "while/", agent.Page{Limit: 1000}, func(name string, _ int64, _ []byte) error {
		names = append(names, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(names) != live || slices.Contains(names, "while/last") {
		t.Errorf("%d documents are left, of which %d count: %q", len(names), live, names)
	}
}
