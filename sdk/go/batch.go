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
	requests := make([]abi.Request, len(calls))
	for i, c := range calls {
		body, err := encodeAgentCall(c)
		if err != nil {
			return err
		}
		requests[i] = abi.Request{Name: abi.CallAgent, Input: body}
	}
	var errs []error
	err := batch(requests, func(i int, out []byte, err error) {
		c := calls[i]
		if c.Err = err; err == nil {
			c.Err = decodeAgentResult(out, c.Out)
		}
		if c.Err != nil {
			errs = append(errs, fmt.Errorf("%s.%s: %w", c.Agent, c.Function, c.Err))
		}
	})
	return errors.Join(append(errs, err)...)
}

// batch makes requests at once, and tells of the answer to each in their order.
func batch(requests []abi.Request, answered func(i int, out []byte, err error)) error {
	var frames []byte
	for _, r := range requests {
		var err error
		if frames, err = abi.AppendRequest(frames, r); err != nil {
			return err
		}
	}
	replies, err := abi.DecodeReplies(hostBatch(frames))
	if err != nil {
		return err
	}
	if len(replies) != len(requests) {
		return &CallError{Kind: "internal", Message: fmt.Sprintf("the host gave %d answers to %d calls", len(replies), len(requests))}
	}
	for i, r := range replies {
		out, err := result(r.Status, r.Output)
		answered(i, out, err)
	}
	return nil
}
