package keeper

import (
	"context"
	"sync"
)

// lines are locks by name, at which one can wait for as long as a context lives.
type lines struct {
	mu sync.Mutex
	by map[string]*line
}

type line struct {
	turn chan struct{} // holds one while somebody has the lock
	n    int           // who has it or waits
}

// wait returns when the lock is had. done gives it back.
func (l *lines) wait(ctx context.Context, name string) (done func(), err error) {
	ln := l.join(name)
	select {
	case ln.turn <- struct{}{}:
		return func() { <-ln.turn; l.leave(name, ln) }, nil
	case <-ctx.Done():
		l.leave(name, ln)
		return nil, waited(ctx, name)
	}
}

// try returns false when somebody has the lock.
func (l *lines) try(name string) (done func(), ok bool) {
	ln := l.join(name)
	select {
	case ln.turn <- struct{}{}:
		return func() { <-ln.turn; l.leave(name, ln) }, true
	default:
		l.leave(name, ln)
		return nil, false
	}
}

func (l *lines) join(name string) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.by[name]
	if ln == nil {
		if l.by == nil {
			l.by = map[string]*line{}
		}
		ln = &line{turn: make(chan struct{}, 1)}
		l.by[name] = ln
	}
	ln.n++
	return ln
}

func (l *lines) leave(name string, ln *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln.n--; ln.n == 0 {
		delete(l.by, name)
	}
}
