package tools

import (
	"context"
	"sync"
	"time"
)

// watch ends a context after a time, of which pauses do not count.
type watch struct {
	cancel context.CancelCauseFunc
	late   error

	mu     sync.Mutex
	timer  *time.Timer
	left   time.Duration
	since  time.Time
	paused int
}

// within returns a context that ends with late after d.
func within(ctx context.Context, d time.Duration, late error) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{cancel: cancel, late: late, left: d, since: time.Now()}
	w.timer = time.AfterFunc(d, func() { cancel(late) })
	return ctx, w
}

func (w *watch) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused++; w.paused == 1 && w.timer.Stop() {
		w.left -= time.Since(w.since)
	}
}

func (w *watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused--; w.paused == 0 {
		w.since = time.Now()
		w.timer.Reset(max(w.left, 0))
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.cancel(nil)
}
