package runtime

import (
	"context"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// seat is a call's turn, which its code may leave while it waits for something, and enter again.
type seat struct {
	r      *Runtime
	id     instance.ID
	by     instance.ID // whose turn waits for the call
	limits agent.Limits
	once   string // names the call; see Runtime.turn

	mu   sync.Mutex
	t    *durable.Turn // nil while it is left
	left bool          // it has been left once
}

// outside reports whether the turn is left. What was changed before is committed then.
func (s *seat) outside() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.t == nil
}

func (s *seat) turn(context.Context) (*durable.Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t == nil {
		return nil, &agent.Error{
			Kind: agent.Conflict, Msg: "the call has left its turn, and other calls of the instance go first", Hint: "enter again before you use what belongs to the instance",
		}
	}
	return s.t, nil
}

// enter takes the turn, unless the call has it.
func (s *seat) enter(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t != nil {
		return nil
	}
	// An instance that was deleted meanwhile is not made anew by a call of the one before.
	t, err := s.r.enter(durable.Holding(ctx, s.by), s.id, durable.Entry{Exists: s.left}, s.limits)
	if err == nil {
		s.t = t
	}
	return err
}

// leave commits what the call has changed so far, and lets others go first.
func (s *seat) leave(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t == nil {
		return nil
	}
	t := s.t
	s.t, s.left = nil, true
	if s.once != "" {
		s.r.underWay.Store(s.call(), true) // before others enter
	}
	return s.r.leave(ctx, t)
}

// end ends the turn of a call that has ended.
func (s *seat) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left && s.once != "" {
		s.r.underWay.Delete(s.call())
	}
	if s.t != nil {
		s.t.Abandon()
	}
}

// namedCall is a call that has a name.
type namedCall struct {
	id   instance.ID
	once string
}

func (s *seat) call() namedCall { return namedCall{s.id, s.once} }

// leaveTurn and enterTurn answer the guest's calls.
func (p *place) leaveTurn(ctx context.Context, _ struct{}) (grant.None, error) {
	if p.seat == nil {
		return grant.None{}, nil
	}
	return grant.None{}, p.seat.leave(ctx)
}

func (p *place) enterTurn(ctx context.Context, _ struct{}) (grant.None, error) {
	if p.seat == nil {
		return grant.None{}, nil
	}
	return grant.None{}, p.seat.enter(ctx)
}
