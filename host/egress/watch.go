package egress

import (
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// waiting is what a call waits for.
type waiting uint8

const (
	waitNothing waiting = iota
	waitSent            // the other side to take more of the request's body
	waitHeader          // the response's header
	waitBody            // more of the response's body
)

// watch ends a call that takes too long in all, or whose other side does nothing for too long. One timer serves all phases: it
// is set to the first deadline that counted since it was set, and looks at what counts now when it fires.
type watch struct {
	call *call

	mu    sync.Mutex
	timer *time.Timer
	fires time.Time
	last  time.Time // the end of all
	phase waiting
	long  time.Duration
	until time.Time // the end of the phase
	reply bool      // the response's header has come, so the request's phases are over
	ended bool
}

func (w *watch) start(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.call, w.last = c, now.Add(c.limits.Total)
	first := min(c.limits.Total, c.limits.Header, c.limits.Idle) // so that a phase that begins seldom has to set it
	w.fires = now.Add(first)
	w.timer = time.AfterFunc(first, w.fire)
}

func (w *watch) await(p waiting, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.reply && p != waitBody {
		return
	}
	w.phase, w.until, w.long = p, time.Now().Add(d), d
	if w.until.Before(w.fires) {
		w.fires = w.until
		w.timer.Reset(d)
	}
}

// idle means that nothing is waited for, or that the guest is.
func (w *watch) idle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = waitNothing
}

// uploading means that the guest is waited for, unless the response has begun.
func (w *watch) uploading() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reply {
		w.phase = waitNothing
	}
}

// hop begins the phases of another request.
func (w *watch) hop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase, w.reply = waitNothing, false
}

func (w *watch) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase, w.reply = waitNothing, true
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}

func (w *watch) fire() {
	if err := w.late(time.Now()); err != nil {
		w.call.cut(err)
	}
}

// late says which deadline has passed, or sets the timer to the next one.
func (w *watch) late(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	if !now.Before(w.last) {
		return agent.Exceeded(agent.LimitHTTP, "the request took more than %s in all", w.call.limits.Total)
	}
	next := w.last
	if w.phase != waitNothing && w.until.Before(next) {
		next = w.until
	}
	if now.Before(next) {
		w.fires = next
		w.timer.Reset(next.Sub(now))
		return nil
	}
	switch w.phase {
	case waitSent:
		return agent.Exceeded(agent.LimitHTTP, "the host took nothing of the request's body for %s", w.long)
	case waitHeader:
		return agent.Exceeded(agent.LimitHTTP, "the response's header did not come within %s", w.long)
	}
	return agent.Exceeded(agent.LimitHTTP, "nothing of the response's body came for %s", w.long)
}
