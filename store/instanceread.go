package store

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Info implements instance.Reader.
func (in *Instances) Info(ctx context.Context, id instance.ID) (info instance.Info, err error) {
	err = in.s.view(ctx, func(snap snapshot) error {
		h, err := openInst(snap, snap, id)
		if err == nil {
			info, err = infoOf(snap, id, h)
		}
		return err
	})
	return info, err
}

// Load implements instance.Reader. It is Store.State.
func (in *Instances) Load(ctx context.Context, id instance.ID, keys ...string) ([]agent.StateEntry, error) {
	return in.s.State(ctx, instanceState(id), keys...)
}

// Scan implements instance.Reader. It is Store.ListState.
func (in *Instances) Scan(ctx context.Context, id instance.ID, r agent.StateRange) ([]agent.StateEntry, string, error) {
	return in.s.ListState(ctx, instanceState(id), r)
}

// ReadLog implements instance.Reader.
func (in *Instances) ReadLog(ctx context.Context, id instance.ID, log instance.Log, after int64, limit int) (out []agent.Event, err error) {
	if log.Run != "" {
		return nil, agent.Errorf(agent.Invalid, "a journal has no events")
	}
	err = in.readLog(ctx, id, log, after, limit, func(snap snapshot, l Log, from, to int64) error {
		out, err = in.s.readEvents(ctx, snap, l, from, to)
		return err
	})
	return out, err
}

// ReadJournal implements instance.Reader.
func (in *Instances) ReadJournal(ctx context.Context, id instance.ID, run agent.RunID, after int64, limit int) (out []instance.Entry, err error) {
	err = in.readLog(ctx, id, instance.Journal(run), after, limit, func(snap snapshot, l Log, from, to int64) error {
		next, bytes := from, 0
		err := snap.each(l.eventKey(from), l.eventKey(to+1), false, func(k key, payload []byte) error {
			if k != l.eventKey(next) {
				return corrupt(l.eventKey(next), "record is missing")
			}
			if bytes > maxReadBytes {
				return errStop
			}
			e, err := parseEntryOf(k, payload)
			if err != nil {
				return err
			}
			e.Run, e.Seq = run, next
			out = append(out, e)
			next, bytes = next+1, bytes+len(e.Data)
			return ctx.Err()
		})
		if err == nil && next <= to && bytes <= maxReadBytes {
			err = corrupt(l.eventKey(next), "record is missing")
		}
		return err
	})
	return out, err
}

// Journals implements instance.Reader. It seeks from one journal to the next, however long they are.
func (in *Instances) Journals(ctx context.Context, id instance.ID, after agent.RunID, limit int) (out []agent.RunID, err error) {
	if limit, err = instance.CheckLimit(limit); err != nil {
		return nil, err
	}
	prefix := logsPrefix(journalLog, id)
	err = in.s.view(ctx, func(snap snapshot) error {
		if _, err := openInst(snap, snap, id); err != nil {
			return err
		}
		for len(out) < limit && ctx.Err() == nil {
			from, next := prefix, agent.RunID("")
			if after != "" {
				from += key(after) + "0" // behind the slash that follows it
			}
			err := snap.each(from, prefixEnd(prefix), false, func(k key, _ []byte) error {
				next = agent.RunID(k.parts(string(prefix))[0])
				return errStop
			})
			if err != nil || next == "" {
				return err
			}
			if _, err := bounds(snap, instanceLogOf(id, instance.Journal(next))); err != nil {
				return err
			}
			out, after = append(out, next), next
		}
		return ctx.Err()
	})
	return out, err
}

func parseEntryOf(k key, payload []byte) (e instance.Entry, err error) {
	r, err := parse(k, payload, &e)
	if err == nil && len(r.bodies) != 1 {
		err = corrupt(k, "%v", errShort)
	}
	if err == nil {
		e.Data = r.bodies[0].here
	}
	return e, err
}

// readLog calls read with the numbers to read, if there are any.
func (in *Instances) readLog(ctx context.Context, id instance.ID, log instance.Log, after int64, limit int, read func(snap snapshot, l Log, from, to int64) error) error {
	limit, err := instance.CheckLimit(limit)
	if err == nil {
		err = log.Check()
	}
	if err == nil && after < 0 {
		err = agent.Errorf(agent.Invalid, "number %d is negative", after)
	}
	if err != nil {
		return err
	}
	l := instanceLogOf(id, log)
	return in.s.view(ctx, func(snap snapshot) error {
		if _, err := openInst(snap, snap, id); err != nil {
			return err
		}
		x, err := extent{}, error(nil)
		if log.Session != "" {
			x, err = openLog(snap, l)
		} else {
			x, _, err = findInstLog(snap, snap, l)
		}
		if err != nil {
			return err
		}
		from, to := max(after+1, x.first), min(max(after, x.first-1)+int64(limit), x.last)
		if from > to {
			return nil
		}
		return read(snap, l, from, to)
	})
}

