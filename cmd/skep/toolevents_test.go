package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// What tools do in a run, and what it asks of a person, is told in words.
func TestToolEventsAreWords(t *testing.T) {
	asks := agent.Approval{ID: "RUN-7", Calls: []agent.ApprovalCall{{Tool: "fs.write", Args: json.RawMessage(`{"path": "a"}`), Decision: agent.Decision{Reason: "it changes things"}}}}
	for _, c := range []struct {
		kind agent.EventKind
		data any
		want string
	}{
		{agent.EventToolCalled, agent.ToolUse{Tool: "fs.read", Args: json.RawMessage(`{"path": "a"}`), Decision: &agent.Decision{Effect: agent.Read}}, `fs.read {"path":"a"}: `},
		{agent.EventToolReturned, agent.ToolUse{Tool: "fs.read", Bytes: 12, Duration: time.Second}, "fs.read returned 12 bytes in 1s"},
		{agent.EventApprovalRequested, asks, `fs.write {"path":"a"} wants your approval: it changes things`},
		{agent.EventApprovalAnswered, agent.ApprovalAnswered{ApprovalAnswer: agent.ApprovalAnswer{Reason: "no"}, ID: "RUN-7", By: "ann"}, "RUN-7 denied by ann: no"},
	} {
		data, err := json.Marshal(c.data)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p := eventPrinter{w: &out}
		if err := p.print(agent.Event{Kind: c.kind, Data: data}); err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: printed %q, without %q (%v)", c.kind, &out, c.want, err)
		}
	}
}
