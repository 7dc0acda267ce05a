package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// AppendOnce adds events of a source to a log, each of them once: first is the number that the source gave the first of them, and the rest follow without
// a gap. Events that were taken from the source before, into whichever log of the app, are passed over, so a batch that is sent again changes nothing.
// last is the number of the newest event that was taken, now or before. Events that do not follow what was taken are a Conflict error, whose source has to
// go on from last+1. A source is any text of up to 160 printable characters and numbers from 1; that of a sandbox is Sandbox.Source, and is forgotten with
// its generation.
func (s *Store) AppendOnce(ctx context.Context, l Log, source string, first int64, events []agent.Event) (last int64, err error) {
	k, err := takenKey(l.app, source)
	if err != nil {
		return 0, err
	}
	if first < 1 {
		return 0, agent.Errorf(agent.Invalid, "event number %d of %s is not valid: they count from 1", first, source)
	}
	ps, err := s.prepare(events)
	if err != nil {
		return 0, err
	}
	err = s.updateOf(ctx, l.app, func(t *tx) error {
		x, err := openLog(t, l)
		if err == nil && l.kind == agentLog {
			err = t.mustHaveAgent(l)
		}
		if err != nil {
			return err
		}
		taken, err := readTaken(t, k)
		if err != nil {
			return err
		}
		if last = taken; first > taken+1 {
			return &agent.Error{
				Kind: agent.Conflict, Msg: fmt.Sprintf("event %d of %s does not follow on %d, the newest that was taken", first, source, taken),
				Hint: fmt.Sprintf("send events from %d on", taken+1),
			}
		}
		fresh := ps[min(taken+1-first, int64(len(ps))):]
		if len(fresh) == 0 {
			return nil
		}
		if _, err := s.append(t, l, x, fresh); err != nil {
			return err
		}
		if taken == 0 {
			if err := t.countSource(l.app, 1); err != nil {
				return err
			}
		}
		last = taken + int64(len(fresh))
		t.put(k, binary.BigEndian.AppendUint64(nil, uint64(last)))
		return nil
	})
	return last, err
}

// Taken returns the number of the newest event that AppendOnce has taken from a source; 0 means none.
func (s *Store) Taken(ctx context.Context, app agent.App, source string) (last int64, err error) {
	k, err := takenKey(app, source)
	if err != nil {
		return 0, err
	}
	err = s.view(ctx, func(snap snapshot) error {
		last, err = readTaken(snap, k)
		return err
	})
	return last, err
}

func takenKey(app agent.App, source string) (key, error) {
	if !isPart(source) {
		return "", agent.Errorf(agent.Invalid, "source %.80q of events is not valid: use up to 160 printable characters but '/' and spaces", source)
	}
	if !isPart(string(app)) {
		return "", notFound("app", string(app))
	}
	return join(prefixTaken, string(app), source), nil
}

// readTaken reads a number from 1, or 0 when there is none.
func readTaken(g getter, k key) (int64, error) {
	b, found, err := g.get(k)
	if err != nil || !found {
		return 0, err
	}
	if len(b) != 8 {
		return 0, corrupt(k, "%v", errShort)
	}
	n := int64(binary.BigEndian.Uint64(b))
	if n < 1 {
		return 0, corrupt(k, "a number of %d cannot be", n)
	}
	return n, nil
}

// forgetSource forgets what was taken from a sandbox of one generation, which sends nothing any more.
func (t *tx) forgetSource(sb *agent.Sandbox) error {
	k, err := takenKey(sb.App, sb.Source())
	if err != nil {
		return err
	}
	if n, err := readTaken(t, k); err != nil || n == 0 {
		return err
	}
	t.del(k)
	return t.countSource(sb.App, -1)
}

// countSource adds to the number of sources that an app has.
func (t *tx) countSource(app agent.App, n int64) error {
	k := prefixSources + key(app)
	had, err := readTaken(t, k)
	if err != nil {
		return err
	}
	switch had += n; {
	case had < 0:
		return corrupt(k, "it counts fewer sources than there are")
	case had == 0:
		t.del(k)
	default:
		t.put(k, binary.BigEndian.AppendUint64(nil, uint64(had)))
	}
	return nil
}

// taken checks that all sources are there, and nothing counts others.
func (v verifier) taken() error {
	counts := map[agent.App]int64{}
	err := v.walk(prefixTaken, func(k key, _ []byte) error {
		parts := k.parts(prefixTaken)
		if len(parts) != 2 {
			return corrupt(k, "key names no source")
		}
		counts[agent.App(parts[0])]++
		_, err := readTaken(v.snap, k)
		return err
	})
	if err != nil {
		return err
	}
	err = v.walk(prefixSources, func(k key, _ []byte) error {
		n, err := readTaken(v.snap, k)
		app := agent.App(k[len(prefixSources):])
		if err == nil && n != counts[app] {
			err = corrupt(k, "it counts %d sources, there are %d", n, counts[app])
		}
		delete(counts, app)
		return err
	})
	for app := range counts {
		if err == nil {
			err = corrupt(prefixSources+key(app), "record is missing")
		}
	}
	return err
}
