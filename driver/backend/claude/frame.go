package claude

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// frame is a line that the CLI writes: of any type, the fields that this package reads.
type frame struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Parent  string `json:"parent_tool_use_id"`

	// control_request, control_cancel_request, control_response
	ID       string          `json:"request_id"`
	Request  json.RawMessage `json:"request"`
	Response struct {
		Subtype  string          `json:"subtype"`
		ID       string          `json:"request_id"`
		Response json.RawMessage `json:"response"`
		Error    string          `json:"error"`
	} `json:"response"`

	Event   json.RawMessage `json:"event"`           // stream_event
	Message json.RawMessage `json:"message"`         // assistant, user
	Error   json.RawMessage `json:"error"`           // assistant, api_retry, auth_status
	Result  json.RawMessage `json:"tool_use_result"` // user

	// system
	Attempt     int     `json:"attempt"`
	RetryDelay  float64 `json:"retry_delay_ms"`
	ErrorStatus int     `json:"error_status"`
	Task        string  `json:"task_id"`
	TaskType    string  `json:"task_type"`
	Description string  `json:"description"`
	Summary     string  `json:"summary"`
	Status      string  `json:"status"`
	Patch       struct {
		Status string `json:"status"`
		Error  string `json:"error"`
	} `json:"patch"`
	Content string `json:"content"`
	Level   string `json:"level"`
	Text    string `json:"text"`
}

// silent are frames that say nothing that package driver has a word for.
var silent = map[string]bool{
	"keep_alive": true, "rate_limit_event": true, "tool_use_summary": true, "tool_progress": true, "prompt_suggestion": true, "conversation_reset": true,
	"active_goal": true, "system/init": true, "system/status": true, "system/thinking_tokens": true, "system/session_state_changed": true,
	"system/commands_changed": true, "system/background_tasks_changed": true, "system/hook_started": true, "system/hook_progress": true,
	"system/hook_response": true, "system/files_persisted": true, "system/task_progress": true, "system/permission_denied": true,
	"system/control_request_progress": true, "system/memory_recall": true, "system/elicitation_complete": true, "system/plugin_install": true,
	"system/worker_shutting_down": true, "system/ui_invalidate": true, "command_lifecycle": true,
}

// frame tells what one line says. It never fails: what is not known is told as such.
func (s *session) frame(line []byte, whole bool) {
	var f frame
	if !whole || json.Unmarshal(line, &f) != nil || !s.known(&f, line) {
		s.Tell(driver.Unparsed, "", stdio.Unparsed(line))
	}
}

// known tells what a frame says, and reports whether it could.
func (s *session) known(f *frame, line []byte) bool {
	name := f.Type
	if f.Type == "system" {
		name += "/" + f.Subtype
	}
	switch name {
	case "stream_event":
		return s.said.event(s, f)
	case "assistant":
		return s.said.assistant(s, f)
	case "user":
		return s.said.user(s, f)
	case "result":
		return s.result(line)
	case "control_request":
		return s.asks(f)
	case "control_cancel_request":
		s.Withdraw(f.ID)
		return true
	case "control_response":
		return s.answered(f)
	case "system/api_retry":
		wait := time.Duration(f.RetryDelay * float64(time.Millisecond))
		s.Tell(driver.ModelRetry, "", driver.RetryData{Attempt: f.Attempt, Status: f.ErrorStatus, Wait: wait})
		return true
	case "system/compact_boundary":
		s.Tell(driver.Compaction, "", nil)
		return true
	case "system/task_started", "system/task_notification", "system/task_updated":
		s.said.task(s, f)
		return true
	case "system/model_refusal_no_fallback", "system/model_refusal_fallback":
		s.said.refused = s.said.refused || name == "system/model_refusal_no_fallback"
		s.log(f.Content)
		return true
	case "system/informational", "system/notification", "system/local_command_output", "system/mirror_error", "system/session_writes_lost":
		s.log(strings.TrimSpace(f.Content + " " + f.Text))
		return true
	case "auth_status":
		return true
	}
	return silent[name]
}

// log tells an operator what the CLI says about itself.
func (s *session) log(text string) {
	if text != "" {
		s.Tell(driver.DriverLog, "", driver.TextData{Text: "claude: " + text})
	}
}
