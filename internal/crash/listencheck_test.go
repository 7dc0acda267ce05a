package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func toldOf(seq int64, name string, n int) agent.Event {
	data, _ := json.Marshal(frame{name, n})
	return agent.Event{Seq: seq, Kind: agent.EventEmit, Data: data}
}

// What a client is told over sockets that is lost, comes twice, in another order or before it lasts is found.
func TestListenerChecksFind(t *testing.T) {
	names := []string{"a", "b", "run x", "c"}
	log := []agent.Event{toldOf(2, "a", 1), toldOf(5, "b", 2), toldOf(6, "c", 4)}
	frames := func(of ...frame) [][]frame { return [][]frame{of} }
	for name, c := range map[string]struct {
		l    listener
		want string
	}{
		"well":                      {listener{start: 1, events: log, frames: frames(frame{"a", 1}, frame{"b", 2}, frame{"run x", 3}, frame{"c", 4})}, ""},
		"on two connections":        {listener{start: 1, events: log, frames: [][]frame{{{"a", 1}}, nil, {{"c", 4}}}}, ""},
		"connected late":            {listener{start: 5, events: log[2:]}, ""},
		"never connected":           {listener{start: -1}, ""},
		"an event lost":             {listener{start: 1, events: []agent.Event{log[0], log[2]}}, "effect 4 after 1"},
		"the first event lost":      {listener{start: 1, events: log[1:]}, "was not told of event 2"},
		"the last event lost":       {listener{start: 1, events: log[:2]}, "was not told of event 6"},
		"all events lost":           {listener{start: 1}, "was not told of event 2"},
		"an event twice":            {listener{start: 1, events: []agent.Event{log[0], log[0], log[1], log[2]}}, "event 2 after 2"},
		"another order":             {listener{start: 1, events: []agent.Event{log[1], log[0], log[2]}}, "event 2 after 5"},
		"an event that is another":  {listener{start: 1, events: []agent.Event{log[0], toldOf(4, "b", 2), log[2]}}, "was not told of event 5"},
		"an effect of another name": {listener{start: 1, events: []agent.Event{toldOf(2, "z", 1), log[1], log[2]}}, "of which there is no effect"},
		"told too soon":             {listener{start: 1, events: append(log[:3:3], toldOf(7, "d", 5))}, "of which there is no effect"},
		"a frame too soon":          {listener{start: 6, frames: frames(frame{"d", 5})}, "which is none"},
		"a frame lost":              {listener{start: 6, frames: frames(frame{"a", 1}, frame{"run x", 3})}, "effect 3 after 1"},
		"a frame twice":             {listener{start: 6, frames: frames(frame{"a", 1}, frame{"a", 1})}, "effect 1 after 1"},
		"a frame of another":        {listener{start: 6, frames: frames(frame{"b", 1})}, "which is none"},
	} {
		l := c.l
		l.round = &round{tally: tally{}}
		l.ofEvents(names, log)
		l.ofFrames(names)
		finds(t, name, l.wrong, c.want)
	}
}

// A change of the state that is lost, that took effect although it was refused, or that clients saw otherwise is found.
func TestSharedChecksFind(t *testing.T) {
	writes := func(of ...write) (out []*write) {
		for _, w := range of {
			out = append(out, &w)
		}
		return out
	}
	by := map[string]int64{"w1": 1, "op": 2, "w3": 3}
	op, failed := &op{name: "op", key: "k", shares: true, outcome: done}, &op{name: "failed", key: "k", shares: true, kind: failing, outcome: undone}
	well := writes(write{"w1", done, 1}, write{"w2", undone, 2}, write{"w3", perhaps, 3}, write{"w4", perhaps, 4})
	for name, c := range map[string]struct {
		by     map[string]int64
		n      int64
		names  []string
		writes []*write
		want   string
	}{
		"well":                     {by, 3, []string{"op"}, well, ""},
		"acknowledged and lost":    {map[string]int64{"op": 1}, 1, []string{"op"}, writes(write{"w1", done, 1}), "acknowledged as version 1 and is 0"},
		"another version":          {by, 3, []string{"op"}, writes(write{"w1", done, 1}, write{"w3", done, 2}), "acknowledged as version 2 and is 3"},
		"refused and there":        {by, 3, []string{"op"}, writes(write{"w1", done, 1}, write{"w3", undone, 3}), "was refused and is version 3"},
		"over another's":           {by, 3, []string{"op"}, writes(write{"w1", done, 1}, write{"w3", perhaps, 2}), "is version 3, was to be 2"},
		"two of one number":        {map[string]int64{"w1": 1, "op": 1, "w3": 3}, 3, []string{"op"}, well, "and so has"},
		"a version without change": {by, 4, []string{"op"}, well, "version 4 of the state has 3 changes"},
		"nobody's":                 {map[string]int64{"w1": 1, "op": 2, "w3": 3, "z": 4}, 4, []string{"op"}, well, "of which nobody asked"},
		"half a turn":              {by, 3, nil, well, "the effect is there: false"},
		"the other half":           {map[string]int64{"w1": 1}, 1, []string{"op"}, well, "the effect is there: true"},
		"undone":                   {map[string]int64{"w1": 1, "op": 2, "failed": 3}, 3, []string{"op"}, well, "of failed"},
	} {
		r := &round{tally: tally{}}
		r.ops = append(r.ops, op, failed)
		r.ofShared("k", c.by, c.n, c.names, []*listener{{round: r, writes: c.writes}})
		finds(t, name, r.wrong, c.want)
	}
	for name, c := range map[string]struct {
		seen []version
		want string
	}{
		"well":    {[]version{{1, map[string]int64{"w1": 1}}, {3, by}, {3, by}}, ""},
		"less":    {[]version{{2, map[string]int64{"w1": 1}}}, "as version 2"},
		"more":    {[]version{{2, by}}, "as version 2"},
		"another": {[]version{{1, map[string]int64{"z": 1}}}, "as version 1"},
		"later":   {[]version{{4, map[string]int64{"w1": 1, "op": 2, "w3": 3, "w4": 4}}}, "as version 4"},
		"back":    {[]version{{3, by}, {1, map[string]int64{"w1": 1}}}, "version 1 of the state after 3"},
	} {
		l := &listener{round: &round{tally: tally{}}, seen: c.seen}
		l.ofSeen(by)
		finds(t, name, l.wrong, c.want)
	}
}

