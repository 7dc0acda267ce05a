// Package state grants key-value state of an agent's own.
package state

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// Store is the state of one owner. What Edit returns from is durable.
type Store interface {
	Get(ctx context.Context, keys []string) ([]agent.StateEntry, error)
	List(ctx context.Context, r agent.StateRange) (entries []agent.StateEntry, next string, err error)
	Edit(ctx context.Context, bounds agent.StateGrant, edits []agent.StateEdit) (version int64, err error)
}

// defaultPage is how many entries a guest's list has that names no limit.
const defaultPage = 100

// Add puts the handlers of package abi's state calls into a door's, for a cell that may do what auth says.
func Add(handlers map[string]grant.Handler, auth *grant.Authority, s Store) {
	g := granted{auth: auth, store: s}
	handlers[abi.CallStateGet] = grant.JSON(g.get)
	handlers[abi.CallStateList] = grant.JSON(g.list)
	handlers[abi.CallStateSet] = grant.JSON(g.set)
	handlers[abi.CallStateDelete] = grant.JSON(g.delete)
	handlers[abi.CallStateBatch] = grant.JSON(g.batch)
}

// AddStorage puts the handlers of package abi's storage calls into a door's. They are what an instance keeps, within bounds, and need no
// grant.
func AddStorage(handlers map[string]grant.Handler, bounds func() agent.StateGrant, s Store) {
	g := granted{store: s, bounds: bounds}
	handlers[abi.CallStorageGet] = grant.JSON(g.get)
	handlers[abi.CallStorageList] = grant.JSON(g.list)
	handlers[abi.CallStorageSet] = grant.JSON(g.set)
	handlers[abi.CallStorageDelete] = grant.JSON(g.delete)
	handlers[abi.CallStorageBatch] = grant.JSON(g.batch)
}

type granted struct {
	auth   *grant.Authority // of an agent's state
	store  Store
	bounds func() agent.StateGrant // of an instance's
}

// allowed returns how large the state may be that the cell may reach.
func (g granted) allowed(ctx context.Context) (agent.StateGrant, error) {
	if g.auth == nil {
		return g.bounds(), nil
	}
	return g.auth.State(ctx)
}

func (g granted) get(ctx context.Context, in abi.StateGet) (abi.StateEntries, error) {
	if _, err := g.allowed(ctx); err != nil {
		return abi.StateEntries{}, err
	}
	entries, err := g.store.Get(ctx, in.Keys)
	return abi.StateEntries{Entries: wire(entries)}, err
}

func (g granted) list(ctx context.Context, in abi.StateList) (abi.StateEntries, error) {
	if _, err := g.allowed(ctx); err != nil {
		return abi.StateEntries{}, err
	}
	if in.Limit == 0 {
		in.Limit = defaultPage
	}
	entries, next, err := g.store.List(ctx, agent.StateRange(in))
	return abi.StateEntries{Entries: wire(entries), After: next}, err
}

func (g granted) set(ctx context.Context, in abi.StateEdit) (abi.StateVersion, error) {
	e, err := parse(agent.StateSet, in)
	if err != nil {
		return abi.StateVersion{}, err
	}
	return g.edit(ctx, e)
}

func (g granted) delete(ctx context.Context, in abi.StateEdit) (abi.StateVersion, error) {
	e, err := parse(agent.StateDelete, in)
	if err != nil {
		return abi.StateVersion{}, err
	}
	return g.edit(ctx, e)
}

func (g granted) batch(ctx context.Context, in abi.StateBatch) (abi.StateVersion, error) {
	if len(in.Edits) > agent.MaxStateEdits {
		return abi.StateVersion{}, agent.Errorf(agent.Invalid, "%d edits are too many for one batch: %d are allowed", len(in.Edits), agent.MaxStateEdits)
	}
	edits := make([]agent.StateEdit, len(in.Edits))
	for i, e := range in.Edits {
		var act agent.StateAct
		err := act.UnmarshalText([]byte(e.Do))
		if err == nil {
			edits[i], err = parse(act, e.StateEdit)
		}
		if err != nil {
			return abi.StateVersion{}, inBatch(i, err)
		}
	}
	return g.edit(ctx, edits...)
}

func (g granted) edit(ctx context.Context, edits ...agent.StateEdit) (abi.StateVersion, error) {
	bounds, err := g.allowed(ctx)
	if err != nil {
		return abi.StateVersion{}, err
	}
	version, err := g.store.Edit(ctx, bounds, edits)
	return abi.StateVersion{Version: version}, err
}

// inBatch says which edit an error is about.
func inBatch(i int, err error) error {
	e := *agent.AsError(err)
	e.Msg = fmt.Sprintf("edit %d of the batch: %s", i+1, e.Msg)
	return &e
}

// wire is what a guest sees of entries.
func wire(entries []agent.StateEntry) []abi.StateEntry {
	out := make([]abi.StateEntry, len(entries))
	for i, e := range entries {
		out[i] = abi.StateEntry{Key: e.Key, Version: e.Version, StateValue: abi.StateValue{Type: e.Value.Type}}
		switch v := &out[i].StateValue; {
		case len(e.Value.Body) == 0:
		case e.Value.IsJSON() && json.Valid(e.Value.Body):
			v.JSON = e.Value.Body
		case e.Value.IsText() && utf8.Valid(e.Value.Body):
			s := string(e.Value.Body)
			v.Text = &s
		default:
			v.Base64 = e.Value.Body
		}
	}
	return out
}

// parse reads an edit. Only one that sets may have a value.
func parse(act agent.StateAct, in abi.StateEdit) (agent.StateEdit, error) {
	e := agent.StateEdit{Act: act, Key: in.Key, If: in.If}
	fields := 0
	for _, f := range []struct {
		there bool
		typ   string
		body  func() []byte
	}{
		{in.JSON != nil, agent.TypeJSON, func() []byte { return in.JSON }},
		{in.Text != nil, agent.TypeText, func() []byte { return []byte(*in.Text) }},
		{in.Base64 != nil, agent.TypeBytes, func() []byte { return in.Base64 }},
	} {
		if f.there {
			fields++
			e.Value = agent.Payload{Type: f.typ, Body: f.body()}
		}
	}
	switch {
	case fields > 1:
		return e, agent.Errorf(agent.Invalid, "the value of state key %.80q is given in more than one form", in.Key)
	case act != agent.StateSet && (fields > 0 || in.Type != ""):
		return e, agent.Errorf(agent.Invalid, "a %s of state key %.80q takes no value", act, in.Key)
	case act != agent.StateSet:
		return e, e.Check()
	case fields == 0:
		e.Value.Type = agent.TypeBytes
	}
	if in.Type != "" {
		e.Value.Type = in.Type
	}
	return e, e.Check()
}
