package pi

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// record is a line that pi writes: of any type, the fields that this package reads.
type record struct {
	Type string `json:"type"`
	ID   string `json:"id"`

	// response
	Success bool            `json:"success"`
	Data    json.RawMessage `json:"data"`
	Error   json.RawMessage `json:"error"` // also of extension_error

	// message_start, message_update, message_end
	Message json.RawMessage `json:"message"` // a text in extension_ui_request
	Update  struct {
		Type    string `json:"type"`
		Index   int    `json:"contentIndex"`
		Delta   string `json:"delta"`
		Content string `json:"content"`
	} `json:"assistantMessageEvent"`

	// tool_execution_start, tool_execution_update, tool_execution_end
	Call    string          `json:"toolCallId"`
	Tool    string          `json:"toolName"`
	Args    json.RawMessage `json:"args"`
	Partial json.RawMessage `json:"partialResult"`
	Result  json.RawMessage `json:"result"` // also of compaction_end
	IsError bool            `json:"isError"`

	Aborted bool    `json:"aborted"` // agent_settled
	Attempt int     `json:"attempt"` // auto_retry_start
	Delay   float64 `json:"delayMs"`

	// extension_ui_request
	Method      string   `json:"method"`
	Title       string   `json:"title"`
	Placeholder string   `json:"placeholder"`
	Options     []string `json:"options"`
	StatusKey   string   `json:"statusKey"`
}

// silent are records that say nothing that package driver has a word for.
var silent = map[string]bool{
	"agent_start": true, "agent_end": true, "turn_start": true, "turn_end": true, "queue_update": true, "entry_appended": true, "session_info_changed": true,
	"thinking_level_changed": true, "auto_retry_end": true, "summarization_retry_scheduled": true, "summarization_retry_attempt_start": true,
	"summarization_retry_finished": true, "compaction_end": true, "bash_execution_update": true,
}

// line tells what one line says. It never fails: what is not known is told as such.
func (s *session) line(b []byte, whole bool) {
	var r record
	if !whole || json.Unmarshal(b, &r) != nil || !s.known(&r) {
		s.Tell(driver.Unparsed, "", stdio.Unparsed(b))
	}
}

// known tells what a record says, and reports whether it could.
func (s *session) known(r *record) bool {
	switch r.Type {
	case "response":
		return s.answered(r)
	case "message_start":
		return s.said.start(s, r)
	case "message_update":
		return s.said.update(s, r)
	case "message_end":
		return s.said.end(s, r)
	case "tool_execution_start":
		return s.said.called(s, r)
	case "tool_execution_update":
		s.said.output(s, r)
		return true
	case "tool_execution_end":
		s.said.returned(s, r)
		return true
	case "agent_settled":
		s.said.close(s)
		s.Finish(s.said.turnEnd(r.Aborted))
		return true
	case "auto_retry_start":
		s.Tell(driver.ModelRetry, "", driver.RetryData{Attempt: r.Attempt, Status: statusOf(s.said.fault), Wait: time.Duration(r.Delay * float64(time.Millisecond))})
		return true
	case "compaction_start":
		s.Tell(driver.Compaction, "", nil)
		return true
	case "extension_error":
		s.log("an extension failed: " + errorText(r.Error))
		return true
	case "extension_ui_request":
		return s.asks(r)
	}
	return silent[r.Type]
}

// errorText is an error that is a text, or whatever else it is.
func errorText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// log tells an operator what pi says about itself.
func (s *session) log(text string) {
	if text = strings.TrimSpace(text); text != "" {
		s.Tell(driver.DriverLog, "", driver.TextData{Text: "pi: " + text})
	}
}
