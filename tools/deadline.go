package tools

import (
	"context"
	"sync"
	"time"
)

// Clock is the time that a call has, which stands still while a person is asked. It is safe for concurrent use.
type Clock struct {
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	timer  *time.Timer
	left   time.Duration
	since  time.Time
	paused int
}

// Within returns a context that ends with late once d has gone by on its clock. Stop the clock: that ends the context, too.
func Within(ctx context.Context, d time.Duration, late error) (context.Context, *Clock) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Clock{cancel: cancel, left: d, since: time.Now(), timer: time.AfterFunc(d, func() { cancel(late) })}
}

// Pause stops the clock until Resume was called as often.
func (c *Clock) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

// Resume goes on after a Pause.
func (c *Clock) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused--; c.paused == 0 {
		c.since = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}

// Stop stops the clock for good.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.paused++ // no Resume starts it again
	c.cancel(nil)
}
