package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// check holds what is there against what clients were told: nothing acknowledged is lost, doubled or out of order, and what was not
// acknowledged is there as a whole or not at all.
func (r *round) check(ctx context.Context, p *person, listeners []*listener) error {
	c := r.server.client()
	at, other := map[string]map[string]int{}, map[string]map[string]string{} // by instance: effects by name with their numbers; other keys
	runs, all := false, map[string][]string{}
	for i := range instances {
		key := r.key(i)
		names, rest, err := r.effects(ctx, c, key)
		if err != nil {
			return err
		}
		at[key], other[key] = map[string]int{}, rest
		for n, name := range names {
			if before, twice := at[key][name]; twice && !strings.HasPrefix(name, "message ") {
				r.fail("instance %s: %s took effect at %d and at %d", key, name, before, n+1)
			}
			at[key][name] = n + 1
			runs = runs || strings.HasPrefix(name, "run ")
		}
		if len(names) > 0 && rest["n"] != fmt.Sprint(len(names)) {
			r.fail("instance %s: the number is %s with %d effects", key, rest["n"], len(names))
		}
		all[key] = names
		r.tally["effects"] += len(names)
	}
	for key, names := range all {
		if err := r.events(ctx, c, key, names); err != nil {
			return err
		}
		r.messages(key, names, at)
	}
	lines, err := readLedger(r.ledger)
	if err != nil {
		return err
	}
	paid := map[string]int{}
	for _, l := range lines {
		paid[l.Name]++
	}
	before := map[[2]string]*op{}
	for _, o := range r.ops {
		r.op(o, at[o.key], other[o.key], runs)
		if o.kind == asking {
			r.asked(o, at[o.key], paid[o.name], p)
		}
		if n := at[o.key][o.name]; n > 0 { // what one client asked for comes in its order
			by := [2]string{o.key, o.by}
			if b := before[by]; b != nil && at[o.key][b.name] > n {
				r.fail("instance %s: %s came before %s, which was asked for earlier", o.key, o.name, b.name)
			}
			before[by] = o
		}
	}
	r.strangers(at)
	open, err := p.open(ctx)
	for _, a := range open {
		r.fail("approval %s is open when all runs have ended", a.ID)
	}
	if err != nil {
		return err
	}
	return r.checkListeners(ctx, listeners, all)
}

// op checks one call.
func (r *round) op(o *op, at map[string]int, other map[string]string, runs bool) {
	there := at[o.name] > 0
	switch o.kind {
	case setting:
		there = other["key "+o.name] == o.name
	case saying, flowing, held, asking:
		r.ofRun(o, at, runs)
		return
	}
	switch {
	case o.kind == failing && there:
		r.fail("instance %s: %s threw, and took effect", o.key, o.name)
	case o.kind == failing:
		return
	case o.outcome == done && !there:
		r.fail("instance %s: %s, %s, was acknowledged and is lost", o.key, o.name, o.kind)
	case o.outcome == undone && there && o.kind != telling:
		r.fail("instance %s: %s, %s, was refused and took effect", o.key, o.name, o.kind)
	case o.outcome == done && o.n > 0 && o.n != at[o.name]:
		r.fail("instance %s: %s was acknowledged as number %d and is number %d", o.key, o.name, o.n, at[o.name])
	}
	came := func(what string) {
		if (at[what] > 0) != there {
			r.fail("instance %s: of %s, %s (there: %v), %q is number %d", o.key, o.name, o.kind, there, what, at[what])
		}
	}
	switch o.kind {
	case alarmed:
		came("alarm " + o.name)
		if n := r.world.count("alarm " + o.name); o.url && there != (n > 0) {
			r.fail("instance %s: the alarm of %s (there: %v) told the outside world %d times", o.key, o.name, there, n)
		}
	case beating:
		for n := range beats {
			came(fmt.Sprintf("beat %d %s", n+1, o.name))
		}
	case telling:
		n, second := r.world.count(o.name), at[o.name+"/b"] > 0
		if n > 1 || n > 0 && !there || second && n == 0 || o.outcome == done && !second {
			r.fail("instance %s: %s told the outside world %d times; its effects are there: %v, %v", o.key, o.name, n, there, second)
		}
	}
	r.tally["checked"]++
}

