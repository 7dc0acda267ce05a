package skep

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/skep-dev/skep/abi"
)

// StepOptions says what becomes of a step that fails.
type StepOptions[T any] struct {
	// Retry is how often, and how long after each other, attempts are made: the defaults are 6 in all, from 10 s on. The zero Retry
	// means one attempt.
	Retry Retry

	// Timeout is how long an attempt may take. Nothing can interrupt the code of a module while it runs: an attempt that took longer
	// has failed with ErrTimedOut once it returns, and its value is thrown away. Waits inside have timeouts of their own. By a run's
	// clock only calls of the host take time; computing is bounded by the agent's limits. 0 means none.
	Timeout time.Duration

	// Rollback takes back what the step did, with what it returned. Rollbacks of the steps that worked run in reverse when the
	// function that was given to Do fails or panics. They are tried by Retry, too, and one that fails for good does not keep those
	// before it from running.
	Rollback func(T) error
}

// Step runs f as a named step, which shows in the events and the tree of the run. A name that is used again gets a number: the second
// step "mail" is "mail#2". An attempt that fails is made again, after a delay that doubles, as the options say and unless its error is
// Permanent. Outside of a run nothing can wait, and there is one attempt. A nil o is the zero one.
//
// A step is no memory: when the run is replayed f is called again, and the calls to the host that it makes are answered from the
// journal.
func Step[T any](name string, o *StepOptions[T], f func() (T, error)) (T, error) {
	if o == nil {
		o = &StepOptions[T]{}
	}
	name = steps.unique(name)
	v, err := attempts(name, false, o.Retry, o.Timeout, f)
	if err == nil && o.Rollback != nil {
		steps.rollbacks = append(steps.rollbacks, func() error {
			_, err := attempts(name, true, o.Retry, 0, func() (struct{}, error) { return struct{}{}, o.Rollback(v) })
			return err
		})
	}
	return v, err
}

// Permanent marks an error that no further attempt would mend. errors.Is and errors.As see through it.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ error }

func (p *permanent) Unwrap() error { return p.error }

// steps are those of the call. A cell serves one call, and a Fake one at a time.
var steps taken

type taken struct {
	names     map[string]bool
	rollbacks []func() error // of those that worked
}

func (t *taken) unique(name string) string {
	own := name
	for n := 2; t.names[own]; n++ {
		own = fmt.Sprintf("%s#%d", name, n)
	}
	if t.names == nil {
		t.names = map[string]bool{}
	}
	t.names[own] = true
	return own
}

// rollBack runs the rollbacks and adds what failed to err.
func (t *taken) rollBack(err error) error {
	for len(t.rollbacks) > 0 {
		last := t.rollbacks[len(t.rollbacks)-1]
		t.rollbacks = t.rollbacks[:len(t.rollbacks)-1]
		if failed := caught(last); failed != nil {
			err = fmt.Errorf("%w; rollback: %w", err, failed)
		}
	}
	return err
}

func attempts[T any](name string, rollback bool, r Retry, timeout time.Duration, f func() (T, error)) (T, error) {
	if r == (Retry{}) {
		r.Attempts = 1
	}
	r = r.or(Retry{Attempts: 6, Delay: 10 * time.Second, MaxDelay: 365 * 24 * time.Hour})
	for n := 1; ; n++ {
		v, err := attempt(abi.StepMark{Name: name, Attempt: n, Rollback: rollback}, timeout, f)
		if err == nil {
			return v, nil
		}
		var none T
		err = fmt.Errorf("step %q: %w", name, err)
		if n >= r.Attempts || final(err) {
			return none, err
		}
		if self, failed := Self(); failed != nil || self.Key == "" || self.Run == "" {
			return none, err
		}
		if failed := Sleep(r.before(n + 1)); failed != nil {
			return none, fmt.Errorf("%w; waiting for the next attempt: %w", err, failed)
		}
	}
}

// final reports whether no further attempt is of use. A run that was cancelled tries nothing more.
func final(err error) bool {
	var e *CallError
	return errors.As(err, new(*permanent)) || errors.As(err, &e) && e.Kind == "cancelled"
}

func attempt[T any](m abi.StepMark, timeout time.Duration, f func() (T, error)) (v T, err error) {
	if err := ask(abi.CallStepBegin, m, nil); err != nil {
		return v, err
	}
	began := Now()
	v, err = f()
	if took := Now().Sub(began); err == nil && timeout > 0 && took > timeout {
		err = fmt.Errorf("it took %v, more than its %v: %w", took, timeout, ErrTimedOut)
	}
	if err != nil {
		m.Error = err.Error()
	}
	return v, errors.Join(err, ask(abi.CallStepEnd, m, nil))
}

func (r Retry) or(defaults Retry) Retry {
	return Retry{
		Attempts: cmp.Or(r.Attempts, defaults.Attempts), Delay: cmp.Or(r.Delay, defaults.Delay), MaxDelay: cmp.Or(r.MaxDelay, defaults.MaxDelay),
	}
}

// before returns the delay before the attempt of that number, from 2.
func (r Retry) before(attempt int) time.Duration {
	d := min(r.Delay, r.MaxDelay)
	for ; attempt > 2 && d < r.MaxDelay; attempt-- {
		d = min(2*d, r.MaxDelay)
	}
	return d
}
