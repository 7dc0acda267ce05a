package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/skep-dev/skep/agent"
)

// UsageMark is how far the usage rollups have come in the segments of the ledger (package ledger), which are files: what
// stands before Offset of Segment is in them, and nothing else.
type UsageMark struct {
	Segment int64 `json:"segment"`
	Offset  int64 `json:"offset"`
}

// GrantUses counts the uses of one grant on one day.
type GrantUses struct {
	Day   string    `json:"day"`
	App   agent.App `json:"app"`
	Agent string    `json:"agent"`
	Grant string    `json:"grant"`
	Uses  int64     `json:"uses"`
}

// markRecord is a mark with what the rollups must add up to.
type markRecord struct {
	UsageMark
	Rows   int64 `json:"rows"`
	Events int64 `json:"events"` // of all rows
	Uses   int64 `json:"uses"`   // records of uses of grants

	ModelRows   int64 `json:"model_rows,omitempty"`
	ModelEvents int64 `json:"model_events,omitempty"` // of all rows of calls of models
}

// MaxFold is the most rows and grants, together, that one FoldUsage takes.
const MaxFold = 2000

// keepUses is for how many days uses of grants are kept: they matter on their day only.
const keepUses = 3

// UsageMark returns how far the rollups have come; the zero mark when nothing was folded yet.
func (s *Store) UsageMark(ctx context.Context) (m UsageMark, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		rec, err := readMark(snap)
		m = rec.UsageMark
		return err
	})
	return m, err
}

func readMark(g getter) (rec markRecord, err error) {
	_, _, err = lookup(g, keyUsageMark, &rec)
	return rec, err
}

// FoldUsage adds rows and uses to the rollups and moves the mark from from to to, in one commit. It is a Conflict, and
// changes nothing, when the mark is not at from: the caller reads it and looks again what is to be folded. Rows with Models are
// of calls of models, which are kept in rows of their own beside the others.
func (s *Store) FoldUsage(ctx context.Context, from, to UsageMark, rows []agent.UsageRow, uses []GrantUses) error {
	for _, r := range rows {
		if !isPart(r.Day, string(r.App), r.Agent, r.Kind.String()) {
			return agent.Errorf(agent.Invalid, "usage of %q, %q on %q cannot be stored", r.App, r.Agent, r.Day)
		}
	}
	oldest := agent.UsageDay(s.now().AddDate(0, 0, -keepUses))
	return s.update(ctx, func(t *tx) error {
		rec, err := readMark(t)
		if err != nil {
			return err
		}
		if rec.UsageMark != from {
			return agent.Errorf(agent.Conflict, "the usage rollups are at %+v, not at %+v", rec.UsageMark, from)
		}
		for _, r := range rows {
			k, count, events := rowKey(r), &rec.Rows, &rec.Events
			if r.Models != nil {
				count, events = &rec.ModelRows, &rec.ModelEvents
			}
			sum := agent.UsageRow{
				Day: r.Day, App: r.App, Agent: r.Agent, Kind: r.Kind, Provider: r.Provider, Model: r.Model, Route: r.Route, User: r.User, Key: r.Key,
			}
			_, found, err := lookup(t, k, &sum)
			if err != nil {
				return err
			}
			if !found {
				*count++
			}
			sum.Add(r)
			*events += r.Events
			if err := t.save(k, 0, sum); err != nil {
				return err
			}
		}
		if err := t.addUses(&rec, uses, oldest); err != nil {
			return err
		}
		rec.UsageMark = to
		return t.save(keyUsageMark, 0, rec)
	})
}

// addUses counts uses of grants, and forgets a few that are older than the day oldest.
func (t *tx) addUses(rec *markRecord, uses []GrantUses, oldest string) error {
	for _, u := range uses {
		k := usageUseKey(u)
		sum := GrantUses{Day: u.Day, App: u.App, Agent: u.Agent, Grant: u.Grant}
		_, found, err := lookup(t, k, &sum)
		if err != nil {
			return err
		}
		if !found {
			rec.Uses++
		}
		sum.Uses += u.Uses
		if err := t.save(k, 0, sum); err != nil {
			return err
		}
	}
	n := 0
	return t.below.each(prefixUsageUse, prefixUsageUse+key(oldest), false, func(k key, _ []byte) error {
		if n++; n > 100 {
			return errStop
		}
		_, found, err := t.get(k)
		if found {
			rec.Uses--
			t.del(k)
		}
		return err
	})
}