// finds checks that what was found is what was to be, and nothing when there is nothing to find.
func finds(t *testing.T, name string, wrong []string, want string) {
	t.Helper()
	if found := strings.Join(wrong, "\n"); (want == "") != (found == "") || !strings.Contains(found, want) {
		t.Errorf("%s: %q, want %q", name, found, want)
	}
}

// An event of a run that is lost, or that came twice, and a call that was made without being allowed, are found.
func TestHeldChecksFind(t *testing.T) {
	for name, c := range map[string]struct {
		status agent.RunStatus
		events int
		at     map[string]int
		want   string
	}{
		"well":                {agent.Completed, 2, map[string]int{"held 1 a": 1, "held 2 a": 2, "held 3 a": 3}, ""},
		"on its way":          {agent.RunFailed, 2, map[string]int{"held 1 a": 1, "held 2 a": 2}, ""},
		"an event lost":       {agent.Completed, 2, map[string]int{"held 1 a": 1, "held 2 a": 2}, "of events"},
		"the first lost":      {agent.Completed, 2, map[string]int{"held 1 a": 1, "held 3 a": 2}, "of events"},
		"another order":       {agent.Completed, 2, map[string]int{"held 1 a": 1, "held 3 a": 2, "held 2 a": 3}, "of events"},
		"nobody sent it":      {agent.RunFailed, 1, map[string]int{"held 1 a": 1, "held 2 a": 2, "held 3 a": 3}, "1 were sent"},
		"before its begin":    {agent.RunFailed, 2, map[string]int{"held 1 a": 2, "held 2 a": 1}, "of events"},
		"not one was awaited": {agent.Completed, 0, nil, "of events"},
	} {
		r := &round{world: &world{came: map[string]int{}}, tally: tally{}}
		r.ofRun(&op{name: "a", kind: held, run: "R", status: c.status, events: c.events}, c.at, false)
		finds(t, name, r.wrong, c.want)
	}
	paid, denied := map[string]int{"ask 1 a": 1, "ask 2 a": 2}, map[string]int{"ask 1 a": 1, "ask denied a": 2}
	for name, c := range map[string]struct {
		status agent.RunStatus
		deny   bool
		q      *question
		paid   int
		at     map[string]int
		wrong  bool
	}{
		"paid":                  {agent.Completed, false, &question{settled: true}, 1, paid, false},
		"denied":                {agent.Completed, true, &question{settled: true}, 0, denied, false},
		"perhaps answered":      {agent.Completed, false, &question{tried: true}, 1, paid, false},
		"lost after it":         {agent.RunFailed, false, &question{settled: true}, 1, map[string]int{"ask 1 a": 1}, false},
		"lost before it":        {agent.RunFailed, false, nil, 0, map[string]int{"ask 1 a": 1}, false},
		"twice":                 {agent.Completed, false, &question{settled: true}, 2, paid, true},
		"twice and lost":        {agent.RunFailed, false, &question{settled: true}, 2, map[string]int{"ask 1 a": 1}, true},
		"never":                 {agent.Completed, false, &question{settled: true}, 0, paid, true},
		"in spite of a denial":  {agent.Completed, true, &question{settled: true}, 1, denied, true},
		"a denial that is none": {agent.Completed, true, &question{settled: true}, 0, paid, true},
		"denied by nobody":      {agent.Completed, false, &question{settled: true}, 0, denied, true},
		"nobody was asked":      {agent.Completed, false, nil, 1, paid, true},
		"nobody answered":       {agent.Completed, false, &question{}, 1, paid, true},
		"no end":                {agent.Completed, false, &question{settled: true}, 1, map[string]int{"ask 1 a": 1}, true},
		"both ends":             {agent.Completed, false, &question{settled: true}, 1, map[string]int{"ask 1 a": 1, "ask 2 a": 2, "ask denied a": 3}, true},
		"another order":         {agent.Completed, false, &question{settled: true}, 1, map[string]int{"ask 1 a": 2, "ask 2 a": 1}, true},
	} {
		r := &round{tally: tally{}}
		p := &person{round: r, asked: map[agent.ApprovalID]*question{}, ids: map[string]agent.ApprovalID{}}
		if c.q != nil {
			p.asked["A"], p.ids["a"] = c.q, "A"
		}
		r.asked(&op{name: "a", kind: asking, run: "R", status: c.status, deny: c.deny}, c.at, c.paid, p)
		if wrong := len(r.wrong) > 0; wrong != c.wrong {
			t.Errorf("%s: %v", name, fmt.Sprint(r.wrong))
		}
	}
}
