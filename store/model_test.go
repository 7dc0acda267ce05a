package store_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// history does one random thing after another; what each returned is in its transcript, ids taken from rng.
type history struct {
	t        *testing.T
	s        *store.Store
	rng      *rand.Rand
	sessions []agent.SessionID
	runs     []agent.RunID
}

func (h *history) id() string { return fmt.Sprintf("ID%016x", h.rng.Uint64()) }

func pick[T any](h *history, list []T) (v T) {
	if len(list) > 0 {
		v = list[h.rng.IntN(len(list))]
	}
	return v
}

func (h *history) step() string {
	ctx, name := h.t.Context(), fmt.Sprintf("a%d", h.rng.IntN(4))
	var out any
	var err error
	op := h.rng.IntN(11)
	switch op {
	case 0:
		out, _, err = h.s.CreateAgent(ctx, agent.Agent{App: app, Name: name, ID: agent.AgentID(h.id())}, store.Once{})
	case 1:
		if h.rng.IntN(4) == 0 {
			err = h.s.DeleteAgents(ctx, app, name)
		}
	case 2:
		se := agent.Session{App: app, Agent: name, ID: agent.SessionID(h.id())}
		once := store.Once{Scope: "s", Key: fmt.Sprint(h.rng.IntN(20)), Request: agent.Digest(name)}
		got, _, e := h.s.CreateSession(ctx, se, once)
		if out, err = got, e; err == nil {
			h.sessions = append(h.sessions, got.ID)
		}
	case 3, 4:
		run := agent.Run{App: app, Agent: name, Session: pick(h, h.sessions), ID: agent.RunID(h.id()), Input: agent.Text(h.id())}
		got, evs, _, e := h.s.CreateRun(ctx, store.NewRun{Run: run, Events: h.events()}, store.Once{})
		if out, err = []any{got, evs}, e; err == nil {
			h.runs = append(h.runs, got.ID)
		}
	case 5, 6:
		status := agent.RunStatus(1 + h.rng.IntN(6)*h.rng.IntN(2) + h.rng.IntN(3))
		got, evs, e := h.s.UpdateRun(ctx, app, pick(h, h.runs), h.events(), func(r *agent.Run) error {
			r.Status = status
			return nil
		})
		out, err = []any{got, evs}, e
	case 7:
		out, err = h.s.Append(ctx, store.SessionLog(app, pick(h, h.sessions)), h.events())
	case 8:
		out, err = h.s.Read(ctx, store.SessionLog(app, pick(h, h.sessions)), int64(h.rng.IntN(8)), 1+h.rng.IntN(8))
	case 9:
		f := store.RunFilter{Status: agent.RunStatus(h.rng.IntN(9)), Agent: []string{"", name}[h.rng.IntN(2)]}
		list, next, e := h.s.Runs(ctx, app, f, agent.Page{Limit: 1 + h.rng.IntN(9)})
		out, err = []any{list, next}, e
	case 10:
		list, next, e := h.s.Sessions(ctx, app, name, agent.Page{Limit: 3})
		live, e2 := h.s.Unfinished(ctx)
		out, err = []any{list, next, live, fmt.Sprint(e2)}, e
	}
	b, _ := json.Marshal(out)
	if err != nil {
		return fmt.Sprintf("%d: %s: %v", op, agent.KindOf(err), err)
	}
	return fmt.Sprintf("%d: %s", op, b)
}

func (h *history) events() []agent.Event { return events(h.rng.IntN(3)) }

// Badger and the memory database tell the same story, whatever is done.
func TestSameStory(t *testing.T) {
	for seed := range uint64(3) {
		clk := &clock{epoch}
		o := &store.Options{Now: clk.now}
		dir := t.TempDir()
		mem := &history{t: t, s: openStore(t, memkv.New(), t.TempDir(), o), rng: rand.New(rand.NewPCG(seed, 0))}
		badger := &history{t: t, s: openStore(t, openBadger(t, dir), dir, o), rng: rand.New(rand.NewPCG(seed, 0))}
		for i := range 300 {
			want, got := mem.step(), badger.step()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d step %d (-memkv +badgerkv):\n%s", seed, i, diff)
			}
			clk.t = clk.t.Add(1e6)
		}
		if len(mem.runs) < 10 || len(mem.sessions) < 5 {
			t.Errorf("seed %d made %d sessions and %d runs, too few to tell anything", seed, len(mem.sessions), len(mem.runs))
		}
		for _, h := range []*history{mem, badger} {
			if err := h.s.Verify(t.Context()); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
}
