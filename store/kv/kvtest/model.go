package kvtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/store/kv"
)

// Model is what a database should hold.
type Model map[string]string

// Apply makes changes.
func (m Model) Apply(changes []kv.Change) {
	for _, c := range changes {
		if c.Delete {
			delete(m, string(c.Key))
		} else {
			m[string(c.Key)] = string(c.Value)
		}
	}
}

// RandomBatch returns changes of few keys, so that they meet.
func RandomBatch(rng *rand.Rand) []kv.Change {
	var cs []kv.Change
	for range 1 + rng.IntN(40) {
		c := kv.Change{Key: fmt.Appendf(nil, "%c/%02x", 'a'+rng.IntN(3), rng.IntN(100))}
		switch rng.IntN(10) {
		case 0, 1, 2:
			c.Delete = true
		case 3:
			c.Value = make([]byte, rng.IntN(20_000))
		default:
			c.Value = fmt.Append(nil, rng.Uint64())
		}
		cs = append(cs, c)
	}
	return cs
}

func compare(t *testing.T, db kv.DB, m Model) {
	t.Helper()
	want := []string{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		want = append(want, k+"="+m[k])
	}
	view(t, db, func(r kv.Reader) error {
		got := scan(t, r, nil, nil, false)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("database and model differ (-want +got):\n%.2000s", diff)
		}
		back := scan(t, r, nil, nil, true)
		slices.Reverse(back)
		if diff := cmp.Diff(want, back); diff != "" {
			t.Fatalf("database in reverse and model differ (-want +got):\n%.2000s", diff)
		}
		for k, v := range m {
			if got := get(t, r, k); got != v {
				t.Errorf("%s holds %d bytes, want %d", k, len(got), len(v))
			}
		}
		return nil
	})
}
