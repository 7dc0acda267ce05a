package turn_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/backendtest"
	"github.com/skep-dev/skep/driver/backend/turn"
)

func book(t *testing.T) (*turn.Book, func() []driver.Event) {
	t.Helper()
	var list []driver.Event
	b := turn.New("The agent", func(e driver.Event) { list = append(list, e) })
	b.Started(driver.SessionData{ID: "S", CLI: "acp"})
	return b, func() []driver.Event {
		if err := backendtest.Envelope(list); err != nil {
			t.Error(err)
		}
		return list
	}
}

// What is open when a turn ends is closed before its end, in an order that does not change.
func TestFinish(t *testing.T) {
	b, events := book(t)
	if err := b.Begin("one"); err != nil {
		t.Fatal(err)
	}
	b.Tool(driver.ToolData{ID: "b", Name: "x"})
	b.Tool(driver.ToolData{ID: "a", Name: "x"})
	b.Tool(driver.ToolData{ID: "a", Name: "x"})
	b.Say("t", "", "so")
	b.Finish(driver.TurnEnd{Status: driver.TurnInterrupted})
	b.Finish(driver.TurnEnd{Status: driver.TurnCompleted})
	got := backendtest.Tale(events())
	want := []string{
		`session.started {"id":"S","cli":"acp"}`, "turn.started", `tool.started {"id":"b","name":"x","action":""}`, `tool.started {"id":"a","name":"x","action":""}`,
		`text.delta {"item":"t","text":"so"}`, `text.done {"item":"t","text":"so"}`, `tool.ended {"id":"a","name":"x","action":"","failed":true}`,
		`tool.ended {"id":"b","name":"x","action":"","failed":true}`, `turn.ended {"status":"interrupted","text":"so"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A program that ends in a turn that somebody wanted to end has done what was wanted.
func TestEnd(t *testing.T) {
	for _, cut := range []bool{true, false} {
		b, events := book(t)
		if err := b.Begin("one"); err != nil {
			t.Fatal(err)
		}
		if cut {
			if under, err := b.Cut(); err != nil || !under {
				t.Errorf("%t %v", under, err)
			}
		}
		b.End(driver.ProcessData{Code: -1, Signal: "KILL"})
		list := events()
		var end driver.TurnEnd
		if err := list[len(list)-1].Read(&end); err != nil || (end.Status == driver.TurnInterrupted) != cut || (end.Fault == nil) != cut {
			t.Errorf("cut %t: %+v", cut, end)
		}
		if _, err := b.Cut(); agent.KindOf(err) != agent.Unavailable {
			t.Errorf("%v", err)
		}
	}
}

// Long texts come in pieces that have whole characters, and the whole of them is bounded.
func TestLong(t *testing.T) {
	b, events := book(t)
	if err := b.Begin("one"); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("ä", 20_000)
	b.Say("t", "", text)
	b.Finish(driver.TurnEnd{Status: driver.TurnCompleted})
	said := ""
	for _, e := range events() {
		if e.Type != driver.TextDelta {
			continue
		}
		var d driver.TextData
		if err := e.Read(&d); err != nil {
			t.Fatal(err)
		}
		said += d.Text
	}
	if said != text {
		t.Errorf("%d bytes were said, want %d", len(said), len(text))
	}
	var list []driver.Event
	b = turn.New("The agent", func(e driver.Event) { list = append(list, e) })
	for range 20 {
		b.Say("t", "", text)
	}
	b.Finish(driver.TurnEnd{})
	b.Started(driver.SessionData{})
	for _, e := range list {
		if len(e.Data) > 8*driver.MaxEvent {
			t.Errorf("%s has %d bytes", e.Type, len(e.Data))
		}
	}
}

func TestForm(t *testing.T) {
	const two = `{"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`
	for _, tt := range []struct{ schema, text, want string }{
		{`{"properties":{"a":{"type":"string"}}}`, "yes", `{"a":"yes"}`}, {`{"properties":{"a":{"type":"boolean"}}}`, "true", `{"a":true}`},
		{two, `{"a":"1"}`, `{"a":"1"}`}, {two, "yes", ``}, {`{}`, "yes", `{}`}, {`nonsense`, "", `{}`},
	} {
		v, err := turn.Form(json.RawMessage(tt.schema), tt.text)
		got := ""
		if err == nil {
			b, _ := json.Marshal(v)
			got = string(b)
		} else if agent.KindOf(err) != agent.Invalid {
			t.Errorf("%v", err)
		}
		if got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.schema, tt.text, got, tt.want)
		}
	}
}
