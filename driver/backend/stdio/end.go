package stdio

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// grace is how long a program that has closed its output may take to end.
const grace = 5 * time.Second

// Reap waits for the end of a program whose output has ended, and makes it end when it does not.
func Reap(p backend.Process) driver.ProcessData {
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.Done():
	case <-late.C:
		_ = p.Signal("KILL", true) // it has ended, or will
	}
	return p.Wait()
}

// politely is how long a CLI may take to end after its input has ended.
const politely = 3 * time.Second

// Shut ends a CLI that is in no turn: by the end of its input, then by a signal. It returns when the session has ended, or ctx has.
func (s *Session) Shut(ctx context.Context, p backend.Process) error {
	_ = p.CloseInput()
	wait := time.NewTimer(politely)
	defer wait.Stop()
	select {
	case <-s.Done():
		return nil
	case <-wait.C:
		_ = p.Signal("TERM", true)
	case <-ctx.Done():
	}
	select {
	case <-s.Done():
		return nil
	case <-ctx.Done():
		return &agent.Error{Kind: agent.Unavailable, Msg: s.name + " does not end", Err: ctx.Err()}
	}
}

// Leave is Shut for a CLI that may be in a turn, which is interrupted first: many do not end at the end of their input before their turn has ended.
func (s *Session) Leave(ctx context.Context, p backend.Process, interrupt func(context.Context) error) error {
	if s.Turn() != "" {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		_ = interrupt(short) // it may be dead
		cancel()
	}
	return s.Shut(ctx, p)
}

// Drop ends a program at once, and waits for the end of the session.
func (s *Session) Drop(p backend.Process) {
	_ = p.CloseInput()
	_ = p.Signal("KILL", true)
	<-s.Done()
}

// Abandon is Drop for a program that could not be started well. It returns why, as an error of the vocabulary.
func (s *Session) Abandon(p backend.Process, err error) error {
	s.Drop(p)
	text := fmt.Sprintf("%s did not start: %s", s.name, err)
	if tail := strings.TrimSpace(strings.ToValidUTF8(p.Wait().Tail, "\uFFFD")); tail != "" {
		text += ": " + driver.CutTail(tail, 1000)
	}
	return &agent.Error{Kind: agent.Unavailable, Msg: text, Err: err, Hint: "look at what the image has: the version of the CLI, and what it needs to run"}
}

// FailedStart says why a CLI did not start: by what it wrote before it ended, if it did, else by err. lost is what it writes when it does not know the session
// that it was to resume, if it was to.
func (s *Session) FailedStart(err error, p backend.Process, resume bool, lost string) error {
	select {
	case <-s.Done():
	default:
		return err
	}
	how := p.Wait()
	f := Died(s.name, how)
	out := &agent.Error{Kind: f.Kind, Msg: s.name + " did not start: " + f.Message, Hint: f.Hint}
	if resume && strings.Contains(how.Tail, lost) {
		out.Kind, out.Hint = agent.NotFound, "the session is kept in the home of the box that it began in; begin a new one"
	}
	return out
}
