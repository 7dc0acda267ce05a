package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/sockets"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/vault/scrub"
)

// keyShared is where an instance keeps the state that its clients see. A state that is too large for one value is in parts under keys
// that name its version; they are written before keyShared is, so whatever becomes of a turn in between, what keyShared names is whole.
const (
	keyShared      = system + "shared"
	keySharedParts = keyShared + "/"
	sharedPart     = 96 << 10
	maxEventPatch  = 64 << 10 // a larger one is not in the event
)

// sharedHead is the value of keyShared.
type sharedHead struct {
	Version int64   `json:"version"`
	Parts   int     `json:"parts,omitempty"` // 0 when the state is here
	State   abi.Raw `json:"state,omitempty"`
}

func partKey(version int64, i int) string { return fmt.Sprintf("%s%d/%d", keySharedParts, version, i) }

// loadShared reads the shared state by a function that reads keys of an instance.
func loadShared(ctx context.Context, get func(context.Context, ...string) ([]agent.StateEntry, error)) (abi.Shared, sharedHead, error) {
	var head sharedHead
	found, err := get(ctx, keyShared)
	if err != nil || len(found) == 0 {
		return abi.Shared{}, head, err
	}
	damaged := agent.Errorf(agent.Internal, "the shared state is damaged")
	if json.Unmarshal(found[0].Value.Body, &head) != nil {
		return abi.Shared{}, head, damaged
	}
	if head.Parts == 0 {
		return abi.Shared{State: head.State, Version: head.Version}, head, nil
	}
	keys := make([]string, head.Parts)
	for i := range keys {
		keys[i] = partKey(head.Version, i)
	}
	parts, err := get(ctx, keys...)
	if err != nil {
		return abi.Shared{}, head, err
	}
	if len(parts) != head.Parts {
		return abi.Shared{}, head, damaged
	}
	var state []byte
	for _, p := range parts {
		state = append(state, p.Value.Body...)
	}
	return abi.Shared{State: state, Version: head.Version}, head, nil
}

// sharing is the shared state of an instance in one turn.
type sharing struct {
	hub  *sockets.Hub
	turn *durable.Turn

	setting sync.Mutex // held over a change; taken before view
	loaded  bool
	head    sharedHead

	view      sync.Mutex // never held while something is asked of the turn, which calls show
	now       abi.Shared // as the turn has it
	shown     abi.Shared // as clients were told
	changes   int        // since then
	source    string     // of the last one
	announced bool       // show is called at the next commit
}

// sharingOf returns the shared state in a turn; all that is done in the turn sees the same one.
func (r *Runtime) sharingOf(t *durable.Turn) *sharing {
	m := memoryOf(t)
	for {
		s := m.sharing.Load()
		if s != nil && s.turn == t {
			return s
		}
		m.sharing.CompareAndSwap(s, &sharing{hub: r.sockets, turn: t})
	}
}

// get returns the state as the turn has it.
func (s *sharing) get(ctx context.Context) (abi.Shared, error) {
	s.setting.Lock()
	defer s.setting.Unlock()
	return s.load(ctx)
}

func (s *sharing) load(ctx context.Context) (abi.Shared, error) {
	if !s.loaded {
		now, head, err := loadShared(ctx, s.turn.Get)
		if err != nil {
			return now, err
		}
		s.view.Lock()
		s.now, s.shown = now, now
		s.view.Unlock()
		s.loaded, s.head = true, head
	}
	return s.latest(), nil
}

func (s *sharing) latest() abi.Shared {
	s.view.Lock()
	defer s.view.Unlock()
	return s.now
}