// parts calls fn for the parts of an instance of one kind, those behind after, at most limit times.
func (in *Instances) parts(ctx context.Context, id instance.ID, kind string, after key, limit int, fn func(k key, rest []string, payload []byte) error) error {
	limit, err := instance.CheckLimit(limit)
	if err != nil {
		return err
	}
	prefix := instPart(id, kind, "")
	from := prefix
	if after != "" {
		from += after + "\x00"
	}
	return in.s.view(ctx, func(snap snapshot) error {
		if _, err := openInst(snap, snap, id); err != nil {
			return err
		}
		n := 0
		return snap.each(from, prefixEnd(prefix), false, func(k key, payload []byte) error {
			if n++; n > limit {
				return errStop
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			return fn(k, k.parts(string(prefix)), payload)
		})
	})
}

// Alarms implements instance.Reader.
func (in *Instances) Alarms(ctx context.Context, id instance.ID, after string, limit int) (out []instance.Alarm, err error) {
	err = in.parts(ctx, id, "alarm", key(escaped(after)), limit, func(k key, rest []string, payload []byte) error {
		name, err := unescaped(rest[0])
		if err != nil {
			return corrupt(k, "%v", err)
		}
		a, err := parseAlarm(k, payload, name)
		out = append(out, a)
		return err
	})
	return out, err
}

// Alarm implements instance.Reader.
func (in *Instances) Alarm(ctx context.Context, id instance.ID, name string) (a instance.Alarm, found bool, err error) {
	err = in.s.view(ctx, func(snap snapshot) error {
		if _, err := openInst(snap, snap, id); err != nil {
			return err
		}
		a, found, err = findAlarm(snap, id, name)
		return err
	})
	return a, found, err
}

// Children implements instance.Reader.
func (in *Instances) Children(ctx context.Context, id, after instance.ID, limit int) (out []instance.ID, err error) {
	from := key("")
	if after != (instance.ID{}) {
		from = key(instTail(after))
	}
	err = in.parts(ctx, id, "child", from, limit, func(k key, rest []string, _ []byte) error {
		child, err := parsePeer(k, id.App, rest)
		out = append(out, child)
		return err
	})
	return out, err
}

// List implements instance.Store.
func (in *Instances) List(ctx context.Context, app agent.App, of agent.AgentID, p agent.Page) (out []instance.Info, next string, err error) {
	limit := p.Limit
	if limit == 0 {
		limit = agent.DefaultPage
	}
	if limit, err = instance.CheckLimit(limit); err != nil {
		return nil, "", err
	}
	if !isPart(string(app), string(of)) {
		return nil, "", instance.NoAgent(of)
	}
	prefix := instsKey(app, of)
	from := prefix
	if p.After != "" {
		from += key(escaped(p.After)) + "\x00"
	}
	out = []instance.Info{}
	err = in.s.view(ctx, func(snap snapshot) error {
		if _, found, err := snap.get(byKey(byAgentID, app, string(of))); err != nil {
			return err
		} else if !found {
			return instance.NoAgent(of)
		}
		if _, _, err := instAgentOf(snap, snap, app, of); err != nil {
			return err
		}
		return snap.each(from, prefixEnd(prefix), false, func(k key, payload []byte) error {
			if len(out) == limit {
				next = out[limit-1].ID.Key
				return errStop
			}
			id, _, err := parseInst(k, prefixInst)
			if err != nil {
				return err
			}
			h, err := parseInstHead(k, payload)
			if err != nil || h.Gone {
				return err
			}
			info, err := infoOf(snap, id, h)
			out = append(out, info)
			return err
		})
	})
	if err != nil {
		return nil, "", err
	}
	return out, next, nil
}

// instBlobs returns the blobs that the record of an instance or of a journal's entry names.
func instBlobs(k key, fields []byte) ([]agent.Digest, error) {
	var names struct {
		Blobs    []agent.Digest    `json:"blobs"`
		Snapshot instance.Snapshot `json:"snapshot"`
	}
	if err := json.Unmarshal(fields, &names); err != nil {
		return nil, corrupt(k, "%v", err)
	}
	return append(names.Blobs, names.Snapshot.Blobs...), nil
}
