package main

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/skep-dev/skep/agent"
)

// checkListeners holds what clients saw and were told over sockets against what there is. names has the effects of each instance, in order.
func (r *round) checkListeners(ctx context.Context, listeners []*listener, names map[string][]string) error {
	for i, l := range listeners {
		by, n, err := l.now(ctx)
		if err != nil {
			return err
		}
		log, err := l.log(ctx)
		if err != nil {
			return err
		}
		l.ofEvents(names[l.key], log)
		l.ofFrames(names[l.key])
		l.ofSeen(by)
		if i%2 == 0 { // the other one of the same instance has the same state
			r.ofShared(l.key, by, n, names[l.key], listeners[i:i+2])
		}
	}
	return nil
}

// ofShared checks the state of an instance: each change that was acknowledged is there under the number that was told, none that was refused is there,
// and each has a number of its own.
func (r *round) ofShared(key string, by map[string]int64, n int64, names []string, listeners []*listener) {
	numbers := map[int64]string{}
	for name, at := range by {
		if numbers[at] != "" || at < 1 || at > n {
			r.fail("instance %s: in version %d of the state %s has number %d, and so has %q", key, n, name, at, numbers[at])
		}
		numbers[at] = name
	}
	if int64(len(by)) != n {
		r.fail("instance %s: version %d of the state has %d changes", key, n, len(by))
	}
	asked := map[string]bool{}
	for _, l := range listeners {
		last := int64(0)
		for _, w := range l.writes {
			at := by[w.name]
			asked[w.name] = true
			switch {
			case w.outcome == done && at != w.version:
				r.fail("instance %s: change %s of the state was acknowledged as version %d and is %d", key, w.name, w.version, at)
			case w.outcome == undone && at > 0:
				r.fail("instance %s: change %s of the state was refused and is version %d", key, w.name, at)
			case at > 0 && (at != w.version || at < last):
				r.fail("instance %s: change %s of the state is version %d, was to be %d and came after %d", key, w.name, at, w.version, last)
			}
			last = max(last, at)
		}
	}
	effects := map[string]bool{}
	for _, name := range names {
		effects[name] = true
	}
	for _, o := range r.ops {
		if o.key != key || !o.shares {
			continue
		}
		asked[o.name] = true
		if effects[o.name] != (by[o.name] > 0) {
			r.fail("instance %s: of %s, %s, the effect is there: %v; it is version %d of the state", key, o.name, o.kind, effects[o.name], by[o.name])
		}
	}
	for name := range by {
		if !asked[name] {
			r.fail("instance %s: the state has %q, of which nobody asked", key, name)
		}
	}
	r.tally["versions of states"] += len(by)
}

// ofSeen checks that each version that a client was shown is the one that there was, and that none came after a later one.
func (l *listener) ofSeen(by map[string]int64) {
	last := int64(0)
	for _, v := range l.seen {
		want := map[string]int64{}
		for name, at := range by {
			if at <= v.n {
				want[name] = at
			}
		}
		if !maps.Equal(want, v.by) {
			l.fail("instance %s: a client was shown %v as version %d of the state, which is %v", l.key, v.by, v.n, want)
			return
		}
		if v.n < last {
			l.fail("instance %s: a client was shown version %d of the state after %d", l.key, v.n, last)
			return
		}
		last = v.n
	}
	l.tally["versions seen"] += len(l.seen)
}

// ofEvents checks that a client was told of each effect that there is an event of, once and in order, over all its connections.
func (l *listener) ofEvents(names []string, log []agent.Event) {
	last, n := int64(0), 0
	there := map[int64]agent.Event{}
	for _, e := range log {
		there[e.Seq] = e
	}
	for i, e := range l.events {
		if e.Seq <= last {
			l.fail("instance %s: a client was told of event %d after %d", l.key, e.Seq, last)
			return
		}
		last = e.Seq
		var f frame
		if err := json.Unmarshal(e.Data, &f); err != nil || f.N < 1 || f.N > len(names) || names[f.N-1] != f.Name {
			l.fail("instance %s: a client was told of event %d, %s, of which there is no effect", l.key, e.Seq, e.Data)
			return
		}
		if i > 0 && f.N != pastRuns(names, n)+1 {
			l.fail("instance %s: a client was told of effect %d after %d", l.key, f.N, n)
			return
		}
		n = f.N
		if was, kept := there[e.Seq]; kept && string(was.Data) != string(e.Data) {
			l.fail("instance %s: a client was told of event %d, %s, which is %s", l.key, e.Seq, e.Data, was.Data)
		}
	}
	told := map[int64]bool{}
	for _, e := range l.events {
		told[e.Seq] = true
	}
	for _, e := range log {
		if l.start >= 0 && e.Seq > l.start && !told[e.Seq] {
			l.fail("instance %s: a client that had heard up to event %d was not told of event %d", l.key, l.start, e.Seq)
			return
		}
	}
	l.tally["events told"] += len(l.events)
}

// ofFrames checks that a client was told of nothing that did not last, and on each connection of all, in order.
func (l *listener) ofFrames(names []string) {
	for _, frames := range l.frames {
		for i, f := range frames {
			if f.N < 1 || f.N > len(names) || names[f.N-1] != f.Name {
				l.fail("instance %s: a client was sent a frame of %q as effect %d, which is none", l.key, f.Name, f.N)
				return
			}
			if i > 0 && f.N != frames[i-1].N+1 {
				l.fail("instance %s: a client was sent a frame of effect %d after %d", l.key, f.N, frames[i-1].N)
				return
			}
		}
		l.tally["frames"] += len(frames)
	}
}
