package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// check holds what is there in the end against what clients were told.
func (w *world) check() {
	heard := map[instance.ID][]string{}
	seqs := map[instance.ID]map[string]int{}
	for n := range roots {
		id := root(n)
		names := w.instance(id)
		heard[id], seqs[id] = names, map[string]int{}
		for i, name := range names {
			if at, twice := seqs[id][name]; twice {
				w.fail("%s: %s took effect at %d and at %d", id.Key, name, at, i+1)
			}
			seqs[id][name] = i + 1
		}
		w.kids(id)
	}
	wanted := map[instance.ID]map[string]bool{}
	for n := range roots {
		wanted[root(n)] = map[string]bool{}
	}
	pairs := map[[2]instance.ID][]string{} // messages in the order of their commits
	for _, o := range w.byCommit(seqs) {
		w.parts(o, seqs[o.at])
		for _, part := range o.parts {
			wanted[o.at][part] = true
		}
		if _, there := seqs[o.at][o.parts0()]; !there {
			continue
		}
		for _, a := range o.alarms {
			wanted[o.at][a] = true
			if _, there := seqs[o.at][a]; !there {
				w.fail("%s: %s was set and never came", o.at.Key, a)
			}
		}
		for _, s := range o.sends {
			wanted[s.to][s.name] = true
			if _, there := seqs[s.to][s.name]; !there {
				w.fail("%s: %s was sent and never came", s.to.Key, s.name)
			}
			pairs[[2]instance.ID{o.at, s.to}] = append(pairs[[2]instance.ID{o.at, s.to}], s.name)
		}
	}
	for id, names := range heard {
		for _, name := range names {
			if !wanted[id][name] {
				w.fail("%s: %s took effect, of which nobody asked", id.Key, name)
			}
		}
	}
	for pair, sent := range pairs {
		var got []string
		for _, name := range heard[pair[1]] {
			if slices.Contains(sent, name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(sent, got) {
			w.fail("from %s to %s were sent %v and came %v", pair[0].Key, pair[1].Key, sent, got)
		}
	}
	w.order(seqs)
}

func (o *op) parts0() string {
	if len(o.parts) == 0 {
		return ""
	}
	return o.parts[0]
}

// byCommit returns the operations in the order in which they took effect; those that did not come last.
func (w *world) byCommit(seqs map[instance.ID]map[string]int) []*op {
	ops := slices.Clone(w.ops)
	at := func(o *op) int {
		if n, there := seqs[o.at][o.parts0()]; there {
			return n
		}
		return 1 << 30
	}
	slices.SortStableFunc(ops, func(a, b *op) int { return at(a) - at(b) })
	return ops
}

// parts checks that of an operation is there what its client was told.
func (w *world) parts(o *op, seqs map[string]int) {
	there := 0
	for i, part := range o.parts {
		if _, ok := seqs[part]; ok {
			if there++; there != i+1 {
				w.fail("%s: %s took effect without what was before it", o.at.Key, part)
			}
		}
	}
	switch {
	case o.outcome == done && there != len(o.parts):
		w.fail("%s: %s was acknowledged and is lost: %d of %d parts are there", o.at.Key, o.name, there, len(o.parts))
	case o.outcome == undone && there > 0:
		w.fail("%s: %s was refused and took effect", o.at.Key, o.name)
	}
}

// order checks that what was told before another thing was asked for came before it.
func (w *world) order(seqs map[instance.ID]map[string]int) {
	for _, a := range w.ops {
		for _, b := range w.ops {
			first, ok1 := seqs[a.at][a.parts0()]
			then, ok2 := seqs[b.at][b.parts0()]
			if a.at == b.at && ok1 && ok2 && a.outcome == done && a.told < b.began && first > then {
				w.fail("%s: %s was acknowledged before %s was asked for, and came after it", a.at.Key, a.name, b.name)
			}
		}
	}
}

// instance checks one instance by itself, and returns the effects in it, in their order.
func (w *world) instance(id instance.ID) (names []string) {
	ctx := context.Background()
	info, err := w.memory.Info(ctx, id)
	if errors.Is(err, instance.ErrGone) {
		return nil
	}
	evs, e1 := w.memory.ReadLog(ctx, id, ownLog, 0, 0)
	js, e2 := w.memory.ReadJournal(ctx, id, "R", 0, 0)
	n, e3 := w.memory.Load(ctx, id, "n")
	alarms, e4 := w.memory.Alarms(ctx, id, "", 0)
	if err := errors.Join(err, e1, e2, e3, e4); err != nil {
		w.fail("%s: %v", id.Key, err)
		return nil
	}
	value := "0"
	if len(n) > 0 {
		value = string(n[0].Value.Body)
	}
	if value != fmt.Sprint(len(evs)) || len(js) != len(evs) {
		w.fail("%s: the number is %s with %d events and %d entries", id.Key, value, len(evs), len(js))
	}
	for i, e := range evs {
		if e.Seq != int64(i+1) || string(e.Data) != fmt.Sprint(i+1) {
			w.fail("%s: event %d stands at %d and says %s", id.Key, e.Seq, i+1, e.Data)
		}
		if i < len(js) && (string(js[i].Data) != e.Name || js[i].Seq != e.Seq) {
			w.fail("%s: entry %d of the journal is %s, the event %s", id.Key, i+1, js[i].Data, e.Name)
		}
		names = append(names, e.Name)
	}
	if len(alarms) > 0 || info.Outbox > 0 {
		w.fail("%s: %d alarms and %d messages are left: %+v", id.Key, len(alarms), info.Outbox, alarms)
	}
	return names
}

// kids checks the children of an instance: each that is there is on the list of its parent.
func (w *world) kids(of instance.ID) {
	ctx := context.Background()
	list, err := w.memory.Children(ctx, of, instance.ID{}, 0)
	if err != nil && !errors.Is(err, instance.ErrGone) {
		w.fail("%s: %v", of.Key, err)
	}
	all, _, err := w.memory.List(ctx, agent.DefaultApp, agentID, agent.Page{Limit: 100})
	if err != nil {
		w.fail("%v", err)
	}
	for _, i := range all {
		if !strings.HasPrefix(i.ID.Key, of.Key+"-") {
			continue
		}
		w.instance(i.ID)
		if i.Parent != of || !slices.Contains(list, i.ID) {
			w.fail("%s is there, with the parent %q, and not on the list of %s: %v", i.ID.Key, i.Parent.Key, of.Key, list)
		}
	}
}
