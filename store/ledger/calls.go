package ledger

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// maxCall bounds the id of a call, in bytes.
const maxCall = 160

// carryAfter is how many bytes the ledger may grow while a call is open before what tells of the call is written again at the end, so that
// a call that lasts for an hour does not keep what came after it from being rolled up.
const carryAfter = 1 << 20

// openCall is a call of a model that has begun and not ended.
type openCall struct {
	event agent.UsageEvent
	at    store.UsageMark // of the newest record that tells that it began
	owed  bool            // it has ended; event is its end, which could not be written yet
}

// Begin writes down that a call of a model is about to leave; e is what is known of it until then, and e.Model.Call names it, which is new.
// Once it has returned nil, the call counts exactly once, whatever happens to the process: by the event that Append is given with the same
// Call, else by e itself at the next start, with the time at which it began, the source partial and the outcome unavailable. So e's tokens
// and cost are what a call counts for that is cut off.
func (l *Ledger) Begin(e agent.UsageEvent) error {
	if err := checkEvent(&e); err != nil {
		return err
	}
	if e.Kind != agent.UseModel || e.Model.Call == "" || len(e.Model.Call) > maxCall {
		return agent.Errorf(agent.Internal, "only a call of a model can begin, with an id of 1 to %d bytes", maxCall)
	}
	if e.Time.IsZero() {
		e.Time = l.opts.Now()
	}
	use := *e.Model
	e.Model = &use
	p := buffers.Get().(*[]byte)
	defer buffers.Put(p)
	*p = appendEvent((*p)[:0], recordBegin, &e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.open[use.Call]; there {
		return agent.Errorf(agent.Internal, "the call %.80q is under way already", use.Call)
	}
	if err := l.ready(); err != nil {
		return err
	}
	at := store.UsageMark{Segment: l.segment, Offset: l.size}
	if err := l.write(*p); err != nil {
		return err
	}
	l.open[use.Call] = &openCall{event: e, at: at}
	return nil
}

// Open returns how many calls of models are under way for a run, or have ended and could not be written down yet.
func (l *Ledger) Open(run agent.RunID) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		if c.event.Run == run {
			n++
		}
	}
	return n
}

// ended takes note of an event that was written, or that could not be: then it is written as soon as there is room. The caller holds mu.
func (l *Ledger) ended(e *agent.UsageEvent, err error) {
	if e.Model == nil {
		return
	}
	c := l.open[e.Model.Call]
	switch {
	case c == nil:
	case err == nil:
		delete(l.open, e.Model.Call)
	default:
		use := *e.Model
		c.event, c.owed = *e, true
		c.event.Model = &use
	}
}

// settle writes the ends that are owed, and carries calls that have been open for long. What fails is tried again. The caller holds mu.
func (l *Ledger) settle() {
	most := max(carryAfter, int64(len(l.open))*4*maxText) // many that are open are not written all the time
	for _, c := range l.oldest() {
		behind := l.segment > c.at.Segment || l.size-c.at.Offset > most
		if !c.owed && !behind {
			continue
		}
		if l.ready() != nil {
			return
		}
		kind := recordBegin
		if c.owed {
			kind = recordEvent
		}
		at := store.UsageMark{Segment: l.segment, Offset: l.size}
		if l.write(appendEvent(nil, kind, &c.event)) != nil {
			return
		}
		if c.at = at; c.owed {
			l.end.note(c.event.Time)
			delete(l.open, c.event.Model.Call)
		}
	}
}

// oldest returns the open calls by where they began.
func (l *Ledger) oldest() []*openCall {
	list := make([]*openCall, 0, len(l.open))
	for _, c := range l.open {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *openCall) int {
		return cmp.Or(cmp.Compare(a.at.Segment, b.at.Segment), cmp.Compare(a.at.Offset, b.at.Offset))
	})
	return list
}

// foldable returns up to where the ledger may be folded: end, or the beginning of the oldest open call. So what tells of an open call is
// always behind the mark, where recover looks for it.
func (l *Ledger) foldable(end store.UsageMark) store.UsageMark {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		if before(c.at, end) {
			end = c.at
		}
	}
	return end
}

// recover writes the ends of calls that a process that is no more had begun. When it is cut off, those that it has written have ended.
func (l *Ledger) recover(ctx context.Context, mark store.UsageMark) error {
	open := map[string]*openCall{}
	note := func(n, at int64, r record) {
		if r.event.Model == nil || r.event.Model.Call == "" {
			return
		}
		switch r.kind {
		case recordBegin:
			open[r.event.Model.Call] = &openCall{event: r.event, at: store.UsageMark{Segment: n, Offset: at}}
		case recordEvent:
			delete(open, r.event.Model.Call)
		}
	}
	if err := l.records(ctx, mark, note); err != nil {
		return err
	}
	if len(open) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
	for _, c := range l.oldest() {
		c.owed = true
		c.event.Model.Source = agent.Partial
		c.event.Outcome = agent.OutcomeOf(agent.Errorf(agent.Unavailable, "the server stopped"))
	}
	l.settle()
	if left := len(l.open); left > 0 {
		l.log.Warn("calls of models that a stopped server had begun could not be written down yet", "calls", left)
	}
	return nil
}

// records calls fn with the events and beginnings behind mark, and where they begin.
func (l *Ledger) records(ctx context.Context, mark store.UsageMark, fn func(segment, at int64, r record)) error {
	end := l.now()
	list, err := segments(l.dir)
	if err != nil {
		return err
	}
	for _, n := range list {
		if n < mark.Segment || n > end.Segment {
			continue
		}
		from, to := int64(headerSize), int64(-1)
		if n == mark.Segment {
			from = max(mark.Offset, from)
		}
		if n == end.Segment {
			to = end.Offset
		}
		if err := recordsIn(ctx, segmentPath(l.dir, n), n, from, to, fn); err != nil {
			return err
		}
	}
	return nil
}

// recordsIn is records for a part of one segment; a negative end is that of the file. What is damaged is for Fold and doctor to see.
func recordsIn(ctx context.Context, path string, n, from, end int64, fn func(segment, at int64, r record)) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "cannot read the usage ledger")
	}
	defer f.Close()
	if end < 0 {
		if end, err = fileSize(f); err != nil {
			return err
		}
	}
	at := from
	_, err = scan(f, n, from, end, func(next int64, r record) error {
		fn(n, at, r)
		at = next
		return ctx.Err()
	})
	if _, bad := errors.AsType[*store.CorruptError](err); bad || errors.Is(err, errTorn) {
		return nil
	}
	return err
}
