package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/internal/telemetry"
)

// call is a command that waits for its reply.
type call struct {
	id      uint64
	message []byte
	done    chan struct{}
	reply   *driver.Message
	err     error
}

func (c *call) fail(err error) {
	c.err = err
	close(c.done)
}

// Do sends a command, one of driver.Do*, and waits for its reply, over connections that are lost and come back. in is the body, and out takes that of the
// reply; either may be nil. Errors are those of the driver; Unavailable, wrapping ErrLost, when it has gone; and Cancelled or Unavailable when ctx has
// ended, in which case the command may be under way.
func (l *Link) Do(ctx context.Context, name string, in, out any) error {
	c := &call{id: rand.Uint64() >> 1, done: make(chan struct{})} // random, since a server that starts again must not use one twice
	b, err := driver.Encode(&driver.Message{Kind: driver.Command, ID: c.id, Name: name, Body: driver.Body(in), Trace: telemetry.Traceparent(ctx)})
	if err != nil {
		return err
	}
	c.message = b
	if err := l.send(c); err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		l.drop(c)
		return ended(ctx, name)
	}
	if c.err != nil {
		return c.err
	}
	if c.reply.Fault != nil {
		return c.reply.Fault.Err()
	}
	if out == nil || len(c.reply.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.reply.Body, out); err != nil {
		return agent.Wrap(agent.Failed, err, fmt.Sprintf("the reply of the driver to %s cannot be read", name))
	}
	return nil
}

func ended(ctx context.Context, name string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("the driver did not answer %s in time", name), Err: ctx.Err()}
	}
	return &agent.Error{Kind: agent.Cancelled, Msg: fmt.Sprintf("waiting for the driver to answer %s was cancelled", name), Err: ctx.Err()}
}

func (l *Link) send(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stand == lost || l.stand == closed {
		return l.why
	}
	if len(l.calls) >= maxCommands {
		return agent.Errorf(agent.Exhausted, "%d commands wait for the driver already", maxCommands)
	}
	l.calls[c.id] = c
	l.order = append(l.order, c)
	if s := l.current; s != nil && s.ready {
		s.push(c.message)
	}
	return nil
}

func (l *Link) drop(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(c)
}

func (l *Link) forget(c *call) {
	delete(l.calls, c.id)
	if i := slices.Index(l.order, c); i >= 0 {
		l.order = slices.Delete(l.order, i, i+1)
	}
}

// reply hands a reply to who waits for it. It reports false when nobody does: the command was given up, or was answered twice.
func (l *Link) reply(m *driver.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls[m.ID]
	if c == nil {
		return false
	}
	l.forget(c)
	c.reply = m
	close(c.done)
	return true
}
