package durable

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Get returns those of the keys that are there, in their order.
func (t *Turn) Get(ctx context.Context, keys ...string) ([]agent.StateEntry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.get(ctx, keys)
}

func (t *Turn) get(ctx context.Context, keys []string) ([]agent.StateEntry, error) {
	if t.over != nil {
		return nil, t.over
	}
	if len(keys) > agent.MaxStateEdits {
		return nil, agent.Errorf(agent.Invalid, "%d keys are too many for one read: %d are allowed", len(keys), agent.MaxStateEdits)
	}
	var stored []string
	for _, key := range keys {
		if _, known := t.known(key); !known {
			stored = append(stored, key)
		}
	}
	var found []agent.StateEntry
	if len(stored) > 0 {
		var err error
		if found, err = t.k.store.Load(ctx, t.o.id, stored...); err != nil {
			return nil, err
		}
		t.values.keep(stored, found)
	}
	if len(stored) == len(keys) {
		return found, nil
	}
	byKey := make(map[string]agent.StateEntry, len(found))
	for _, e := range found {
		byKey[e.Key] = e
	}
	out := make([]agent.StateEntry, 0, len(keys))
	for _, key := range keys {
		if e, ok := byKey[key]; ok {
			out = append(out, e)
		} else if e, _ := t.known(key); e != nil {
			out = append(out, *e)
		}
	}
	return out, nil
}

// known returns an entry that the turn has changed, or read since its newest commit; nil is one that is not there.
func (t *Turn) known(key string) (e *agent.StateEntry, known bool) {
	if e, known = t.state[key]; known {
		return e, true
	}
	e, known = t.values.byKey[key]
	return e, known
}

// values is what a turn has read since its newest commit: what is read is often written next, which needs it again. Nobody else can change it
// and have this turn commit.
type values struct {
	byKey map[string]*agent.StateEntry // nil is one that is not there
	bytes int
}

// What a turn keeps at most of what it has read.
const (
	maxValues     = 64
	maxValueBytes = 64 << 10
)

// keep takes entries that were asked for by their keys, those that were found in the order of names.
func (v *values) keep(keys []string, found []agent.StateEntry) {
	for _, key := range keys {
		var e *agent.StateEntry
		size := len(key)
		for i := range found {
			if found[i].Key == key {
				e, size = &found[i], size+len(found[i].Value.Body)
				break
			}
		}
		if len(v.byKey) >= maxValues || v.bytes+size > maxValueBytes {
			return
		}
		if v.byKey == nil {
			v.byKey = map[string]*agent.StateEntry{}
		}
		if _, twice := v.byKey[key]; !twice {
			v.byKey[key], v.bytes = e, v.bytes+size
		}
	}
}

// Edit makes edits, all or none, and returns the version of the keys that were set. Each If is held against the state as the turn has
// it. Past bounds, whose fields must be set, the error is Exhausted, unless the edits make the state no larger.
func (t *Turn) Edit(ctx context.Context, bounds agent.StateGrant, edits ...agent.StateEdit) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return 0, t.over
	}
	bytes := 0
	for _, e := range edits {
		if err := e.Check(); err != nil {
			return 0, err
		}
		bytes += 3*len(e.Key) + len(e.Value.Type) + len(e.Value.Body)
	}
	if len(edits) > agent.MaxStateEdits || bytes > agent.MaxStateEditsBytes {
		return 0, agent.Errorf(agent.Invalid, "%d edits of %d bytes are too many at once: %d of %d bytes are allowed", len(edits), bytes,
			agent.MaxStateEdits, agent.MaxStateEditsBytes)
	}
	if t.gather != nil && bytes > manyBytes {
		return 0, &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitState,
			Msg:  fmt.Sprintf("the edits have %d bytes, and in a run up to %d are made at once", bytes, manyBytes),
			Hint: "make them one after the other, or in a method of the instance that the run calls",
		}
	}
	now, err := t.current(ctx, edits)
	if err != nil {
		return 0, err
	}
	for _, e := range edits {
		version := int64(0)
		if old := now[e.Key]; old != nil {
			version = old.Version
		}
		if err := e.Conflict(version); err != nil {
			return 0, err
		}
	}
	if t.ops()+len(edits) > manyOps || t.bytes+bytes > manyBytes {
		if err := t.commit(ctx); err != nil {
			return 0, err
		}
	}
	return t.apply(bounds, now, edits)
}

