package script

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Waiting lets a call be suspended while its code only waits, and go on later, in another cell or another process. The zero
// Waiting lets nothing be suspended, but numbers the calls to the host all the same.
type Waiting struct {
	// Rest is asked whenever the code comes to rest: its stack is empty, and nothing is left but calls to the host and timers.
	// When it says true, the call ends with a Suspension. Answers wait until it returns. It is not asked any more once the
	// function has its result. nil means false. It runs on the cell's goroutine.
	Rest func(ctx context.Context, p Pending) bool

	// Nudge has Rest asked again, when the code is at rest as something comes from it, or as it is closed. It may be
	// nil.
	Nudge <-chan struct{}

	// Delivered is told of each answer right before the code gets it, one after the other, and of each time that its first
	// timer is due; so a clock that counts deliveries can go on here. It runs on the cell's goroutine. It may be nil.
	Delivered func(Delivery)

	// Diverged is told, before the call fails, of what could not be delivered, and of what the code waits for then, which is nothing when
	// it has ended. It runs on the cell's goroutine. It may be nil.
	Diverged func(Delivery, Pending)

	// Resume is the snapshot of a Suspension with which the call goes on; of Call, Function and Input mean nothing then. nil
	// means that it begins.
	Resume []byte

	// Image is the image that Resume is of, exported, for when it is not the code's any more: an upgrade of Skep changes that.
	// nil means that it is.
	Image []byte

	// Export has a Suspension carry the image that it is of. One of each Suspension.Image is enough.
	Export bool

	// Deliver holds what the code gets first, in this order. Until all of it is delivered, no call to the host is begun and
	// Rest is not asked: that is how a journal is played again. What the code then still waits for is asked of Calls, under
	// the number it has, also when that was asked before the suspension.
	Deliver []Delivery
}

// Pending is what code at rest waits for.
type Pending struct {
	Calls []PendingCall // in the order in which they were made
	Alarm time.Time     // when its first timer is due, by the call's clock; zero when it has none
}

// PendingCall is a call to the host whose answer the code has not got.
type PendingCall struct {
	ID    uint64 // counts what the code asks of its host, from 1, over all of its lives
	Name  string
	Input []byte
}

// Sum names what was asked, so that a journal can tell whether the same is asked again.
func (p *PendingCall) Sum() [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(p.Name))
	h.Write([]byte{0})
	h.Write(p.Input)
	return [sha256.Size]byte(h.Sum(nil))
}

// Delivery is an answer to a call, or that the first timer is due.
type Delivery struct {
	ID   uint64 // of the call; 0 is the timer
	Name string // of the call
	Out  []byte
	Err  error

	// Sum, when it is not zero, is what PendingCall.Sum was. Code that asks something else under this number has diverged.
	Sum [sha256.Size]byte
}

// Suspension is a call that waits without a cell.
type Suspension struct {
	Snapshot []byte // what Waiting.Resume takes. It holds what the code held: keep it like the agent's state
	Pending  Pending
	Image    agent.Digest // names the image that the snapshot is of
	Exported []byte       // the image, for Waiting.Image; nil unless Waiting.Export asked for it
}

// Result is what a call came to: an output, or a suspension.
type Result struct {
	Output    agent.Payload
	Usage     agent.Usage // of this life
	Suspended *Suspension // nil when the function has returned
}

// diverged is the error of code that does not do again what a journal says it did.
func diverged(format string, args ...any) error {
	e := agent.AsError(agent.Errorf(agent.Conflict, "the run diverges from its journal: "+format, args...))
	e.Hint = "go on with the code, and the version of Skep, that the run began with"
	return e
}
