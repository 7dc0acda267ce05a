package store_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// story is a state beside the map that it should be.
type story struct {
	s     *store.Store
	o     store.Owner
	rng   *rand.Rand
	model map[string]agent.StateEntry
	last  int64
}

// step makes a random commit, foretells what comes of it, and returns a difference.
func (m *story) step(t *testing.T) string {
	bounds := agent.StateGrant{Bytes: 400, Keys: 20}
	var edits []agent.StateEdit
	for range 1 + m.rng.IntN(4) {
		e := agent.StateEdit{Act: agent.StateAct(1 + m.rng.IntN(3)), Key: weird[m.rng.IntN(len(weird))]}
		if e.Act == agent.StateSet {
			e.Value = agent.Payload{Type: agent.TypeBytes, Body: bytes.Repeat([]byte{byte(m.rng.IntN(256))}, 1+m.rng.IntN(40))}
		}
		if e.Act == agent.StateCheck || m.rng.IntN(4) == 0 {
			v := m.model[e.Key].Version
			if m.rng.IntN(5) == 0 {
				v++
			}
			e.If = &v
		}
		edits = append(edits, e)
	}
	want, next, changed := agent.Kind(255), maps.Clone(m.model), false
	for _, e := range edits {
		if e.If != nil && *e.If != m.model[e.Key].Version && want != agent.Conflict {
			want = agent.Conflict
		}
		switch _, found := next[e.Key]; {
		case e.Act == agent.StateSet:
			next[e.Key] = agent.StateEntry{Key: e.Key, Version: m.last + 1, Value: e.Value}
			changed = true
		case e.Act == agent.StateDelete && found:
			delete(next, e.Key)
			changed = true
		}
	}
	was, now := sizeOf(m.model), sizeOf(next)
	if want != agent.Conflict && (now.Bytes > bounds.Bytes && now.Bytes > was.Bytes || now.Keys > bounds.Keys && now.Keys > was.Keys) {
		want = agent.Exhausted
	}
	version, err := m.s.EditState(t.Context(), m.o, bounds, edits...)
	if err == nil {
		m.model = next
		if changed {
			m.last++
		}
		if want != 255 || version != m.last {
			return fmt.Sprintf("commit %d worked, want %v and %d", version, want, m.last)
		}
	} else if agent.KindOf(err) != want {
		return fmt.Sprintf("%v, want %v", err, want)
	}
	size, err := m.s.StateSize(t.Context(), m.o)
	if err != nil || size != sizeOf(m.model) {
		return fmt.Sprintf("size %+v, want %+v, %v", size, sizeOf(m.model), err)
	}
	list, _, err := m.s.ListState(t.Context(), m.o, agent.StateRange{Limit: agent.MaxPage})
	if err != nil {
		return err.Error()
	}
	wantList := []agent.StateEntry{}
	for _, k := range slices.Sorted(maps.Keys(m.model)) {
		wantList = append(wantList, m.model[k])
	}
	return cmp.Diff(wantList, list)
}

func sizeOf(m map[string]agent.StateEntry) (s agent.StateSize) {
	for k, e := range m {
		s.Keys++
		s.Bytes += int64(len(k) + len(e.Value.Body))
	}
	return s
}

// A state does what a map would, whatever is done to it.
func TestStateModel(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		for seed := range uint64(3) {
			o := store.AgentState(app, addAgent(t, s, fmt.Sprint("a", seed)).ID)
			m := &story{s: s, o: o, rng: rand.New(rand.NewPCG(seed, 0)), model: map[string]agent.StateEntry{}}
			for i := range 400 {
				if d := m.step(t); d != "" {
					t.Fatalf("seed %d step %d: %s", seed, i, d)
				}
			}
			if len(m.model) < 5 || m.last < 100 {
				t.Errorf("seed %d: %d keys after %d commits tell nothing", seed, len(m.model), m.last)
			}
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
