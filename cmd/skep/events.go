package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// eventPrinter writes events as they arrive: for people one line each, for --json one object a line.
type eventPrinter struct {
	w    io.Writer
	json bool
	says saying
}

func (p *eventPrinter) print(e agent.Event) error {
	if p.json {
		out := json.NewEncoder(p.w)
		out.SetEscapeHTML(false)
		return out.Encode(e)
	}
	if e.Kind == agent.EventRunQueued { // its start is told
		return nil
	}
	if toldAnswer(e.Kind) {
		return p.printAnswer(e)
	}
	if e.Kind == agent.EventCLI {
		return p.printCLI(e)
	}
	if err := p.flush(); err != nil {
		return err
	}
	return p.writeAs(e, eventKind(e), eventText(e))
}

func (p *eventPrinter) printCLI(e agent.Event) error {
	word, text := cliLine(e)
	if word == "" {
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	return p.writeAs(e, word, text)
}

// writeAs writes an event under a word, with what it tells.
func (p *eventPrinter) writeAs(e agent.Event, word, text string) error {
	text = strings.ReplaceAll(plain(text), "\n", "\n"+strings.Repeat(" ", len("15:04:05.000  completed  ")))
	_, err := fmt.Fprintf(p.w, "%s  %-9s  %s\n", e.Time.Local().Format("15:04:05.000"), word, text)
	return err
}

// eventKind is the short word for a kind of event; console output goes by its level.
func eventKind(e agent.Event) string {
	switch e.Kind {
	case agent.EventLog:
		return logLine(e).Level.String()
	case agent.EventRunStarted:
		return "started"
	case agent.EventRunCompleted:
		return "completed"
	case agent.EventRunFailed:
		return "failed"
	case agent.EventRunCancelled:
		return "cancelled"
	case agent.EventRefused:
		return "refused"
	case agent.EventSecretUsed:
		return "secret"
	case agent.EventHTTP:
		return "http"
	}
	if word, ok := toolWords[e.Kind]; ok {
		return word
	}
	if word, ok := durableWords[e.Kind]; ok {
		return word
	}
	return e.Kind.String()
}

func logLine(e agent.Event) agent.LogLine {
	l := agent.LogLine{Level: agent.LevelInfo}
	if err := json.Unmarshal(e.Data, &l); err != nil {
		l.Message = string(e.Data) // a newer server's; better shown raw than not at all
	}
	return l
}

// runEnd is the data of an EventRunCompleted.
type runEnd struct {
	Output agent.Payload `json:"output"`
	Usage  agent.Usage   `json:"usage"`
}

func eventText(e agent.Event) string {
	switch e.Kind {
	case agent.EventLog:
		return logLine(e).Message
	case agent.EventEmit:
		if len(e.Data) == 0 {
			return e.Name
		}
		return e.Name + " " + compact(e.Data)
	case agent.EventMessage:
		var m agent.Message
		if json.Unmarshal(e.Data, &m) == nil {
			return m.Role + ": " + compact(m.Content)
		}
	case agent.EventRunStarted:
		return "run " + string(e.Run)
	case agent.EventRunCompleted:
		var end runEnd
		if json.Unmarshal(e.Data, &end) == nil {
			return fmt.Sprintf("in %s, %s of processor time", took(end.Usage.Wall), took(end.Usage.CPU))
		}
	case agent.EventRunFailed, agent.EventRunCancelled:
		var re agent.RunError
		if json.Unmarshal(e.Data, &re) == nil {
			return re.Msg
		}
	case agent.EventRunResumed:
		return "run " + string(e.Run)
	case agent.EventRunWaiting, agent.EventRunPaused, agent.EventRunUncertain:
		var w agent.RunWait
		if json.Unmarshal(e.Data, &w) == nil {
			return "for " + waitText(w)
		}
	case agent.EventStepStarted, agent.EventStepEnded, agent.EventAlarmFired, agent.EventAlarmFailed, agent.EventReceived, agent.EventStateChanged:
		if text := durableText(e); text != "" {
			return text
		}
	case agent.EventToolCalled, agent.EventToolReturned, agent.EventApprovalRequested, agent.EventApprovalAnswered:
		if text := toolText(e); text != "" {
			return text
		}
	case agent.EventRefused, agent.EventSecretUsed, agent.EventHTTP, agent.EventChanged:
		if text := accessText(e); text != "" {
			return text
		}
	}
	return compact(e.Data)
}

func compact(b json.RawMessage) string {
	var buf bytes.Buffer
	if json.Compact(&buf, b) != nil {
		return string(b)
	}
	return buf.String()
}

// took shows a duration with as many digits as people read.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// runError is the error with which a run ended, or nil.
func runError(e *agent.RunError) error {
	if e == nil {
		return nil
	}
	return &agent.Error{Kind: e.Kind, Msg: e.Msg, Hint: e.Hint, Limit: e.Limit, Pos: e.Pos, Stack: e.Stack}
}
