package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// The checks find what they are for: an effect that is lost, doubled, not wanted or of something else.
func TestCodeChecksFind(t *testing.T) {
	p := posting{Name: "a", Seen: 3, Random: 0.25}
	other := p
	other.Random = 0.5
	answer := func(sent, back posting, kind string) agent.Payload {
		out := map[string]any{"sent": sent, "kind": kind}
		if kind == "" {
			out["back"] = back
		}
		b, err := json.Marshal(map[string]any{"a": out})
		if err != nil {
			t.Fatal(err)
		}
		return agent.JSON(b)
	}
	for name, c := range map[string]struct {
		call   toolCall
		lines  []line
		out    agent.Payload
		failed bool
		want   string
	}{
		"well":         {toolCall{tool: "put"}, []line{{"put", p}}, answer(p, p, ""), false, ""},
		"well, again":  {toolCall{tool: "set"}, []line{{"set", p}, {"set", p}}, answer(p, p, ""), false, ""},
		"well, denied": {toolCall{tool: "pay", denied: true}, nil, answer(p, p, "denied"), false, ""},
		"twice":        {toolCall{tool: "put"}, []line{{"put", p}, {"put", p}}, answer(p, p, ""), false, "took effect 2 times, not 1"},
		"lost":         {toolCall{tool: "put"}, nil, answer(p, p, ""), false, "there is no effect"},
		"denied":       {toolCall{tool: "pay", denied: true}, []line{{"pay", p}}, answer(p, p, "denied"), false, "took effect 1 times, not 0"},
		"not denied":   {toolCall{tool: "pay", denied: true}, nil, answer(p, p, ""), false, `error is "", not "denied"`},
		"failed":       {toolCall{tool: "put"}, []line{{"put", p}}, answer(p, p, "failed"), true, "took effect 1 times, not 0"},
		"other effect": {toolCall{tool: "put"}, []line{{"put", other}}, answer(p, p, ""), false, "differs"},
		"other answer": {toolCall{tool: "put"}, []line{{"put", p}}, answer(p, other, ""), false, "differs"},
		"other again":  {toolCall{tool: "set"}, []line{{"set", p}, {"set", other}}, answer(p, p, ""), false, "took effect as"},
		"other tool":   {toolCall{tool: "put"}, []line{{"pay", p}}, answer(p, p, ""), false, "took effect as"},
		"not told":     {toolCall{tool: "put"}, []line{{"put", p}}, agent.JSON([]byte(`{}`)), false, "differs"},
		"no answer":    {toolCall{tool: "put"}, []line{{"put", p}}, agent.JSON([]byte(`7`)), false, "returned"},
	} {
		r := &codeRound{round: &round{tally: tally{}}}
		c.call.name = "a"
		s := &script{calls: map[string]*toolCall{"a": &c.call}, failed: map[string]bool{"a": c.failed}, run: agent.Run{Status: agent.Completed, Output: &c.out}}
		r.ofScript(s, map[string][]line{"a": c.lines})
		if c.want == "" && len(r.wrong) > 0 || c.want != "" && (len(r.wrong) == 0 || !strings.Contains(strings.Join(r.wrong, "\n"), c.want)) {
			t.Errorf("%s: %q, want %q", name, r.wrong, c.want)
		}
	}
	r := &codeRound{round: &round{tally: tally{}}}
	r.ofScript(&script{run: agent.Run{Status: agent.RunFailed, Error: &agent.RunError{Kind: agent.Conflict, Msg: "another call"}}}, nil)
	if len(r.wrong) != 1 {
		t.Errorf("a run that failed: %q", r.wrong)
	}
}

