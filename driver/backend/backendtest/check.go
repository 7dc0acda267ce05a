package backendtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/skep-dev/skep/driver"
)

// shapes are the data of events by their type.
var shapes = map[string]func() any{
	driver.SessionStarted: of[driver.SessionData], driver.TurnStarted: nil, driver.TurnEnded: of[driver.TurnEnd],
	driver.TextDelta: of[driver.TextData], driver.TextDone: of[driver.TextData], driver.ReasoningDelta: of[driver.TextData], driver.PlanUpdated: of[driver.PlanData],
	driver.ToolStarted: of[driver.ToolData], driver.ToolOutput: of[driver.TextData], driver.ToolEnded: of[driver.ToolData], driver.FileChanged: of[driver.FileData],
	driver.PermissionAsked: of[driver.PermissionData], driver.PermissionWithdrawn: of[driver.PermissionData], driver.QuestionAsked: of[driver.QuestionData],
	driver.UsageTold: of[driver.UsageData], driver.ContextTold: of[driver.ContextData], driver.ModelRetry: of[driver.RetryData], driver.Compaction: nil,
	driver.Subagent: of[driver.SubagentData], driver.Unparsed: of[driver.UnparsedData], driver.CLIStarted: of[driver.ProcessData], driver.CLIExited: of[driver.ProcessData],
	driver.DriverLog: of[driver.TextData],
}

func of[T any]() any { return new(T) }

// Check fails the test unless what a backend told is what package driver says: events of known types with the data of their type, a session first, turns
// that begin once and end once and have nothing after their end, tools that end after they began, texts that are the sum of their pieces. What could not be
// parsed fails, too: the version of the CLI is one that is known.
func Check(t testing.TB, r *Rig) {
	t.Helper()
	if err := Envelope(r.Events()); err != nil {
		t.Error(err)
	}
}

// Envelope is the rule of Check.
func Envelope(list []driver.Event) error {
	var c envelope
	for i, e := range list {
		if err := c.add(&e); err != nil {
			return fmt.Errorf("event %d, %s %s: %w", i, e.Type, e.Data, err)
		}
	}
	for turn, state := range c.turns {
		if state != "ended" {
			return fmt.Errorf("the turn %q has not ended", turn)
		}
	}
	return nil
}

// Known returns the events without those of what was not understood, which Envelope does not take.
func Known(list []driver.Event) []driver.Event {
	return slices.DeleteFunc(slices.Clone(list), func(e driver.Event) bool { return e.Type == driver.Unparsed })
}

type envelope struct {
	session bool
	turns   map[string]string
	tools   map[string]string
	texts   map[string]string
}

func (c *envelope) add(e *driver.Event) error {
	shape, ok := shapes[e.Type]
	if !ok {
		return errors.New("nobody knows the type")
	}
	if e.Time.IsZero() {
		return errors.New("it has no time")
	}
	var data any
	if shape == nil {
		if len(e.Data) != 0 {
			return errors.New("it has data")
		}
	} else {
		data = shape()
		d := json.NewDecoder(bytes.NewReader(e.Data))
		d.DisallowUnknownFields()
		if err := d.Decode(data); err != nil {
			return err
		}
	}
	if len(e.Data) > driver.MaxEvent+1024 {
		return fmt.Errorf("its data has %d bytes", len(e.Data))
	}
	if e.Type == driver.CLIStarted || e.Type == driver.CLIExited {
		return nil // of the driver
	}
	if !c.session && e.Type != driver.SessionStarted {
		return errors.New("it comes before the session has started")
	}
	if e.Turn != "" && e.Type != driver.TurnStarted && c.turns[e.Turn] != "started" {
		return fmt.Errorf("its turn %q is %q", e.Turn, c.turns[e.Turn])
	}
	return c.order(e, data)
}

func (c *envelope) order(e *driver.Event, data any) error {
	if c.turns == nil {
		c.turns, c.tools, c.texts = map[string]string{}, map[string]string{}, map[string]string{}
	}
	switch e.Type {
	case driver.SessionStarted:
		c.session = true
		if d := data.(*driver.SessionData); d.ID == "" || d.CLI == "" {
			return errors.New("it does not say which")
		}
	case driver.TurnStarted:
		if e.Turn == "" || c.turns[e.Turn] != "" {
			return fmt.Errorf("the turn %q begins a second time", e.Turn)
		}
		c.turns[e.Turn] = "started"
	case driver.TurnEnded:
		if e.Turn == "" {
			return errors.New("it names no turn")
		}
		c.turns[e.Turn] = "ended"
	case driver.TextDelta:
		d := data.(*driver.TextData)
		if d.Text == "" {
			return errors.New("it is empty")
		}
		c.texts[d.Item] += d.Text
	case driver.TextDone:
		d := data.(*driver.TextData)
		if said, ok := c.texts[d.Item]; ok && said != d.Text {
			return fmt.Errorf("its pieces were %q", said)
		}
		delete(c.texts, d.Item)
	case driver.ToolStarted:
		d := data.(*driver.ToolData)
		if d.ID == "" || d.Name == "" || c.tools[d.ID] != "" {
			return errors.New("it has no name, or began before")
		}
		c.tools[d.ID] = "started"
	case driver.ToolEnded:
		d := data.(*driver.ToolData)
		if c.tools[d.ID] != "started" {
			return fmt.Errorf("the call is %q", c.tools[d.ID])
		}
		c.tools[d.ID] = "ended"
	case driver.Unparsed:
		return errors.New("the version of the CLI that the tests run says what the backend does not know")
	}
	return nil
}