// Usage calls fn for the rollups of an app from one day to another, both included, in order, then for those of calls of models, which have
// Models, and returns the mark that they stand at: all of one moment. An empty app means all of them.
func (s *Store) Usage(ctx context.Context, app agent.App, from, to time.Time, fn func(agent.UsageRow)) (m UsageMark, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		rec, err := readMark(snap)
		if err != nil {
			return err
		}
		m = rec.UsageMark
		for _, all := range []string{prefixUsageRow, prefixUsageMod} {
			if err := eachDay(ctx, snap, all, app, from, to, fn); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

func eachDay(ctx context.Context, snap snapshot, all string, app agent.App, from, to time.Time, fn func(agent.UsageRow)) error {
	first, last := agent.UsageDay(from), agent.UsageDay(to)
	if app == "" {
		return eachRow(ctx, snap, key(all+first), prefixEnd(key(all+last)), fn)
	}
	for day := from.UTC(); agent.UsageDay(day) <= last; day = day.AddDate(0, 0, 1) {
		prefix := join(all, agent.UsageDay(day), string(app), "")
		if err := eachRow(ctx, snap, prefix, prefixEnd(prefix), fn); err != nil {
			return err
		}
	}
	return nil
}

func eachRow(ctx context.Context, snap snapshot, from, to key, fn func(agent.UsageRow)) error {
	return snap.each(from, to, false, func(k key, payload []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var r agent.UsageRow
		if _, err := parse(k, payload, &r); err != nil {
			return err
		}
		fn(r)
		return nil
	})
}

// UsageUses returns how often grants were used on a day, as far as that is folded, and the mark.
func (s *Store) UsageUses(ctx context.Context, day time.Time) (uses []GrantUses, m UsageMark, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		rec, err := readMark(snap)
		if err != nil {
			return err
		}
		m = rec.UsageMark
		prefix := key(prefixUsageUse + agent.UsageDay(day) + "/")
		return snap.each(prefix, prefixEnd(prefix), false, func(k key, payload []byte) error {
			var u GrantUses
			_, err := parse(k, payload, &u)
			uses = append(uses, u)
			return err
		})
	})
	return uses, m, err
}

func usageRowKey(day string, app agent.App, name string, kind agent.UsageKind) key {
	return join(prefixUsageRow, day, string(app), name, kind.String())
}

// rowKey returns where a row is kept.
func rowKey(r agent.UsageRow) key {
	if r.Models == nil {
		return usageRowKey(r.Day, r.App, r.Agent, r.Kind)
	}
	h := sha256.New()
	for _, s := range []string{r.Agent, r.Provider, r.Model, r.Route, r.User, r.Key} {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return join(prefixUsageMod, r.Day, string(r.App), hex.EncodeToString(h.Sum(nil)))
}

func usageUseKey(u GrantUses) key {
	h := sha256.Sum256([]byte(u.Agent + "\x00" + u.Grant))
	return join(prefixUsageUse, u.Day, string(u.App), hex.EncodeToString(h[:]))
}

// usage checks that the rollups are those that the mark tells of.
func (v verifier) usage() error {
	rec, err := readMark(v.snap)
	if err != nil {
		return err
	}
	var rows, events, calls, modelRows, modelEvents int64
	err = v.walk(prefixUsageRow, func(k key, payload []byte) error {
		var r agent.UsageRow
		if _, err := parse(k, payload, &r); err != nil {
			return err
		}
		if k != rowKey(r) {
			return corrupt(k, "it is the usage of %s/%s on %s", r.App, r.Agent, r.Day)
		}
		if rows++; r.Kind == agent.UseModel {
			calls += r.Events
		}
		events += r.Events
		return nil
	})
	if err != nil {
		return err
	}
	err = v.walk(prefixUsageMod, func(k key, payload []byte) error {
		var r agent.UsageRow
		if _, err := parse(k, payload, &r); err != nil {
			return err
		}
		if r.Models == nil || k != rowKey(r) || r.Models.Calls != r.Events {
			return corrupt(k, "it is the usage of %s/%s by %s/%s on %s", r.Provider, r.Model, r.App, r.Agent, r.Day)
		}
		modelRows++
		modelEvents += r.Events
		return nil
	})
	if err == nil && (modelRows != rec.ModelRows || modelEvents != rec.ModelEvents || calls != modelEvents) {
		err = corrupt(keyUsageMark, "it tells of %d rows with %d calls of models, there are %d and %d, and %d calls in all",
			rec.ModelRows, rec.ModelEvents, modelRows, modelEvents, calls)
	}
	if err != nil {
		return err
	}
	var uses int64
	err = v.walk(prefixUsageUse, func(k key, payload []byte) error {
		var u GrantUses
		_, err := parse(k, payload, &u)
		if err == nil && k != usageUseKey(u) {
			err = corrupt(k, "it is of the grant %q of %s/%s on %s", u.Grant, u.App, u.Agent, u.Day)
		}
		uses++
		return err
	})
	if err == nil && (rows != rec.Rows || events != rec.Events || uses != rec.Uses) {
		err = corrupt(keyUsageMark, "it tells of %d rows, %d events and %d grants, there are %d, %d and %d",
			rec.Rows, rec.Events, rec.Uses, rows, events, uses)
	}
	return err
}
