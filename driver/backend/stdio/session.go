package stdio

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// Session is the state of a session: the turn that is under way, what is asked, and whether the CLI lives. It tells events in their order. Its zero value
// is of no use.
type Session struct {
	name string
	sink func(driver.Event)
	done chan struct{}

	order sync.Mutex // of what is told; before mu
	early []driver.Event
	begun bool

	mu    sync.Mutex // never held while an event is told
	turn  string
	dead  bool
	asked map[string]Answerer
}

// Bounds of what is asked.
const (
	MaxArgs  = driver.MaxEvent / 2 // bytes of what a policy judges; what is longer is refused, because an event could not have all of it
	MaxInput = driver.MaxEvent / 4 // bytes of what is told beside
)

// Answerer sends the answer to a question or a permission.
type Answerer func(context.Context, *driver.Answer) error

// NewSession returns the state of a session of the CLI that is called name.
func NewSession(name string, sink func(driver.Event)) *Session {
	return &Session{name: name, sink: sink, done: make(chan struct{}), asked: map[string]Answerer{}}
}

// Done is closed by End.
func (s *Session) Done() <-chan struct{} { return s.done }

// Started tells that the session has started. What was told before follows.
func (s *Session) Started(d driver.SessionData) {
	s.order.Lock()
	defer s.order.Unlock()
	s.begun = true
	s.sink(driver.NewEvent("", driver.SessionStarted, d))
	for _, e := range s.early {
		s.sink(e)
	}
	s.early = nil
}

// Tell tells an event of the turn that is under way, if one is.
func (s *Session) Tell(kind, native string, data any) {
	s.order.Lock()
	defer s.order.Unlock()
	s.tellLocked(s.Turn(), kind, native, data)
}

// maxEarly bounds what is kept until a session has started.
const maxEarly = 256

func (s *Session) tellLocked(turn, kind, native string, data any) {
	e := driver.NewEvent(turn, kind, data)
	e.Native = native
	switch {
	case s.begun:
		s.sink(e)
	case len(s.early) < maxEarly:
		s.early = append(s.early, e)
	}
}

// Turn is the turn that is under way, or "".
func (s *Session) Turn() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

// Begin begins a turn, and tells that it has started. It is a Conflict while one is under way, and Unavailable when the CLI has ended.
func (s *Session) Begin(turn string) error {
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	under, dead := s.turn, s.dead
	if under == "" && !dead {
		s.turn = turn
	}
	s.mu.Unlock()
	switch {
	case dead:
		return s.gone()
	case under != "":
		return &agent.Error{
			Kind: agent.Conflict, Msg: fmt.Sprintf("%s is in the turn %.80s", s.name, under), Hint: "wait until it has ended, or interrupt it",
		}
	case turn == "":
		return agent.Errorf(agent.Invalid, "a turn needs a name")
	}
	s.tellLocked(turn, driver.TurnStarted, "", nil)
	return nil
}

func (s *Session) gone() error {
	return &agent.Error{Kind: agent.Unavailable, Msg: s.name + " has ended", Hint: "start it again; it can go on with its session"}
}

// Gone is the error of a session whose CLI has ended, or nil.
func (s *Session) Gone() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return s.gone()
	}
	return nil
}

// Finish ends the turn that is under way, if one is. What it asks is withdrawn.
func (s *Session) Finish(end driver.TurnEnd) {
	s.order.Lock()
	defer s.order.Unlock()
	s.finishLocked(end)
}

func (s *Session) finishLocked(end driver.TurnEnd) {
	s.mu.Lock()
	turn, asked := s.turn, s.asked
	s.turn, s.asked = "", map[string]Answerer{}
	s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		s.tellLocked(turn, driver.PermissionWithdrawn, id, driver.PermissionData{ID: id})
	}
	if turn != "" {
		s.tellLocked(turn, driver.TurnEnded, "", end)
	}
}

// End ends the session, after the CLI has: a turn that is under way fails.
func (s *Session) End(how driver.ProcessData) {
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	was := s.dead
	s.dead = true
	s.mu.Unlock()
	if was {
		return
	}
	s.finishLocked(driver.TurnEnd{Status: driver.TurnFailed, Reason: "process_ended", Fault: Died(s.name, how)})
	close(s.done)
}

// Died says how a CLI ended that should not have.
func Died(name string, how driver.ProcessData) *driver.Fault {
	f := &driver.Fault{Kind: agent.Unavailable, Message: fmt.Sprintf("%s ended with status %d", name, how.Code)}
	switch {
	case how.OOM:
		f.Kind, f.Message = agent.Exhausted, name+" was ended for want of memory"
		f.Hint = "give the environment more memory"
	case how.Signal != "":
		f.Message = name + " was ended by the signal " + how.Signal
	}
	if last := lastLine(how.Tail); last != "" {
		f.Message += ": " + last
	}
	return f
}

func lastLine(tail string) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(tail, "\uFFFD")), "\n")
	return driver.CutText(strings.TrimSpace(lines[len(lines)-1]), 500)
}

// Ask tells that something is asked, and keeps how it is answered. kind is PermissionAsked or QuestionAsked, and data has the id.
func (s *Session) Ask(id, kind string, data any, answer Answerer) {
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	s.asked[id] = answer
	turn := s.turn
	s.mu.Unlock()
	s.tellLocked(turn, kind, id, data)
}

// Withdraw tells that what was asked needs no answer any more. It reports whether it was asked.
func (s *Session) Withdraw(id string) bool {
	s.order.Lock()
	defer s.order.Unlock()
	if _, ok := s.take(id); !ok {
		return false
	}
	s.tellLocked(s.Turn(), driver.PermissionWithdrawn, id, driver.PermissionData{ID: id})
	return true
}

func (s *Session) take(id string) (Answerer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asked[id]
	delete(s.asked, id)
	return a, ok
}

// Answer is backend.Session's.
func (s *Session) Answer(ctx context.Context, a *driver.Answer) error {
	reply, ok := s.take(a.ID)
	if !ok {
		return agent.Errorf(agent.NotFound, "%s does not ask %.80q: it was answered or withdrawn", s.name, a.ID)
	}
	if err := reply(ctx, a); err != nil {
		return &agent.Error{Kind: agent.Unavailable, Msg: s.name + " takes no answers any more", Err: err}
	}
	return nil
}

// TryLater is the hint of a fault of who could not be reached.
const TryLater = "the gateway, or the provider behind it, could not be reached: try again later"

// StatusKind is what a status of HTTP says that a gateway has answered with.
func StatusKind(status int) agent.Kind {
	switch {
	case status == 401:
		return agent.Unauthenticated
	case status == 403:
		return agent.Denied
	case status == 404:
		return agent.NotFound
	case status == 429:
		return agent.Exhausted
	case status >= 500:
		return agent.Unavailable
	case status >= 400:
		return agent.Invalid
	}
	return agent.Failed
}