// ofRun checks one run.
func (r *round) ofRun(o *op, at map[string]int, runs bool) {
	if o.run == "" {
		return
	}
	r.tally["runs "+o.status.String()]++
	first, second := at["flow 1 "+o.name], at["flow 2 "+o.name]
	begun, one, two := at["held 1 "+o.name], at["held 2 "+o.name], at["held 3 "+o.name]
	switch completed := o.status == agent.Completed; {
	case o.lost:
		r.fail("run %s of %s was acknowledged and is lost", o.run, o.name)
	case completed && o.kind == saying && runs && at["run "+o.name] == 0:
		r.fail("run %s of %s is completed and had no effect", o.run, o.name)
	case completed && o.kind == flowing && (first == 0 || second < first || r.world.count("flow "+o.name) == 0),
		second > 0 && (first == 0 || second < first):
		r.fail("run %s of %s is %s with its effects at %d and %d; it told the outside world %d times", o.run, o.name, o.status, first, second,
			r.world.count("flow "+o.name))
	case o.kind == held && (completed && two == 0 || two > 0 && one == 0 || one > 0 && begun == 0 || two > 0 && two < one || one > 0 && one < begun ||
		one > 0 && o.events < 1 || two > 0 && o.events < 2):
		r.fail("run %s of %s is %s with effects at %d, %d and %d, of which the last two are of events; %d were sent", o.run, o.name, o.status, begun, one, two, o.events)
	}
}

// asked checks the call of a run that a person had to allow: it has its effect when it was allowed, once, and else none.
func (r *round) asked(o *op, at map[string]int, paid int, p *person) {
	first, second, denied := at["ask 1 "+o.name], at["ask 2 "+o.name], at["ask denied "+o.name]
	q := p.asked[p.ids[o.name]]
	answered := q != nil && (q.tried || q.settled)
	r.tally["calls that were paid"] += paid
	switch completed := o.status == agent.Completed; {
	case paid > 1, paid > 0 && (o.deny || !answered || first == 0):
		r.fail("run %s of %s, denied: %v, answered: %v: its call took effect %d times, and what comes before it is number %d", o.run, o.name, o.deny, answered, paid, first)
	case second > 0 && (paid != 1 || second < first), denied > 0 && (!o.deny || !answered || denied < first),
		completed && (second > 0) == (denied > 0), second > 0 && denied > 0:
		r.fail("run %s of %s is %s, denied: %v, answered: %v, with effects at %d, %d and, of a denial, %d; its call took effect %d times",
			o.run, o.name, o.status, o.deny, answered, first, second, denied, paid)
	}
}

// messages checks that what one call sent came as often as it was sent, and what one instance sent to another in order.
func (r *round) messages(key string, names []string, at map[string]map[string]int) {
	from := map[string][]string{}
	for _, o := range r.ops {
		for _, to := range o.to {
			if to == key && at[o.key][o.name] > 0 {
				from[o.key] = append(from[o.key], "message "+o.name)
			}
		}
	}
	for sender, sent := range from {
		var got []string
		for _, name := range names {
			if slices.Contains(sent, name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, sent) {
			r.fail("from %s to %s were sent %v and came %v", sender, key, sent, got)
		}
	}
}

// events checks that an instance's log tells of each effect, once and in order.
func (r *round) events(ctx context.Context, c *client.Client, key string, names []string) error {
	last, n := int64(0), pastRuns(names, 0)
	for e, err := range c.Events(ctx, client.InstanceLog(agentName, key), 0, false) {
		if agent.KindOf(err) == agent.NotFound && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Seq != last+1 && last > 0 { // old events are let go of
			r.fail("instance %s: event %d follows %d", key, e.Seq, last)
		}
		last = e.Seq
		if e.Kind != agent.EventEmit {
			continue
		}
		var data struct {
			Name string
			N    int
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return err
		}
		if n = pastRuns(names, n); data.N != n+1 && n > 0 || data.N > len(names) || names[data.N-1] != data.Name {
			r.fail("instance %s: event %d tells of %s as number %d, after %d", key, e.Seq, data.Name, data.N, n)
			return nil
		}
		n = data.N
	}
	if n = pastRuns(names, n); n != len(names) {
		r.fail("instance %s: the log ends at effect %d of %d", key, n, len(names))
	}
	return nil
}

// pastRuns skips effects of runs, which tell of them in their session's log.
func pastRuns(names []string, n int) int {
	ofRun := func(name string) bool {
		kind, _, _ := strings.Cut(name, " ")
		return slices.Contains([]string{"run", "flow", "held", "ask"}, kind)
	}
	for n < len(names) && ofRun(names[n]) {
		n++
	}
	return n
}

// strangers looks for effects of which nobody asked.
func (r *round) strangers(at map[string]map[string]int) {
	asked := map[string]bool{}
	for _, o := range r.ops {
		asked[o.name] = true
	}
	for key, effects := range at {
		for name := range effects {
			words := strings.Fields(name)
			if !asked[strings.TrimSuffix(words[len(words)-1], "/b")] {
				r.fail("instance %s: %q took effect, of which nobody asked", key, name)
			}
		}
	}
}
