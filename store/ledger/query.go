package ledger

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"os"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Dimension is something that usage rows can be told apart by.
type Dimension uint8

const (
	ByDay Dimension = 1 << iota
	ByAgent
	ByKind

	// Of calls of models; with one of these, Rows is about them alone.
	ByProvider
	ByModel
	ByRoute
	ByUser
	ByKey

	byModels = ByProvider | ByModel | ByRoute | ByUser | ByKey
)

// Query says which usage is wanted.
type Query struct {
	App      agent.App
	From, To time.Time // in Rows the UTC days of the two, both included; in Events from From on and before To
	Agent    string    // or agent.NoAgent; empty for all
	By       Dimension // of Rows: what to tell apart, or-ed together

	// Only calls of models of these; empty for all, agent.NoAgent for those that have none.
	Provider, Model, Route, User, Key string

	// Only events of these. With one of them Rows reads events, of which those older than Options.Keep are gone.
	Session agent.SessionID
	Run     agent.RunID
}

// models reports whether q is about calls of models alone.
func (q *Query) models() bool {
	return q.By&byModels != 0 || q.Provider != "" || q.Model != "" || q.Route != "" || q.User != "" || q.Key != ""
}

func is(want, got string) bool {
	return want == "" || want == got || want == agent.NoAgent && got == ""
}

// hasModel reports whether q is about what has these names.
func (q *Query) hasModel(provider, model, route, user, key string) bool {
	return is(q.Provider, provider) && is(q.Model, model) && is(q.Route, route) && is(q.User, user) && is(q.Key, key)
}

// strip takes from a row what q does not tell apart, and reports whether q is about it at all. Of calls of models there are two rows: their own
// has what is about models, the other what all events have.
func (q *Query) strip(r *agent.UsageRow) bool {
	if q.Agent != "" && r.Agent != q.Agent {
		return false
	}
	switch {
	case q.models():
		if r.Models == nil || !q.hasModel(r.Provider, r.Model, r.Route, r.User, r.Key) {
			return false
		}
	case r.Models != nil:
		*r = agent.UsageRow{Day: r.Day, App: r.App, Agent: r.Agent, Kind: r.Kind, Models: r.Models}
	}
	if q.By&ByDay == 0 {
		r.Day = ""
	}
	if q.By&ByAgent == 0 {
		r.Agent = ""
	}
	if q.By&ByKind == 0 {
		r.Kind = agent.UnknownUse
	}
	for _, d := range []struct {
		by    Dimension
		field *string
	}{{ByProvider, &r.Provider}, {ByModel, &r.Model}, {ByRoute, &r.Route}, {ByUser, &r.User}, {ByKey, &r.Key}} {
		if q.By&d.by == 0 {
			*d.field = ""
		}
	}
	return true
}

// MaxDays is the most days that one Rows looks at.
const MaxDays = 3700

// Rows adds up usage, events included that are not yet rolled up. The rows are sorted by what they tell apart.
func (l *Ledger) Rows(ctx context.Context, q Query) ([]agent.UsageRow, error) {
	if q.To.Before(q.From) || q.To.Sub(q.From) > MaxDays*24*time.Hour {
		return nil, agent.Errorf(agent.Invalid, "usage can be shown for 1 to %d days, which end after they begin", MaxDays)
	}
	s := newSums()
	add := func(r agent.UsageRow) {
		if q.strip(&r) {
			s.add(r, false)
		}
	}
	if q.Session != "" || q.Run != "" {
		if err := l.detail(ctx, q, add); err != nil {
			return nil, err
		}
		return s.sorted(), nil
	}
	if err := l.Fold(ctx); err != nil && ctx.Err() == nil { // a full disk keeps nobody from reading
		l.log.WarnContext(ctx, "usage could not be rolled up yet", "error", err)
	}
	if err := l.rest(ctx, q, add); err != nil {
		return nil, err
	}
	return s.sorted(), nil
}

// rest calls add with the rollups and with the events that are not in them.
func (l *Ledger) rest(ctx context.Context, q Query, add func(agent.UsageRow)) error {
	mark, err := l.st.Usage(ctx, q.App, q.From, q.To, add)
	if err != nil {
		return err
	}
	first, last := agent.UsageDay(q.From), agent.UsageDay(q.To)
	_, err = l.each(ctx, mark, l.now(), func(e *agent.UsageEvent) error {
		if r := e.Row(); (q.App == "" || r.App == q.App) && first <= r.Day && r.Day <= last {
			add(r)
			if m, ok := e.ModelRow(); ok {
				add(m)
			}
		}
		return nil
	})
	return err
}

