package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// What a hostile agent says cannot move the cursor, hide a line or set the title of a terminal that it is read on.
func TestWhatAgentsSayIsPlain(t *testing.T) {
	const hostile = "a\x1b]0;title\x07\rb\u009b2Jc\u202ed\x7f"
	data, err := json.Marshal(agent.LogLine{Message: hostile + "\n\tmore"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := eventPrinter{w: &out}
	for _, e := range []agent.Event{
		{Kind: agent.EventLog, Data: data}, {Kind: agent.EventEmit, Name: hostile}, {Kind: agent.EventRefused, Data: data},
	} {
		if err := p.print(e); err != nil {
			t.Error(err)
		}
	}
	c := &cli{stderr: &out}
	c.printError(&agent.Error{Kind: agent.Failed, Msg: hostile, Hint: hostile, Stack: hostile}, "")
	if strings.ContainsAny(out.String(), "\x1b\x07\r\u009b\u202e\x7f") {
		t.Errorf("printed %q", &out)
	}
	for _, want := range []string{`a\u001b]0;title\u0007\u000db\u009b2Jc\u202ed\u007f`, "\tmore"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed %q, without %q", &out, want)
		}
	}
}
