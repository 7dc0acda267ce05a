//go:build !wasip1

package skep

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
)

// fakeKV answers the calls about state as Skep does, without the bounds of a grant.
type fakeKV struct {
	entries map[string]abi.StateEntry
	version int64
}

func (s *fakeKV) answer(name string, in []byte) (abi.Status, []byte) {
	switch name {
	case abi.CallStateGet, abi.CallStorageGet:
		return answerOf(called(in, s.get))
	case abi.CallStateList, abi.CallStorageList:
		return answerOf(called(in, s.list))
	}
	return answerOf(called(in, s.edit))
}

// answerOf is the answer of a call that has come to out or to an error.
func answerOf[Out any](out Out, err error) (abi.Status, []byte) {
	if e, ok := err.(*CallError); ok {
		return refuse(e.Kind, e.Message)
	}
	if _, none := any(out).(struct{}); none && err == nil {
		return abi.OK, nil
	}
	b, merr := json.Marshal(out)
	if err != nil || merr != nil {
		return refuse("invalid", fmt.Sprint(err, merr))
	}
	return abi.OK, b
}

func called[In, Out any](b []byte, f func(In) (Out, error)) (out Out, err error) {
	var in In
	if err := json.Unmarshal(b, &in); err != nil {
		return out, err
	}
	return f(in)
}

func (s *fakeKV) get(in abi.StateGet) (out abi.StateEntries, err error) {
	for _, k := range in.Keys {
		if e, ok := s.entries[k]; ok {
			out.Entries = append(out.Entries, e)
		}
	}
	return out, nil
}

func (s *fakeKV) list(in abi.StateList) (out abi.StateEntries, err error) {
	keys := slices.Sorted(maps.Keys(s.entries))
	if in.Reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		seen := in.After != "" && (!in.Reverse && k <= in.After || in.Reverse && k >= in.After)
		if seen || !strings.HasPrefix(k, in.Prefix) || k < in.Start || in.End != "" && k >= in.End {
			continue
		}
		if limit := max(in.Limit, 0); len(out.Entries) == limit && limit > 0 || len(out.Entries) == 100 && limit == 0 {
			out.After = out.Entries[len(out.Entries)-1].Key
			break
		}
		out.Entries = append(out.Entries, s.entries[k])
	}
	return out, nil
}

func (s *fakeKV) edit(in abi.StateBatch) (abi.StateVersion, error) {
	for _, e := range in.Edits {
		now := s.entries[e.Key].Version
		if e.Key == "" {
			return abi.StateVersion{}, &CallError{Kind: "invalid", Message: "a state key is empty"}
		}
		if e.If != nil && *e.If != now {
			return abi.StateVersion{}, &CallError{Kind: "conflict", Message: fmt.Sprintf("state key %q has version %d, not %d", e.Key, now, *e.If)}
		}
	}
	next, changed := maps.Clone(s.entries), false
	if next == nil {
		next = map[string]abi.StateEntry{}
	}
	for _, e := range in.Edits {
		switch _, there := next[e.Key]; {
		case e.Do == "set":
			next[e.Key] = abi.StateEntry{Key: e.Key, Version: s.version + 1, StateValue: e.StateValue}
			changed = true
		case e.Do == "delete" && there:
			delete(next, e.Key)
			changed = true
		}
	}
	if s.entries = next; changed {
		s.version++
	}
	return abi.StateVersion{Version: s.version}, nil
}
