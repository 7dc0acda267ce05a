package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// A log of a run in a box that lacks something, has it twice or in another order, is found.
func TestBoxChecksFind(t *testing.T) {
	say := func(pieces ...string) agent.Event {
		b, _ := json.Marshal(map[string]string{"text": strings.Join(pieces, "")})
		return agent.Event{Kind: agent.EventMessageDelta, Data: b}
	}
	cli := func(name, data string) agent.Event {
		return agent.Event{Kind: agent.EventCLI, Name: name, Data: json.RawMessage(data)}
	}
	tool := func(id string) (started, ended, failed agent.Event) {
		return cli("tool.started", fmt.Sprintf(`{"id":%q}`, id)), cli("tool.ended", fmt.Sprintf(`{"id":%q}`, id)), cli("tool.ended", fmt.Sprintf(`{"id":%q,"failed":true}`, id))
	}
	edit, edited, denied := tool("j-a.2")
	look, looked, _ := tool("j-a.3")
	over, end := cli("turn.ended", `{"status":"completed"}`), agent.Event{Kind: agent.EventRunCompleted}
	asked := agent.Event{Kind: agent.EventApprovalRequested, Data: json.RawMessage(`{"id":"A"}`)}
	answered := agent.Event{Kind: agent.EventApprovalAnswered, Data: json.RawMessage(`{"id":"A"}`)}
	for name, c := range map[string]struct {
		events  []agent.Event
		changed string
		wrong   bool
	}{
		"well":               {[]agent.Event{say("[j-a.0]", "[j-a"), say(".1]"), edit, asked, answered, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, false},
		"a piece lost":       {[]agent.Event{say("[j-a.0]"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"a piece twice":      {[]agent.Event{say("[j-a.0][j-a.0]", "[j-a.1]"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"another order":      {[]agent.Event{say("[j-a.1]", "[j-a.0]"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"half a piece":       {[]agent.Event{say("[j-a.0]", "[j-a"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"the last lost":      {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"no end of a tool":   {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, look, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"two ends":           {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"denied":             {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, denied, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"edited twice":       {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":2}]`, true},
		"not edited":         {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, look, looked, over, end}, `[]`, true},
		"another's file":     {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":1},{"path":"yes-2","added":1}]`, true},
		"a turn more":        {[]agent.Event{say("[j-b.0]", "[j-a.0]", "[j-a.1]"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"an answer too many": {[]agent.Event{say("[j-a.0]", "[j-a.1]", "[an answer to nothing: 1]"), edit, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"answered twice":     {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, asked, answered, answered, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"not answered":       {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, asked, edited, look, looked, over, end}, `[{"path":"yes-1","added":1}]`, true},
		"no end":             {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, look, looked, over}, `[{"path":"yes-1","added":1}]`, true},
		"asked after it":     {[]agent.Event{say("[j-a.0]", "[j-a.1]"), edit, edited, look, looked, over, end, asked, answered}, `[{"path":"yes-1","added":1}]`, true},
	} {
		j := &job{plan: plan{Name: "j", Steps: []step{{Say: 2}, {Edit: "yes-1"}, {Look: true}}}}
		j.run = agent.Run{Status: agent.Completed, Output: &agent.Payload{Body: []byte(`{"changed":` + c.changed + `}`)}}
		r, got := &boxRound{round: &round{tally: tally{}}}, newRan(j)
		for _, e := range c.events {
			if err := got.event(e); err != nil {
				r.fail("%v", err)
			}
		}
		r.ofJob(j, got)
		if wrong := len(r.wrong) > 0; wrong != c.wrong {
			t.Errorf("%s: %q", name, r.wrong)
		}
	}
}

// A run that fails without a reason, or whose box nobody has killed, is found.
func TestBoxFailuresFind(t *testing.T) {
	for name, c := range map[string]struct {
		err   *agent.RunError
		wrong bool
	}{
		"lost twice":  {&agent.RunError{Kind: agent.Exhausted, Msg: lostTwice + " with its process"}, false},
		"by itself":   {&agent.RunError{Kind: agent.Failed, Msg: "the sandbox was lost"}, true},
		"no error":    {nil, true},
		"not typed":   {&agent.RunError{Kind: agent.Internal, Msg: "something"}, true},
		"no sentence": {&agent.RunError{Kind: agent.Failed}, true},
	} {
		j := &job{run: agent.Run{Status: agent.RunFailed, Error: c.err}}
		r, got := &boxRound{round: &round{tally: tally{}}}, newRan(j)
		got.ends = 1
		r.ofJob(j, got)
		if wrong := len(r.wrong) > 0; wrong != c.wrong {
			t.Errorf("%s: %q", name, r.wrong)
		}
	}
}
