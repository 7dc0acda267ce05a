package skep

import (
	"errors"
	"fmt"

	"github.com/skep-dev/skep/abi"
)

// Call is one call of another agent, or of an instance, in a Batch.
type Call struct {
	Agent, Function string
	Key             string // of the instance that is called; none is called when it is empty
	Child           bool   // the instance is the caller's own, see AgentRef.Child
	Send            bool   // a message, see Instance.Send
	In              any    // as for CallAgent
	Out             any    // a pointer that gets the answer; nil throws it away
	Err             error  // set by Batch
}

// Batch makes calls at once and returns when all have ended. Each call's error is in its Err; they are joined in what Batch
// returns. A journal has a batch as one entry.
func Batch(calls ...*Call) error {
	var frames []byte
	for _, c := range calls {
		body, err := encodeAgentCall(c)
		if err != nil {
			return err
		}
		if frames, err = abi.AppendRequest(frames, abi.Request{Name: abi.CallAgent, Input: body}); err != nil {
			return err
		}
	}
	replies, err := abi.DecodeReplies(hostBatch(frames))
	if err != nil {
		return err
	}
	if len(replies) != len(calls) {
		return &CallError{Kind: "internal", Message: fmt.Sprintf("the host gave %d answers to %d calls", len(replies), len(calls))}
	}
	var errs []error
	for i, c := range calls {
		var out []byte
		if out, c.Err = result(replies[i].Status, replies[i].Output); c.Err == nil {
			c.Err = decodeAgentResult(out, c.Out)
		}
		if c.Err != nil {
			errs = append(errs, fmt.Errorf("%s.%s: %w", c.Agent, c.Function, c.Err))
		}
	}
	return errors.Join(errs...)
}
