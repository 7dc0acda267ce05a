package agent

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of key-value state that no grant widens.
const (
	MaxStateKey        = 1 << 10   // bytes of a key
	MaxStateValue      = 128 << 10 // bytes of a value
	MaxStateEdits      = 128       // edits of one commit, and keys of one read
	MaxStateEditsBytes = 1 << 20   // bytes of keys and values in one commit
	maxStateType       = 255       // bytes of a value's media type
)

// StateEntry is one key of an owner's key-value state. Versions rise with each commit to the state and are never used again,
// so a key that was deleted and made anew has another one.
type StateEntry struct {
	Key     string  `json:"key"`
	Version int64   `json:"version"`
	Value   Payload `json:"value"`
}

// StateSize is what a state holds.
type StateSize struct {
	Bytes int64 `json:"bytes"` // of all keys and values together
	Keys  int64 `json:"keys"`
}

// StateAct is what an edit does to its key.
type StateAct uint8

const (
	UnknownStateAct StateAct = iota
	StateCheck               // nothing, but the key must have the version that the edit names
	StateSet
	StateDelete
)

var stateActNames = [...]string{"unknown", "check", "set", "delete"}

func (a StateAct) String() string               { return nameOf(stateActNames[:], a) }
func (a StateAct) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
func (a *StateAct) UnmarshalText(b []byte) error {
	return parseName(stateActNames[:], b, a, "state edit")
}

// StateEdit is one part of a commit to a state.
type StateEdit struct {
	Act   StateAct
	Key   string
	Value Payload // of StateSet
	If    *int64  // the version that the key must have before the commit, 0 for a key that must not be there; nil means any
}

// StateRange asks for keys in the order of their bytes. Empty bounds mean none; all that are set must hold.
type StateRange struct {
	Prefix  string
	Start   string // first key
	End     string // key before which the range ends
	Reverse bool
	After   string // last key of the page before
	Limit   int    // 1 to MaxPage; 0 means DefaultPage
}

// CheckStateKey returns an Invalid error unless key may name a value.
func CheckStateKey(key string) error {
	switch {
	case key == "":
		return Errorf(Invalid, "a state key is empty")
	case len(key) > MaxStateKey:
		return Errorf(Invalid, "the state key %s has %d bytes, more than %d", quote(key), len(key), MaxStateKey)
	case !utf8.ValidString(key):
		return Errorf(Invalid, "the state key %s is not valid UTF-8", quote(key))
	}
	return nil
}

// Conflict returns the error of an edit whose If is another than the version that the key has; 0 is that of one that is not there.
func (e StateEdit) Conflict(version int64) error {
	if e.If == nil || *e.If == version {
		return nil
	}
	msg := fmt.Sprintf("state key %s has version %d, not %d", quote(e.Key), version, *e.If)
	switch {
	case version == 0:
		msg = fmt.Sprintf("state key %s is not there", quote(e.Key))
	case *e.If == 0:
		msg = fmt.Sprintf("state key %s is there already, with version %d", quote(e.Key), version)
	}
	return &Error{Kind: Conflict, Msg: msg, Hint: "read the key again, then decide anew"}
}

// Within returns an Exhausted error when a change from was to now makes a state larger than the grant, whose fields must be set, allows.
func (s StateGrant) Within(was, now StateSize) error {
	msg := ""
	switch {
	case now.Bytes > s.Bytes && now.Bytes > was.Bytes:
		msg = fmt.Sprintf("the state would have %d bytes, more than the %d granted", now.Bytes, s.Bytes)
	case now.Keys > s.Keys && now.Keys > was.Keys:
		msg = fmt.Sprintf("the state would have %d keys, more than the %d granted", now.Keys, s.Keys)
	default:
		return nil
	}
	return &Error{Kind: Exhausted, Limit: LimitState, Msg: msg, Hint: "delete what is no longer needed, or have the grant widened"}
}

// Check returns an Invalid error when the edit can never be made.
func (e StateEdit) Check() error {
	if err := CheckStateKey(e.Key); err != nil {
		return err
	}
	switch {
	case e.Act == UnknownStateAct || int(e.Act) >= len(stateActNames):
		return Errorf(Invalid, "the edit of state key %s must be check, set or delete", quote(e.Key))
	case e.Act == StateCheck && e.If == nil:
		return Errorf(Invalid, "the check of state key %s names no version", quote(e.Key))
	case e.If != nil && *e.If < 0:
		return Errorf(Invalid, "the version %d for state key %s is negative; 0 means that the key must not be there", *e.If, quote(e.Key))
	case len(e.Value.Body) > MaxStateValue:
		err := AsError(Exceeded(LimitState, "the value of state key %s has %d bytes, more than %d", quote(e.Key), len(e.Value.Body), MaxStateValue))
		err.Hint = "keep it in parts under several keys"
		return err
	case e.Act == StateSet && (e.Value.Type == "" || len(e.Value.Type) > maxStateType ||
		strings.ContainsFunc(e.Value.Type, func(r rune) bool { return r < ' ' || r > '~' })):
		return Errorf(Invalid, "the media type of state key %s must be 1 to %d printable ASCII characters", quote(e.Key), maxStateType)
	}
	return nil
}
