package backendtest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/driver"
)

// recorder keeps what a backend tells.
type recorder struct {
	t    testing.TB
	wait time.Duration
	read int // events that Wait has been through; of the test's goroutine

	events sync.Mutex
	list   []driver.Event
	more   chan struct{} // closed when list grows
}

func newRecorder(t testing.TB, wait time.Duration) *recorder {
	if wait == 0 {
		wait = 30 * time.Second
	}
	return &recorder{t: t, wait: wait, more: make(chan struct{})}
}

// Told is a Rig or a Puppet.
type Told interface {
	Events() []driver.Event
	tb() testing.TB
}

func (r *recorder) tb() testing.TB { return r.t }

// record is the sink.
func (r *recorder) record(e driver.Event) {
	r.events.Lock()
	defer r.events.Unlock()
	r.list = append(r.list, e)
	close(r.more)
	r.more = make(chan struct{})
}

// Wait returns the next event of one of the types, of those that it has not been through.
func (r *recorder) Wait(types ...string) driver.Event {
	r.t.Helper()
	list, at := r.after(r.read, types...)
	r.read = at + 1
	return list[at]
}

// after waits until one of the types is among the events from number from on. It returns all that came, and the number of that one.
func (r *recorder) after(from int, types ...string) (list []driver.Event, at int) {
	r.t.Helper()
	late := time.After(r.wait)
	for {
		r.events.Lock()
		list, more := slices.Clone(r.list), r.more
		r.events.Unlock()
		for ; from < len(list); from++ {
			if slices.Contains(types, list[from].Type) {
				return list, from
			}
		}
		select {
		case <-more:
		case <-late:
			r.t.Fatalf("no event %s came within %s", strings.Join(types, " or "), r.wait)
		}
	}
}

// Events are all that came.
func (r *recorder) Events() []driver.Event {
	r.events.Lock()
	defer r.events.Unlock()
	return slices.Clone(r.list)
}

// Tale are events as TYPE DATA: those of the types, or all.
func Tale(list []driver.Event, types ...string) (out []string) {
	for _, e := range list {
		if len(types) == 0 || slices.Contains(types, e.Type) {
			out = append(out, strings.TrimSpace(e.Type+" "+string(e.Data)))
		}
	}
	return out
}

// Of are the data of all events of a type.
func Of[T any](r Told, kind string) (out []T) {
	r.tb().Helper()
	for _, e := range r.Events() {
		if e.Type == kind {
			out = append(out, Data[T](r.tb(), e))
		}
	}
	return out
}

// Data is that of an event.
func Data[T any](t testing.TB, e driver.Event) (v T) {
	t.Helper()
	if err := e.Read(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
