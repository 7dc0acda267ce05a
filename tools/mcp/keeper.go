package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// How long a server that failed is left alone: as long again each time, until it has been well for a while.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
	healthy    = time.Minute
)

// keeper keeps one connection with a server: it makes it when it is needed, leaves it when it is not, and waits between attempts. Lock order: source.mu,
// keeper.mu, link.mu.
type keeper struct {
	s    *source
	user string

	mu       sync.Mutex
	state    agent.ServerState
	since    time.Time
	link     *link         // when state is ready
	starting chan struct{} // closed when the attempt under way has ended; nil when there is none
	inUse    int           // calls under way on link
	idle     *time.Timer
	closed   bool
	legacy   bool // the program does not bear to be asked for the new revision

	err      error // why it failed, or needs authorization
	retry    time.Time
	failures int // in a row
	restarts int
	begun    bool // it was ready before
	tokens   int  // generation of the authorization that was refused
	protocol string
	version  string
	stderr   *tail
}

// use returns the connection, which it makes first when there is none. The caller calls release when its call has ended. Errors are marked unsent.
func (k *keeper) use(ctx context.Context) (l *link, release func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for asked := false; ; asked = true {
		switch {
		case k.closed:
			return nil, nil, tools.MarkUnsent(agent.Errorf(agent.Unavailable, "server %s is closed", k.s.rec.Name))
		case k.link != nil:
			l := k.link
			k.inUse++
			k.idle.Stop()
			return l, sync.OnceFunc(func() { k.release(l) }), nil
		case k.starting == nil && (asked && k.err != nil || !k.mayTry()):
			return nil, nil, tools.MarkUnsent(k.failure())
		case k.starting == nil:
			k.begin()
		}
		wait := k.starting
		k.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		k.mu.Lock()
		if err := ctx.Err(); err != nil && k.link == nil {
			return nil, nil, tools.MarkUnsent(agent.Wrap(agent.Cancelled, err, "the call was cancelled while server "+k.s.rec.Name+" was started"))
		}
	}
}

// mayTry reports whether an attempt makes sense now. k.mu is held.
func (k *keeper) mayTry() bool {
	if k.state == agent.ServerNeedsAuth {
		return k.s.o.OAuth != nil && k.s.o.OAuth.generation(k.s.rec, k.user) != k.tokens
	}
	return k.state != agent.ServerFailed || !time.Now().Before(k.retry)
}

// failure says why there is no connection. k.mu is held.
func (k *keeper) failure() error {
	e := *agent.AsError(k.err)
	if k.state == agent.ServerFailed {
		e.After = max(time.Until(k.retry), 0)
		if e.After > 0 {
			e.Msg += fmt.Sprintf("; it is tried again in %s", max(e.After.Round(time.Second), time.Second))
		}
	}
	return &e
}

// begin starts an attempt. k.mu is held.
func (k *keeper) begin() {
	done := make(chan struct{})
	k.starting = done
	k.set(agent.ServerStarting, nil)
	if k.s.o.OAuth != nil {
		k.tokens = k.s.o.OAuth.generation(k.s.rec, k.user)
	}
	k.s.work.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), k.s.o.Start,
			agent.Errorf(agent.Unavailable, "server %s was not ready after %s", k.s.rec.Name, k.s.o.Start))
		defer cancel()
		l, err := k.dial(ctx)
		if err != nil && ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.starting = nil
		close(done)
		switch {
		case err != nil:
			k.failed(err)
		case k.closed:
			k.s.work.Go(func() { l.close(errClosed) })
		default:
			k.ready(l)
		}
	})
}

var errClosed = agent.Errorf(agent.Unavailable, "the connection was closed")

// ready takes a connection. k.mu is held.
func (k *keeper) ready(l *link) {
	k.link, k.inUse = l, 0
	if k.begun {
		k.s.work.Go(k.s.changed) // it may be another server by now
	}
	if k.failures > 0 {
		k.restarts++
	}
	k.begun = true
	k.protocol, k.version = l.about()
	k.set(agent.ServerReady, nil)
	k.idle = time.AfterFunc(k.s.o.Idle, func() { k.rest(l) })
	k.s.work.Go(func() {
		err := l.wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.link != l {
			return
		}
		k.link = nil
		k.idle.Stop()
		if k.closed {
			return
		}
		if time.Since(l.born) >= healthy {
			k.failures = 0
		}
		k.failed(err)
	})
}

// failed notes a failure. k.mu is held.
func (k *keeper) failed(err error) {
	var auth *needsAuth
	if errors.As(err, &auth) {
		k.set(agent.ServerNeedsAuth, err)
	} else {
		k.failures++
		wait := min(firstRetry<<min(k.failures-1, 10), lastRetry)
		k.retry = time.Now().Add(wait)
		k.set(agent.ServerFailed, k.said(err))
	}
	k.s.o.Log.Warn("a server of tools failed", "err", err)
	k.s.work.Go(k.s.changed)
}

// said makes an error one that can be shown.
func (k *keeper) said(err error) error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return agent.Wrap(agent.Unavailable, err, "server "+k.s.rec.Name+" cannot be reached: "+kept(err.Error(), 500))
}

func (k *keeper) set(state agent.ServerState, err error) {
	k.state, k.err, k.since = state, err, time.Now()
}

// release ends a use.
func (k *keeper) release(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link != l {
		return
	}
	if k.inUse--; k.inUse == 0 {
		k.idle.Reset(k.s.o.Idle)
	}
}

// leave lets go of a connection, which is closed for a reason. It reports whether l was the one that is kept. k.mu is held.
func (k *keeper) leave(l *link, why error) bool {
	if k.link != l {
		return false
	}
	k.link = nil
	k.idle.Stop()
	k.s.work.Go(func() { l.close(why) })
	return true
}

// rest leaves a connection that has not been used for long.
func (k *keeper) rest(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse == 0 && k.leave(l, errClosed) {
		k.set(agent.ServerIdle, nil)
		k.failures = 0
	}
}

// drop leaves a connection that its server no longer knows, so that the next use makes another.
func (k *keeper) drop(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leave(l, errClosed) {
		k.set(agent.ServerIdle, nil)
	}
}

// deny notes that the server wants authorization, again or for more.
func (k *keeper) deny(l *link, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leave(l, err) {
		k.failed(err)
	}
}

func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	l, starting := k.link, k.starting
	k.link = nil
	if k.idle != nil {
		k.idle.Stop()
	}
	k.set(agent.ServerIdle, nil)
	k.mu.Unlock()
	if l != nil {
		l.close(errClosed)
	}
	if starting != nil {
		<-starting
	}
}

func (k *keeper) status(out *agent.ToolStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out.State, out.Since, out.Restarts = k.state, k.since, k.restarts
	out.Protocol, out.Version = k.protocol, k.version
	if k.err != nil {
		e := agent.AsError(k.err)
		out.Error, out.Hint = e.Msg, e.Hint
	}
	if k.state == agent.ServerFailed {
		out.Retry = k.retry
	}
	if k.stderr != nil {
		out.Stderr = k.stderr.String()
	}
}

// timeout is how long a call may take.
func (s *source) timeout() time.Duration { return cmp.Or(s.rec.Timeout, callTimeout) }
