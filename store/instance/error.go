package instance

import (
	"errors"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// What callers branch on. Each is the cause of an agent.Error, whose kind is named here.
var (
	// ErrFenced: the fence is not the newest. An owner that meets it has lost its instance, drops it and tries nothing more. Conflict.
	ErrFenced = errors.New("instance: fenced")
	// ErrUnknown: a commit may have happened or not. Resolve tells. Unavailable.
	ErrUnknown = errors.New("instance: outcome is unknown")
	// ErrGone: there is no such instance, its agent was deleted, or its deletion has begun. NotFound.
	ErrGone = errors.New("instance: gone")
	// ErrSeen: a message was marked before; it took effect then, so the sender may be told that it was received. Conflict.
	ErrSeen = errors.New("instance: message was marked before")
	// ErrOrder: a message is not the next of its pair. Deliver the oldest first. Conflict.
	ErrOrder = errors.New("instance: message is out of order")
	// ErrTooBig: over a bound of a batch. Invalid.
	ErrTooBig = errors.New("instance: too big")
	// ErrCorrupt: what is stored is not what was written. Internal.
	ErrCorrupt = errors.New("instance: stored data is damaged")
)

// Fenced returns the error for a fence that is not the newest.
func Fenced(id ID, got, now Fence) error {
	return &agent.Error{
		Kind: agent.Conflict, Err: ErrFenced,
		Msg: fmt.Sprintf("instance %q is at epoch %d, commit %d, and not at epoch %d, commit %d", id.Key, now.Epoch, now.Head, got.Epoch, got.Head),
	}
}

// Gone returns the error for an instance that is not there.
func Gone(id ID) error {
	return &agent.Error{Kind: agent.NotFound, Err: ErrGone, Msg: fmt.Sprintf("there is no instance %q of agent %s", id.Key, id.Agent)}
}

// NoAgent returns the error for an agent that is not there.
func NoAgent(id agent.AgentID) error {
	return &agent.Error{Kind: agent.NotFound, Err: ErrGone, Msg: fmt.Sprintf("there is no agent with the id %.80q", id)}
}

// HasChildren returns the error of a Delete.
func HasChildren(id ID, n int64) error {
	return &agent.Error{
		Kind: agent.Conflict, Msg: fmt.Sprintf("instance %q has %d children", id.Key, n), Hint: "delete its children first",
	}
}

// NotChild returns the error of an Acquire whose parent does not know the new instance.
func NotChild(id, parent ID) error {
	return agent.Errorf(agent.Conflict, "instance %q is not among the children of %q, or has another parent", id.Key, parent.Key)
}

// Reused returns the error for a batch that has the id of another.
func Reused() error {
	return agent.Errorf(agent.Invalid, "the id of this batch was used for another one")
}

// Follow returns nil when m may be marked after last, the number of the newest mark, and else ErrSeen or ErrOrder.
func (m Mark) Follow(last int64) error {
	switch {
	case m.Seq <= last:
		return &agent.Error{Kind: agent.Conflict, Err: ErrSeen, Msg: fmt.Sprintf("message %d from instance %q was received before", m.Seq, m.Peer.Key)}
	case m.Seq == last+1 || m.Oldest:
		return nil
	}
	return &agent.Error{
		Kind: agent.Conflict, Err: ErrOrder, Msg: fmt.Sprintf("message %d from instance %q came before number %d", m.Seq, m.Peer.Key, last+1),
	}
}

// Acknowledge returns nil when m is the oldest message of a pair, of which oldest to last are not yet received.
func (m Mark) Acknowledge(oldest, last int64) error {
	if m.Seq == oldest && oldest <= last {
		return nil
	}
	return &agent.Error{
		Kind: agent.Conflict, Err: ErrOrder,
		Msg: fmt.Sprintf("message %d to instance %q is not the oldest of those that wait: %d to %d", m.Seq, m.Peer.Key, oldest, last),
	}
}

func tooBig(format string, args ...any) error {
	return &agent.Error{
		Kind: agent.Invalid, Err: ErrTooBig, Msg: fmt.Sprintf(format, args...), Hint: "commit in several parts, and keep what is large in blobs",
	}
}
