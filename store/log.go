package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// MaxRead is the most events that one Read returns.
const MaxRead = 10_000

// MaxAppend is the most events that one commit adds to a log.
const MaxAppend = 4096

type logKind uint8

const (
	sessionLog logKind = iota + 1
	agentLog
	auditLog
	instanceLog
	journalLog
)

func (k logKind) String() string {
	switch k {
	case sessionLog:
		return "session"
	case agentLog:
		return "agent"
	case auditLog:
		return "audit"
	case instanceLog:
		return "instance"
	case journalLog:
		return "journal"
	}
	return "unknown"
}

// Log names an event log. It is comparable.
type Log struct {
	kind logKind
	app  agent.App
	id   string
}

// SessionLog is the log of a session. It keeps every event.
func SessionLog(app agent.App, id agent.SessionID) Log { return Log{sessionLog, app, string(id)} }

// AgentLog is the log of an agent: what it printed outside of sessions. It keeps the newest events (Options.AgentLog).
func AgentLog(app agent.App, id agent.AgentID) Log { return Log{agentLog, app, string(id)} }

// AuditLog is the log of what was changed in an app and what its agents did with their grants. It keeps every event. It begins with
// the first one appended.
func AuditLog(app agent.App) Log { return Log{auditLog, app, string(noApp)} }

func (l Log) String() string { return fmt.Sprintf("log of %s %s/%s", l.kind, l.app, l.id) }

// extent is the numbers of a log's first and newest events. Of an empty log they are 1 and 0.
type extent struct{ first, last int64 }

func (t *tx) newLog(l Log) error {
	if _, found, err := t.get(l.headKey()); err != nil || found {
		if err == nil {
			err = agent.Errorf(agent.Exists, "%s is there already", l)
		}
		return err
	}
	t.putExtent(l, extent{1, 0})
	return nil
}

func (t *tx) putExtent(l Log, x extent) {
	b := binary.BigEndian.AppendUint64(nil, uint64(x.first))
	t.put(l.headKey(), binary.BigEndian.AppendUint64(b, uint64(x.last)))
}

// bounds reads the head of a log that something names.
func bounds(g getter, l Log) (extent, error) {
	x, found, err := findLog(g, l)
	if err == nil && !found {
		err = corrupt(l.headKey(), "record is missing")
	}
	return x, err
}

func findLog(g getter, l Log) (extent, bool, error) {
	k := l.headKey()
	b, found, err := g.get(k)
	if err != nil || !found {
		return extent{}, false, err
	}
	x, err := parseExtent(k, b)
	return x, err == nil, err
}

func parseExtent(k key, b []byte) (extent, error) {
	if len(b) != 16 {
		return extent{}, corrupt(k, "%v", errShort)
	}
	x := extent{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
	if x.first < 1 || x.last < x.first-1 {
		return extent{}, corrupt(k, "events %d to %d are no log", x.first, x.last)
	}
	return x, nil
}

// openLog reads the head of a log that a caller names.
func openLog(g getter, l Log) (extent, error) {
	if !isPart(string(l.app), l.id) {
		return extent{}, notFound(l.kind.String(), l.id)
	}
	x, found, err := findLog(g, l)
	if err != nil || found {
		return x, err
	}
	// Its owner says whether it should be there; an audit log that lost its head still has its first event.
	switch l.kind {
	case sessionLog:
		_, err = find(g, sessions, l.app, l.id, "session", nil)
	case auditLog:
		if _, found, err = g.get(l.eventKey(1)); err == nil && !found {
			return extent{1, 0}, nil
		}
	default:
		if _, found, err = g.get(byKey(byAgentID, l.app, l.id)); err == nil && !found {
			err = notFound("agent", l.id)
		}
	}
	if err == nil {
		err = corrupt(l.headKey(), "record is missing")
	}
	return extent{}, err
}

// Append adds events to a log, in one commit, and returns them as they are stored: numbered, with zero times filled in.
func (s *Store) Append(ctx context.Context, l Log, events []agent.Event) (out []agent.Event, err error) {
	ps, err := s.prepare(events)
	if err != nil || len(ps) == 0 {
		return nil, err
	}
	err = s.updateOf(ctx, l.app, func(t *tx) error {
		x, err := openLog(t, l)
		if err == nil && l.kind == agentLog {
			err = t.mustHaveAgent(l)
		}
		if err == nil {
			out, err = s.append(t, l, x, ps)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// mustHaveAgent refuses to add to the log of an agent that was deleted.
func (t *tx) mustHaveAgent(l Log) error {
	_, found, err := t.get(byKey(byAgentID, l.app, l.id))
	if err == nil && !found {
		err = notFound("agent", l.id)
	}
	return err
}

// append adds prepared events to a log that ends at x.
func (s *Store) append(t *tx, l Log, x extent, ps []prepared) ([]agent.Event, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	if x.last >= x.first { // build upon the newest event, not upon a number
		if _, found, err := t.get(l.eventKey(x.last)); err != nil {
			return nil, err
		} else if !found {
			return nil, corrupt(l.eventKey(x.last), "record is missing")
		}
	}
	out := make([]agent.Event, 0, len(ps))
	for _, p := range ps {
		x.last++
		p.event.Seq = x.last
		t.put(l.eventKey(x.last), p.payload)
		out = append(out, p.event)
	}
	if l.kind == agentLog {
		for ; x.last-x.first >= s.agentLog; x.first++ {
			t.del(l.eventKey(x.first))
		}
	}
	t.putExtent(l, x)
	return out, nil
}

// Read returns events numbered above after, oldest first, at most limit of them (0 means MaxRead). Events that an agent's
// log no longer keeps are skipped; Seq tells.
func (s *Store) Read(ctx context.Context, l Log, after int64, limit int) (out []agent.Event, err error) {
	if limit <= 0 || limit > MaxRead {
		limit = MaxRead
	}
	if after < 0 {
		return nil, agent.Errorf(agent.Invalid, "event number %d is negative", after)
	}
	err = s.view(ctx, func(snap snapshot) error {
		x, err := extentOf(snap, l)
		if err == nil {
			out, err = s.readEvents(ctx, snap, l, max(after+1, x.first), min(after+int64(limit), x.last))
		}
		return err
	})
	return out, err
}

// readEvents reads the events from..to, every one of which must be there. It returns fewer when they are very large.
func (s *Store) readEvents(ctx context.Context, snap snapshot, l Log, from, to int64) ([]agent.Event, error) {
	out := []agent.Event{}
	if from > to {
		return out, nil
	}
	next, bytes := from, 0
	err := snap.each(l.eventKey(from), l.eventKey(to+1), false, func(k key, payload []byte) error {
		if k != l.eventKey(next) {
			return corrupt(l.eventKey(next), "record is missing")
		}
		if bytes > maxReadBytes || ctx.Err() != nil {
			return errStop
		}
		e, err := s.decodeEvent(k, next, payload)
		if err != nil {
			return err
		}
		bytes += len(e.Data)
		out = append(out, e)
		next++
		return nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && next <= to && bytes <= maxReadBytes {
		err = corrupt(l.eventKey(next), "record is missing")
	}
	return out, err
}

// maxReadBytes is how much event data one Read gathers before it returns early.
const maxReadBytes = 16 << 20

// Bounds returns the numbers of the first and the newest event of a log: 1 and 0 when it is empty.
func (s *Store) Bounds(ctx context.Context, l Log) (first, last int64, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		x, err := extentOf(snap, l)
		first, last = x.first, x.last
		return err
	})
	return first, last, err
}