// current returns the entries that edits are about; nil is one that is not there.
func (t *Turn) current(ctx context.Context, edits []agent.StateEdit) (map[string]*agent.StateEntry, error) {
	now := make(map[string]*agent.StateEntry, len(edits))
	keys := make([]string, 0, len(edits))
	for _, e := range edits {
		if _, twice := now[e.Key]; !twice {
			now[e.Key] = nil
			keys = append(keys, e.Key)
		}
	}
	found, err := t.get(ctx, keys)
	for i := range found {
		now[found[i].Key] = &found[i]
	}
	return now, err
}

// apply makes edits in memory.
func (t *Turn) apply(bounds agent.StateGrant, now map[string]*agent.StateEntry, edits []agent.StateEdit) (int64, error) {
	size, version := t.size, t.o.info.Fence.Head+1
	changed := map[string]*agent.StateEntry{}
	for _, e := range edits {
		old := now[e.Key]
		var next *agent.StateEntry
		switch {
		case e.Act == agent.StateSet:
			next = &agent.StateEntry{Key: e.Key, Version: version, Value: e.Value}
		case e.Act != agent.StateDelete || old == nil:
			continue
		}
		size.Bytes += sizeOf(next) - sizeOf(old)
		size.Keys += countOf(next) - countOf(old)
		now[e.Key], changed[e.Key] = next, next
	}
	if err := bounds.Within(t.size, size); err != nil {
		return 0, err
	}
	if t.state == nil {
		t.state = make(map[string]*agent.StateEntry, len(changed))
	}
	for key, e := range changed {
		if was, again := t.state[key]; again {
			t.bytes -= weight(key, was)
		}
		t.bytes += weight(key, e)
	}
	maps.Copy(t.state, changed)
	t.size = size
	return version, nil
}

// weight is what a changed key counts for in a commit.
func weight(key string, e *agent.StateEntry) int {
	n := 3 * len(key)
	if e != nil {
		n += len(e.Value.Type) + len(e.Value.Body)
	}
	return n
}

func sizeOf(e *agent.StateEntry) int64 {
	if e == nil {
		return 0
	}
	return int64(len(e.Key) + len(e.Value.Body))
}

func countOf(e *agent.StateEntry) int64 {
	if e == nil {
		return 0
	}
	return 1
}

// List returns one page of the state in the order of keys, and the After of the next page, which is empty at the end.
func (t *Turn) List(ctx context.Context, r agent.StateRange) (page []agent.StateEntry, next string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return nil, "", t.over
	}
	mine := t.changedIn(r)
	for {
		stored, after, err := t.k.store.Scan(ctx, t.o.id, r)
		if err != nil {
			return nil, "", err
		}
		page, mine = t.merge(stored, mine, r.Reverse, after)
		if limit := limitOf(r); len(page) > limit {
			return page[:limit], page[limit-1].Key, nil
		}
		if len(page) > 0 || after == "" {
			return page, after, nil
		}
		r.After = after // all of the page was deleted in this turn
	}
}

func limitOf(r agent.StateRange) int {
	if r.Limit > 0 {
		return r.Limit
	}
	return agent.DefaultPage
}

// changedIn lists the keys of a range that the turn has changed, in the range's order.
func (t *Turn) changedIn(r agent.StateRange) []string {
	var keys []string
	for key := range t.state {
		beyond := r.After != "" && (!r.Reverse && key <= r.After || r.Reverse && key >= r.After)
		if strings.HasPrefix(key, r.Prefix) && key >= r.Start && (r.End == "" || key < r.End) && !beyond {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if r.Reverse {
		slices.Reverse(keys)
	}
	return keys
}

// merge puts changed keys among the stored ones, up to the key where the stored page ends, and returns those that are left for the next
// page.
func (t *Turn) merge(stored []agent.StateEntry, mine []string, reverse bool, after string) (page []agent.StateEntry, left []string) {
	before := func(a, b string) bool { return !reverse && a < b || reverse && a > b }
	add := func(key string) {
		if e := t.state[key]; e != nil {
			page = append(page, *e)
		}
	}
	for _, e := range stored {
		for len(mine) > 0 && before(mine[0], e.Key) {
			add(mine[0])
			mine = mine[1:]
		}
		if len(mine) > 0 && mine[0] == e.Key {
			add(e.Key)
			mine = mine[1:]
			continue
		}
		page = append(page, e)
	}
	for len(mine) > 0 && (after == "" || !before(after, mine[0])) {
		add(mine[0])
		mine = mine[1:]
	}
	return page, mine
}