// detail calls add with the rows of the events that q is about, one by one.
func (l *Ledger) detail(ctx context.Context, q Query, add func(agent.UsageRow)) error {
	q.From, q.To = dayOf(q.From), dayOf(q.To).AddDate(0, 0, 1)
	for after := ""; ; {
		page, next, err := l.Events(ctx, q, after, 1000)
		if err != nil {
			return err
		}
		for _, e := range page {
			add(e.Row())
			if m, ok := e.ModelRow(); ok {
				add(m)
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

// dayOf returns when the UTC day of t begins.
func dayOf(t time.Time) time.Time {
	y, m, d := t.UTC().Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// Day returns what was used on the UTC day of t, of all apps, and how often grants were.
func (l *Ledger) Day(ctx context.Context, t time.Time) ([]agent.UsageRow, []store.GrantUses, error) {
	if err := l.Fold(ctx); err != nil {
		l.log.WarnContext(ctx, "usage could not be rolled up yet", "error", err)
	}
	s := newSums()
	if err := l.rest(ctx, Query{From: t, To: t}, func(r agent.UsageRow) {
		if r.Models == nil {
			s.add(r, false)
		}
	}); err != nil {
		return nil, nil, err
	}
	uses, mark, err := l.st.UsageUses(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	for _, u := range uses {
		n := u.Uses
		u.Uses = 0
		s.uses[u] += n
	}
	_, err = l.each(ctx, mark, l.now(), func(e *agent.UsageEvent) error {
		if e.Kind == agent.UseGrant && agent.UsageDay(e.Time) == agent.UsageDay(t) {
			s.uses[store.GrantUses{Day: agent.UsageDay(t), App: e.App, Agent: e.Agent, Grant: e.Function}]++
		}
		return nil
	})
	return s.sorted(), s.grants(), err
}

// Entry is an event with the cursor that goes on behind it.
type Entry struct {
	Cursor string `json:"cursor"`
	agent.UsageEvent
}

// Events returns events in the order in which they were written, at most limit of them, and the cursor of the next: "" at the
// end. after is such a cursor, or "". Events older than Options.Keep are gone.
func (l *Ledger) Events(ctx context.Context, q Query, after string, limit int) (out []Entry, next string, err error) {
	at := store.UsageMark{}
	if after != "" {
		if at, err = parseCursor(q.App, after); err != nil {
			return nil, "", err
		}
	}
	end := l.now()
	list, err := segments(l.dir)
	if err != nil {
		return nil, "", err
	}
	out = []Entry{}
	for _, n := range list {
		if n < at.Segment || n > end.Segment || n < end.Segment && l.outside(n, q) {
			continue
		}
		from, to := int64(headerSize), int64(-1)
		if n == at.Segment {
			from = max(at.Offset, from)
		}
		if n == end.Segment {
			to = end.Offset
		}
		stopped, err := l.entries(ctx, q, n, from, to, limit, &out)
		if err != nil && n == at.Segment && len(out) == 0 && agent.KindOf(err) == agent.Internal {
			return nil, "", errCursor() // it was made up, or doctor will tell
		}
		if err != nil {
			return nil, "", err
		}
		if stopped > 0 {
			return out, cursor(q.App, store.UsageMark{Segment: n, Offset: stopped}), nil
		}
	}
	return out, "", nil
}

// entries adds the entries of a part of segment n to out. It returns where it stopped because there were enough, or 0.
func (l *Ledger) entries(ctx context.Context, q Query, n, from, to int64, limit int, out *[]Entry) (stopped int64, err error) {
	f, err := os.Open(segmentPath(l.dir, n))
	if err != nil {
		if os.IsNotExist(err) { // it has just expired
			return 0, nil
		}
		return 0, agent.Wrap(agent.Unavailable, err, "cannot read the usage ledger")
	}
	defer f.Close()
	if _, err := readHeader(f, n); err != nil {
		return 0, err
	}
	if to < 0 {
		if to, err = fileSize(f); err != nil {
			return 0, err
		}
	}
	if from > to {
		return 0, damaged(f.Name(), "it ends at %d; it was read up to %d before", to, from)
	}
	read := 0
	at, err := scan(f, n, from, to, func(next int64, r record) error {
		if len(*out) == limit {
			return errEnough
		}
		if read++; read%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if r.kind == recordEvent && q.has(&r.event) {
			*out = append(*out, Entry{cursor(q.App, store.UsageMark{Segment: n, Offset: next}), r.event})
		}
		return nil
	})
	switch err {
	case errEnough:
		return at, nil
	case errTorn:
		err = damaged(f.Name(), "there is no record at %d", at)
	}
	return 0, err
}

func (q *Query) has(e *agent.UsageEvent) bool {
	return (q.App == "" || e.App == q.App) && (q.Agent == "" || e.Agent == q.Agent || q.Agent == agent.NoAgent && e.Agent == "") &&
		!e.Time.Before(q.From) && e.Time.Before(q.To) && (q.Session == "" || e.Session == q.Session) && (q.Run == "" || e.Run == q.Run) &&
		(!q.models() || e.Model != nil && q.hasModel(e.Model.Provider, e.Model.Model, e.Model.Route, e.Model.User, e.Model.Key))
}

// outside reports whether all of an ended segment is before or after the times of q.
func (l *Ledger) outside(n int64, q Query) bool {
	f, err := os.Open(segmentPath(l.dir, n))
	if err != nil {
		return false
	}
	defer f.Close()
	end, ok := readEnd(f, n)
	return ok && (end.events == 0 || time.Unix(0, end.last).Before(q.From) || !time.Unix(0, end.first).Before(q.To))
}

// A cursor is a mark, and a check that it is of this app.
func cursor(app agent.App, m store.UsageMark) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(m.Segment))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Offset))
	b = binary.BigEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, []byte(app)))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(app agent.App, s string) (m store.UsageMark, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil && len(b) == 20 {
		m = store.UsageMark{Segment: int64(binary.BigEndian.Uint64(b)), Offset: int64(binary.BigEndian.Uint64(b[8:]))}
	}
	if m.Segment <= 0 || m.Offset < headerSize || cursor(app, m) != s {
		return m, errCursor()
	}
	return m, nil
}

func errCursor() error {
	return &agent.Error{
		Kind: agent.Invalid, Msg: "the cursor is not one of this ledger", Hint: "pass on the cursor of an event as it is; leave it out to begin",
	}
}