// set changes the state, which must be compact. source is the connection that asked for it, or empty.
func (s *sharing) set(ctx context.Context, in abi.SharedSet, source string) (int64, error) {
	s.setting.Lock()
	defer s.setting.Unlock()
	was, err := s.load(ctx)
	if err != nil {
		return 0, err
	}
	if err := sharedConflict(in.If, was.Version); err != nil {
		return 0, err
	}
	head := sharedHead{Version: was.Version + 1}
	if err := s.write(ctx, &head, in.State); err != nil {
		return 0, err
	}
	now := abi.Shared{State: in.State, Version: head.Version}
	change := agent.StateChange{Version: now.Version, Source: source}
	if p, ok := sockets.Diff(was.State, now.State); ok && len(p) <= maxEventPatch {
		change.Patch = json.RawMessage(p)
	}
	if err := s.turn.Append(ctx, instance.OwnLog(ownEvents), agent.Event{Kind: agent.EventStateChanged, Data: encode(change)}); err != nil {
		return 0, err
	}
	s.head = head
	s.view.Lock()
	s.now, s.source = now, source
	s.changes++
	announced := s.announced
	s.announced = true
	s.view.Unlock()
	if !announced {
		s.turn.Then(s.show)
	}
	return now.Version, nil
}

func sharedConflict(want *int64, version int64) error {
	if want == nil || *want == version {
		return nil
	}
	return &agent.Error{
		Kind: agent.Conflict, Msg: fmt.Sprintf("the shared state has version %d, not %d", version, *want), Hint: "read it again, then decide anew",
	}
}

// write puts a state under its keys, and removes those of the state before.
func (s *sharing) write(ctx context.Context, head *sharedHead, state abi.Raw) error {
	if len(state) <= sharedPart {
		head.State = state
	} else {
		for rest := state; len(rest) > 0; head.Parts++ {
			n := min(len(rest), sharedPart)
			if err := s.edit(ctx, agent.StateSet, partKey(head.Version, head.Parts), rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	if err := s.edit(ctx, agent.StateSet, keyShared, encode(head)); err != nil {
		return err
	}
	if s.head.Parts == 0 && head.Parts == 0 {
		return nil
	}
	// Also those that a turn has left which was undone when a part of it was committed.
	page, _, err := s.turn.List(ctx, agent.StateRange{Prefix: keySharedParts, Limit: agent.MaxStateEdits})
	if err != nil {
		return err
	}
	mine := fmt.Sprintf("%s%d/", keySharedParts, head.Version)
	for _, e := range page {
		if !strings.HasPrefix(e.Key, mine) {
			if err := s.edit(ctx, agent.StateDelete, e.Key, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sharing) edit(ctx context.Context, act agent.StateAct, key string, body []byte) error {
	e := agent.StateEdit{Act: act, Key: key}
	if act == agent.StateSet {
		e.Value = agent.Payload{Type: agent.TypeBytes, Body: body}
	}
	_, err := s.turn.Edit(ctx, unbounded, e)
	return err
}

// show tells clients what was committed. The connection that asked for the one change there was knows it already.
func (s *sharing) show() {
	s.view.Lock()
	was, now, source := s.shown, s.now, s.source
	if s.changes != 1 {
		source = ""
	}
	s.shown, s.changes, s.announced = now, 0, false
	s.view.Unlock()
	s.hub.Changed(s.turn.ID(), was, now, source)
}

// placeState is the shared state as a cell reaches it.
type placeState struct {
	r       *Runtime
	p       *place
	secrets *scrub.Set
}

func (s placeState) Get(ctx context.Context) (abi.Shared, error) {
	t, err := s.p.turn(ctx)
	if err != nil {
		return abi.Shared{}, err
	}
	return s.r.sharingOf(t).get(ctx)
}

func (s placeState) Set(ctx context.Context, in abi.SharedSet) (int64, error) {
	t, err := s.p.turn(ctx)
	if err != nil {
		return 0, err
	}
	source := ""
	if s.p.socket != nil && s.p.socket.sets {
		source = s.p.socket.conn
	}
	in.State = abi.Raw(cleanJSON(s.secrets, json.RawMessage(in.State)))
	return s.r.sharingOf(t).set(ctx, in, source)
}
