package stdio

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// Calls are requests to a CLI that names each in its answer.
type Calls struct {
	of  *Session
	out *Writer

	mu   sync.Mutex
	last int // id of the newest
	open map[string]chan reply
}

type reply struct {
	body json.RawMessage
	err  error
}

// NewCalls returns the requests to the CLI of a session, which go to out.
func NewCalls(of *Session, out *Writer) *Calls {
	return &Calls{of: of, out: out, open: map[string]chan reply{}}
}

// Ask sends the request that frame makes of an id, and returns the answer.
func (c *Calls) Ask(ctx context.Context, frame func(id string) any) (json.RawMessage, error) {
	if err := c.of.Gone(); err != nil {
		return nil, err
	}
	answer := make(chan reply, 1)
	c.mu.Lock()
	c.last++
	id := fmt.Sprintf("%s%d", ours, c.last)
	c.open[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.open, id)
		c.mu.Unlock()
	}()
	if err := c.Send(ctx, frame(id)); err != nil {
		select { // it has ended, and the reader will say how
		case <-c.of.Done():
		case <-ctx.Done():
		}
		return nil, err
	}
	select {
	case r := <-answer:
		return r.body, r.err
	case <-c.of.Done():
		return nil, c.of.Gone()
	case <-ctx.Done():
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: c.of.name + " does not answer", Err: ctx.Err()}
	}
}

// ours is what our ids begin with.
const ours = "skep-"

// Send writes one frame.
func (c *Calls) Send(ctx context.Context, v any) error {
	if err := c.out.Send(ctx, v); err != nil {
		return &agent.Error{Kind: agent.Unavailable, Msg: c.of.name + " reads no more", Err: err}
	}
	return nil
}

// Answered takes the answer to a request. It reports false of an id that was never one of ours; who asked may have given up.
func (c *Calls) Answered(id string, body json.RawMessage, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.open[id]
	if !ok {
		return strings.HasPrefix(id, ours)
	}
	delete(c.open, id)
	answer <- reply{body, err}
	return true
}