// The person finds questions that come again, that are about other calls than before, or that nobody has to ask.
func TestPersonFinds(t *testing.T) {
	ask := func(call uint64, tool, name string) agent.Approval {
		args, err := json.Marshal(posting{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return agent.Approval{ID: agent.NewApprovalID("R", call), Run: "R", Calls: []agent.ApprovalCall{{Tool: tool, Args: args, ArgsDigest: agent.DigestOf(args)}}}
	}
	shown := ask(1, "ledger.pay", "a")
	shown.Calls[0].Args = json.RawMessage(`{"name":"b"}`)
	for name, c := range map[string]struct {
		first, then []agent.Approval
		answered    bool
		want        string
	}{
		"well":      {[]agent.Approval{ask(1, "ledger.pay", "a")}, []agent.Approval{ask(1, "ledger.pay", "a")}, false, ""},
		"again":     {[]agent.Approval{ask(1, "ledger.pay", "a")}, []agent.Approval{ask(1, "ledger.pay", "a")}, true, "after it was answered"},
		"twice":     {[]agent.Approval{ask(1, "ledger.pay", "a")}, []agent.Approval{ask(2, "ledger.pay", "a")}, true, "is asked about by R-1 and by R-2"},
		"other":     {[]agent.Approval{ask(1, "ledger.pay", "a")}, []agent.Approval{ask(1, "ledger.pay", "c")}, false, "was about"},
		"not shown": {[]agent.Approval{shown}, nil, false, "is not what would be sent"},
		"no need":   {[]agent.Approval{ask(1, "ledger.put", "b")}, nil, false, "about which nobody has to ask"},
	} {
		s := &script{calls: map[string]*toolCall{"a": {tool: "pay", asked: true}, "b": {tool: "put"}}}
		r := &codeRound{round: &round{tally: tally{}}, byCall: map[string]*script{"a": s, "b": s}}
		p := newPerson(r.round, nil, r.judge)
		p.due(c.first)
		for _, q := range p.asked {
			q.settled, q.due = c.answered, time.Time{}
		}
		p.due(c.then)
		if c.want == "" && len(p.wrong) > 0 || c.want != "" && (len(p.wrong) != 1 || !strings.Contains(p.wrong[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, p.wrong, c.want)
		}
	}
}

// A log that tells of a thing twice, or not at all, is found.
func TestLogChecksFind(t *testing.T) {
	called := agent.Event{Kind: agent.EventToolCalled, Data: json.RawMessage(`{"call":1,"tool":"ledger.put","args":{"name":"a"}}`)}
	returned := agent.Event{Kind: agent.EventToolReturned, Data: json.RawMessage(`{"call":1,"tool":"ledger.put"}`)}
	asked := agent.Event{Kind: agent.EventApprovalRequested, Data: json.RawMessage(`{"id":"R-1"}`)}
	answered := agent.Event{Kind: agent.EventApprovalAnswered, Data: json.RawMessage(`{"id":"R-1"}`)}
	queued, started, ended := agent.Event{Kind: agent.EventRunQueued}, agent.Event{Kind: agent.EventRunStarted}, agent.Event{Kind: agent.EventRunCompleted}
	more := agent.Event{Kind: agent.EventEmit, Data: json.RawMessage(`0`)}
	for name, c := range map[string]struct {
		events []agent.Event
		wrong  bool
	}{
		"well":                {[]agent.Event{queued, started, called, asked, answered, returned, ended}, false},
		"called twice":        {[]agent.Event{queued, called, called, returned, ended}, true},
		"returned twice":      {[]agent.Event{queued, called, returned, returned, ended}, true},
		"returned only":       {[]agent.Event{queued, returned, ended}, true},
		"called only":         {[]agent.Event{queued, called, ended}, true},
		"asked twice":         {[]agent.Event{queued, called, asked, asked, answered, returned, ended}, true},
		"answered twice":      {[]agent.Event{queued, called, asked, answered, answered, returned, ended}, true},
		"answered, not asked": {[]agent.Event{queued, called, answered, returned, ended}, true},
		"ended twice":         {[]agent.Event{queued, called, returned, ended, ended}, true},
		"not ended":           {[]agent.Event{queued, called, returned}, true},
		"a round more":        {[]agent.Event{queued, called, returned, more, ended}, true},
	} {
		s := &script{calls: map[string]*toolCall{"a": {name: "a", tool: "put"}}, run: agent.Run{ID: "R", Status: agent.Completed}}
		r := &codeRound{round: &round{tally: tally{}}}
		l := newTold(r, s)
		for _, e := range c.events {
			if err := l.event(e); err != nil {
				r.fail("%v", err)
			}
		}
		l.end(&person{asked: map[agent.ApprovalID]*question{"R-1": {tried: true}}})
		if wrong := len(r.wrong) > 0; wrong != c.wrong {
			t.Errorf("%s: %q", name, r.wrong)
		}
	}
}
