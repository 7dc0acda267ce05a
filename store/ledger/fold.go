package ledger

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// sums adds up events as the rollups of the store do.
type sums struct {
	rows map[rowKey]*agent.UsageRow
	uses map[store.GrantUses]int64 // by their names, with Uses 0
}

type rowKey struct {
	day                              string
	app                              agent.App
	agent                            string
	kind                             agent.UsageKind
	models                           bool // a row of calls of models, which stands beside that of all calls
	provider, model, route, user, by string
}

func newSums() *sums {
	return &sums{rows: map[rowKey]*agent.UsageRow{}, uses: map[store.GrantUses]int64{}}
}

// add adds a row; apart are those of calls of models when all events are counted in both.
func (s *sums) add(r agent.UsageRow, apart bool) {
	k := rowKey{r.Day, r.App, r.Agent, r.Kind, apart && r.Models != nil, r.Provider, r.Model, r.Route, r.User, r.Key}
	if sum := s.rows[k]; sum != nil {
		sum.Add(r)
		return
	}
	s.rows[k] = &r
}

func (s *sums) event(e *agent.UsageEvent) {
	r := e.Row()
	s.add(r, true)
	if m, ok := e.ModelRow(); ok {
		s.add(m, true)
	}
	if e.Kind == agent.UseGrant {
		s.uses[store.GrantUses{Day: r.Day, App: e.App, Agent: e.Agent, Grant: e.Function}]++
	}
}

func (s *sums) len() int { return len(s.rows) + len(s.uses) }

func (s *sums) grants() []store.GrantUses {
	out := make([]store.GrantUses, 0, len(s.uses))
	for u, n := range s.uses {
		u.Uses = n
		out = append(out, u)
	}
	return out
}

// sorted returns the rows by day, app, agent, kind, and what is told of calls of models.
func (s *sums) sorted() []agent.UsageRow {
	out := make([]agent.UsageRow, 0, len(s.rows))
	for _, r := range s.rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b agent.UsageRow) int {
		return cmp.Or(
			strings.Compare(a.Day, b.Day), strings.Compare(string(a.App), string(b.App)), strings.Compare(a.Agent, b.Agent), int(a.Kind)-int(b.Kind),
			strings.Compare(a.Provider, b.Provider), strings.Compare(a.Model, b.Model), strings.Compare(a.Route, b.Route),
			strings.Compare(a.User, b.User), strings.Compare(a.Key, b.Key),
		)
	})
	return out
}

var errEnough = errors.New("enough")

// Fold adds every event that was appended before to the rollups of the store, but for those behind the beginning of a call of a model that has
// not ended yet.
func (l *Ledger) Fold(ctx context.Context) error {
	l.folding.Lock()
	defer l.folding.Unlock()
	l.syncing.Lock()
	segment, offset, err := l.sync() // the mark must never be ahead of the disk
	l.syncing.Unlock()
	if err != nil || segment == 0 {
		return err
	}
	end := l.foldable(store.UsageMark{Segment: segment, Offset: offset})
	from, err := l.st.UsageMark(ctx)
	for err == nil && before(from, end) {
		var to store.UsageMark
		if to, err = l.foldSome(ctx, from, end); err == nil {
			from = to
		}
	}
	return err
}

// foldSome folds as much as one commit takes, and returns how far it came.
func (l *Ledger) foldSome(ctx context.Context, from, end store.UsageMark) (store.UsageMark, error) {
	s := newSums()
	to, err := l.each(ctx, from, end, func(e *agent.UsageEvent) error {
		if s.len() >= store.MaxFold-1 { // an event adds two at most: a row and the uses of a grant, or two rows
			return errEnough
		}
		s.event(e)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return from, err
	}
	return to, l.st.FoldUsage(ctx, from, to, slices.Collect(maps.Values(deref(s.rows))), s.grants())
}

func deref(m map[rowKey]*agent.UsageRow) map[rowKey]agent.UsageRow {
	out := make(map[rowKey]agent.UsageRow, len(m))
	for k, r := range m {
		out[k] = *r
	}
	return out
}

func before(a, b store.UsageMark) bool {
	return a.Segment < b.Segment || a.Segment == b.Segment && a.Offset < b.Offset
}

// now returns the mark behind the newest event.
func (l *Ledger) now() store.UsageMark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.UsageMark{Segment: l.segment, Offset: l.size}
}

// each calls fn for the events between two marks, and returns up to where: before the one for which fn returned an error.
// Segments that are not there any more are passed over.
func (l *Ledger) each(ctx context.Context, from, end store.UsageMark, fn func(*agent.UsageEvent) error) (store.UsageMark, error) {
	list, err := segments(l.dir)
	if err != nil {
		return from, err
	}
	for _, n := range list {
		if n < from.Segment || n > end.Segment {
			continue
		}
		if n > from.Segment {
			from = store.UsageMark{Segment: n, Offset: headerSize}
		}
		to := int64(-1)
		if n == end.Segment {
			to = end.Offset
		}
		at, err := l.eachIn(ctx, n, max(from.Offset, headerSize), to, fn)
		from.Offset = at
		if err != nil {
			return from, err
		}
	}
	if from.Segment < end.Segment { // the last ones are not there
		from = end
	}
	return from, nil
}

// eachIn is each for a part of one segment. A negative end is that of a segment which was ended.
func (l *Ledger) eachIn(ctx context.Context, n, from, end int64, fn func(*agent.UsageEvent) error) (at int64, err error) {
	f, err := os.Open(segmentPath(l.dir, n))
	if errors.Is(err, os.ErrNotExist) {
		return from, nil
	}
	if err != nil {
		return from, agent.Wrap(agent.Unavailable, err, "cannot read the usage ledger")
	}
	defer f.Close()
	if _, err := readHeader(f, n); err != nil {
		return from, err
	}
	ended := end >= 0
	if end < 0 {
		if end, err = fileSize(f); err != nil {
			return from, err
		}
	}
	if end < from {
		return from, damaged(f.Name(), "it ends at %d; it was read up to %d before", end, from)
	}
	read := 0
	at, err = scan(f, n, from, end, func(_ int64, r record) error {
		ended = ended || r.kind == recordEnd
		if r.kind != recordEvent {
			return nil
		}
		if read++; read%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		return fn(&r.event)
	})
	if errors.Is(err, errTorn) {
		err = damaged(f.Name(), "there is no record at %d", at)
	}
	if err == nil && !ended && from < end {
		err = damaged(f.Name(), "its end is missing")
	}
	return at, err
}

// expire deletes segments that were folded and whose newest event is older than Options.Keep.
func (l *Ledger) expire(ctx context.Context) error {
	mark, err := l.st.UsageMark(ctx)
	if err != nil {
		return err
	}
	list, err := segments(l.dir)
	if err != nil {
		return err
	}
	oldest := l.opts.Now().Add(-l.opts.Keep)
	for _, n := range list {
		if n >= mark.Segment {
			return nil
		}
		path := segmentPath(l.dir, n)
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		end, ok := readEnd(f, n)
		_ = f.Close()
		if !ok || end.events > 0 && !time.Unix(0, end.last).Before(oldest) { // without an end it is damaged: for doctor to see
			return nil
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
