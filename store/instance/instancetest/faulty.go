package instancetest

import (
	"context"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Fault is what goes wrong with one operation of a Faulty. The zero one is nothing.
type Fault struct {
	Delay time.Duration // before the operation
	Err   error         // is returned, and nothing is done

	// Of a commit only: its outcome is unknown. It is made before the answer, never, or so long after it.
	Unknown Unknown
	Late    time.Duration
}

// Unknown says what became of a commit whose outcome its caller is not told.
type Unknown uint8

const (
	Known Unknown = iota
	Made
	NotMade
	MadeLate
)

// Op is an operation of a Store.
type Op struct {
	Name string // of the method: "Acquire", "Commit", ...
	ID   instance.ID
	F    instance.Fence  // of a Commit, Resolve or Delete
	B    *instance.Batch // of a Commit
}

// Faulty is a Store in which operations fail, are late, or end nobody knows how. Wait returns when late commits have been made.
type Faulty struct {
	instance.Store
	Fault func(Op) Fault
	// Accepted, when given, is told of each commit that the Store has made, at the time it was.
	Accepted func(id instance.ID, f instance.Fence, b *instance.Batch, r instance.Result)

	late sync.WaitGroup
}

// Wait returns when no commit is on its way any more.
func (s *Faulty) Wait() { s.late.Wait() }

func (s *Faulty) meet(ctx context.Context, op Op) (Fault, error) {
	f := s.Fault(op)
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return f, agent.Wrap(agent.Unavailable, ctx.Err(), "the store did not answer in time")
		}
	}
	return f, f.Err
}

func (s *Faulty) Acquire(ctx context.Context, id, parent instance.ID) (instance.Info, error) {
	if _, err := s.meet(ctx, Op{Name: "Acquire", ID: id}); err != nil {
		return instance.Info{}, err
	}
	return s.Store.Acquire(ctx, id, parent)
}

func (s *Faulty) Commit(ctx context.Context, id instance.ID, f instance.Fence, b *instance.Batch) (instance.Result, error) {
	fault, err := s.meet(ctx, Op{"Commit", id, f, b})
	if err != nil {
		return instance.Result{}, err
	}
	made := func(b *instance.Batch) (instance.Result, error) {
		r, err := s.Store.Commit(context.WithoutCancel(ctx), id, f, b)
		if err == nil && s.Accepted != nil {
			s.Accepted(id, f, b, r)
		}
		return r, err
	}
	switch fault.Unknown {
	case Made:
		_, _ = made(b)
	case MadeLate:
		sent := *b // as it was when it was sent
		s.late.Go(func() {
			timer := time.NewTimer(fault.Late)
			<-timer.C
			_, _ = made(&sent)
		})
	case Known:
		return made(b)
	}
	return instance.Result{}, agent.Wrap(agent.Unavailable, instance.ErrUnknown, "the connection to the store was lost")
}

func (s *Faulty) Resolve(ctx context.Context, id instance.ID, f instance.Fence, batch instance.BatchID) (instance.Outcome, instance.Fence, error) {
	if _, err := s.meet(ctx, Op{Name: "Resolve", ID: id, F: f}); err != nil {
		return instance.UnknownOutcome, instance.Fence{}, err
	}
	return s.Store.Resolve(ctx, id, f, batch)
}

func (s *Faulty) Delete(ctx context.Context, id instance.ID, f instance.Fence) error {
	if _, err := s.meet(ctx, Op{Name: "Delete", ID: id, F: f}); err != nil {
		return err
	}
	return s.Store.Delete(ctx, id, f)
}

func (s *Faulty) Info(ctx context.Context, id instance.ID) (instance.Info, error) {
	if _, err := s.meet(ctx, Op{Name: "Info", ID: id}); err != nil {
		return instance.Info{}, err
	}
	return s.Store.Info(ctx, id)
}

func (s *Faulty) Load(ctx context.Context, id instance.ID, keys ...string) ([]agent.StateEntry, error) {
	if _, err := s.meet(ctx, Op{Name: "Load", ID: id}); err != nil {
		return nil, err
	}
	return s.Store.Load(ctx, id, keys...)
}

func (s *Faulty) Received(ctx context.Context, id, from instance.ID) (int64, error) {
	if _, err := s.meet(ctx, Op{Name: "Received", ID: id}); err != nil {
		return 0, err
	}
	return s.Store.Received(ctx, id, from)
}

func (s *Faulty) Due(ctx context.Context, now time.Time, after instance.Cursor, limit int) (instance.DuePage, error) {
	if _, err := s.meet(ctx, Op{Name: "Due"}); err != nil {
		return instance.DuePage{}, err
	}
	return s.Store.Due(ctx, now, after, limit)
}

func (s *Faulty) Outgoing(ctx context.Context, after instance.Cursor, limit int) ([]instance.Message, instance.Cursor, error) {
	if _, err := s.meet(ctx, Op{Name: "Outgoing"}); err != nil {
		return nil, "", err
	}
	return s.Store.Outgoing(ctx, after, limit)
}
