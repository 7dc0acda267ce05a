package runtime

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	recorderEvents = 256     // events of one run that may wait to be written
	recorderBytes  = 1 << 20 // and their bytes
)

// recorder writes the events of one run, in the order they were added, each batch in one commit: what comes while a
// commit is under way is the next batch. A guest that adds faster than the store commits is held back.
type recorder struct {
	run   agent.RunID
	ready chan struct{} // has room for one
	stop  chan struct{}
	ended chan struct{}

	mu      sync.Mutex
	pending []agent.Event
	bytes   int
	space   chan struct{} // closed when pending was taken
	closed  bool
	err     error
}

func newRecorder(run agent.RunID) *recorder {
	return &recorder{
		run: run, ready: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}), space: make(chan struct{}),
	}
}

func (c *recorder) line(ctx context.Context, line agent.LogLine) error {
	return c.add(ctx, agent.Event{Kind: agent.EventLog, Data: encode(line)})
}

func (c *recorder) emit(ctx context.Context, name string, data json.RawMessage) error {
	return c.add(ctx, agent.Event{Kind: agent.EventEmit, Name: name, Data: data})
}

// event adds an event of ours. When it cannot be written, the run fails and says so.
func (c *recorder) event(ctx context.Context, ev agent.Event) { _ = c.add(ctx, ev) }

// add queues an event. It returns before the event is durable; it waits while too much is queued.
func (c *recorder) add(ctx context.Context, ev agent.Event) error {
	ev.Run, ev.Time = c.run, time.Now().UTC()
	for {
		c.mu.Lock()
		switch {
		case c.err != nil:
			c.mu.Unlock()
			return c.err
		case c.closed:
			c.mu.Unlock()
			return agent.Errorf(agent.Cancelled, "the run has ended")
		case len(c.pending) < recorderEvents && c.bytes < recorderBytes:
			c.pending = append(c.pending, ev)
			c.bytes += len(ev.Data)
			c.mu.Unlock()
			select {
			case c.ready <- struct{}{}:
			default:
			}
			return nil
		}
		space := c.space
		c.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write passes batches to commit until finish is called or a commit fails; failed is then told.
func (c *recorder) write(commit func([]agent.Event) error, failed func(error)) {
	defer close(c.ended)
	for {
		select {
		case <-c.stop:
			return
		case <-c.ready:
		}
		if batch := c.take(); len(batch) > 0 {
			if err := commit(batch); err != nil {
				err = agent.Wrap(agent.Unavailable, err, "the run's events could not be written")
				c.mu.Lock()
				c.err = err
				c.mu.Unlock()
				c.take()
				failed(err)
				return
			}
		}
	}
}

func (c *recorder) take() []agent.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := c.pending
	c.pending, c.bytes = nil, 0
	close(c.space)
	c.space = make(chan struct{})
	return batch
}

// finish waits for the commit under way and returns the events that are still to be written, or why some were lost. Nothing
// can be added after.
func (c *recorder) finish() ([]agent.Event, error) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.stop)
	<-c.ended
	return c.take(), c.err
}
