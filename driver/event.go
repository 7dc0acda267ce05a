package driver

import (
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Event is one thing that happened in a box, in words that are no vendor's.
type Event struct {
	Time   time.Time       `json:"time"`
	Turn   string          `json:"turn,omitempty"`   // Prompt.Turn
	Type   string          `json:"type"`             // one of the below
	Native string          `json:"native,omitempty"` // the CLI's own id of the item or request
	Data   json.RawMessage `json:"data,omitempty"`   // the struct of the type
	Cut    bool            `json:"cut,omitempty"`    // Data is not whole: long texts in it are shorter. No machine may decide about a PermissionAsked that is cut
	Trace  string          `json:"trace,omitempty"`  // traceparent of the command that it comes of, else of Boot
}

// Types of events, each with what its Data is.
const (
	SessionStarted = "session.started" // SessionData
	TurnStarted    = "turn.started"    // nothing
	TurnEnded      = "turn.ended"      // TurnEnd: always the last of a turn, also when the CLI has died

	TextDelta      = "text.delta"      // TextData: what the CLI says; Item tells texts apart
	TextDone       = "text.done"       // TextData with the whole text
	ReasoningDelta = "reasoning.delta" // TextData
	PlanUpdated    = "plan.updated"    // PlanData

	ToolStarted = "tool.started" // ToolData
	ToolOutput  = "tool.output"  // TextData: Item is the tool call's id
	ToolEnded   = "tool.ended"   // ToolData
	FileChanged = "file.changed" // FileData

	PermissionAsked     = "permission.asked"     // PermissionData: the CLI waits for an Answer
	PermissionWithdrawn = "permission.withdrawn" // PermissionData with ID only: an answer is no longer of use
	QuestionAsked       = "question.asked"       // QuestionData: the CLI waits for an Answer

	UsageTold   = "usage"           // UsageData: what the CLI believes; the ledger counts at the gateway
	ContextTold = "context"         // ContextData
	ModelRetry  = "model.retry"     // RetryData
	Compaction  = "compaction"      // nothing
	Subagent    = "subagent"        // SubagentData
	Unparsed    = "agent.unparsed"  // UnparsedData: what the CLI said and the backend does not know
	CLIStarted  = "process.started" // ProcessData
	CLIExited   = "process.exited"  // ProcessData
	OutOfMemory = "process.oom"     // ProcessData: something in the box was ended for want of memory
	SetupOutput = "setup.output"    // TextData: what the setup script wrote
	SetupEnded  = "setup.ended"     // ProcessData
	ExecOutput  = "exec.output"     // TextData: Item is the exec's id; only of an exec that is to be shown
	DriverLog   = "driver.log"      // TextData: what an operator should know
)

type (
	// SessionData is of a session of the CLI's own.
	SessionData struct {
		ID      string   `json:"id"` // by which it can be resumed
		CLI     string   `json:"cli"`
		Version string   `json:"version,omitempty"`
		Model   string   `json:"model,omitempty"`
		Tools   []string `json:"tools,omitempty"`
		Resumed bool     `json:"resumed,omitempty"`
	}
	// TurnEnd is how a turn ended.
	TurnEnd struct {
		Status string `json:"status"`           // completed, interrupted, failed, refused, limit
		Reason string `json:"reason,omitempty"` // the CLI's own word
		Text   string `json:"text,omitempty"`   // the answer, as far as there is one
		Fault  *Fault `json:"fault,omitempty"`  // when failed
	}
	TextData struct {
		Item string `json:"item,omitempty"`
		Text string `json:"text"`
		Err  bool   `json:"err,omitempty"` // of standard error
	}
	PlanData struct {
		Steps []PlanStep `json:"steps"`
	}
	PlanStep struct {
		Text   string `json:"text"`
		Status string `json:"status"` // pending, running, done
	}
	// ToolData is of one call of a tool of the CLI's.
	ToolData struct {
		ID     string          `json:"id"`
		Name   string          `json:"name"`
		Action string          `json:"action"` // see Permission actions
		Input  json.RawMessage `json:"input,omitempty"`
		Title  string          `json:"title,omitempty"`
		Failed bool            `json:"failed,omitempty"`
		Output string          `json:"output,omitempty"`
	}
	FileData struct {
		Path string `json:"path"` // within the workspace where it is there, else absolute
		Op   string `json:"op"`   // add, change, delete
	}
	// PermissionData is what a CLI asks to be allowed. What is judged by the policy is the call of the tool cli.ACTION with Args.
	PermissionData struct {
		ID     string          `json:"id"`             // single use
		Tool   string          `json:"tool,omitempty"` // the CLI's name of it
		Action string          `json:"action,omitempty"`
		Args   json.RawMessage `json:"args,omitempty"` // of the action: see Actions
		Input  json.RawMessage `json:"input,omitempty"`
		Reason string          `json:"reason,omitempty"`
	}
	QuestionData struct {
		ID      string          `json:"id"`
		Text    string          `json:"text"`
		Options []string        `json:"options,omitempty"`
		Schema  json.RawMessage `json:"schema,omitempty"` // of the answer, where the CLI says so
	}
	UsageData struct {
		Model      string  `json:"model,omitempty"`
		Input      int64   `json:"input"`
		CacheRead  int64   `json:"cache_read,omitempty"`
		CacheWrite int64   `json:"cache_write,omitempty"`
		Output     int64   `json:"output"`
		Reasoning  int64   `json:"reasoning,omitempty"`
		Dollars    float64 `json:"dollars,omitempty"`
	}
	ContextData struct {
		Used int64 `json:"used"`
		Size int64 `json:"size"`
	}
	RetryData struct {
		Attempt int           `json:"attempt"`
		Status  int           `json:"status,omitempty"`
		Wait    time.Duration `json:"wait,omitempty"`
	}
	SubagentData struct {
		ID    string `json:"id"`
		State string `json:"state"` // started, ended
		Text  string `json:"text,omitempty"`
	}
	UnparsedData struct {
		Raw string `json:"raw"`
	}
	ProcessData struct {
		Name   string `json:"name"`
		PID    int    `json:"pid,omitempty"`
		Code   int    `json:"code"`
		Signal string `json:"signal,omitempty"`
		OOM    bool   `json:"oom,omitempty"`
		Tail   string `json:"tail,omitempty"` // of standard error
	}
)

// Actions are what a CLI can want to do, for the policy: tools of the built-in server cli, each with its arguments.
const (
	ActionRun   = "run"   // {"command": TEXT, "cwd": PATH}: in a shell
	ActionEdit  = "edit"  // {"path": PATH, ...}: changes or makes a file; more than one as {"paths": [...]}
	ActionRead  = "read"  // {"path": PATH}
	ActionFetch = "fetch" // {"url": URL}
	ActionTool  = "tool"  // {"tool": NAME, "input": {...}}: whatever else, such as a tool of an MCP server of the CLI's
)

// Turn statuses.
const (
	TurnCompleted   = "completed"
	TurnInterrupted = "interrupted"
	TurnFailed      = "failed"
	TurnRefused     = "refused"
	TurnLimit       = "limit"
)

// NewEvent returns an event of now. data is the struct of its type.
func NewEvent(turn, kind string, data any) Event {
	e := Event{Time: time.Now().UTC(), Turn: turn, Type: kind}
	if data != nil {
		e.Data = marshal(data)
	}
	return e
}

// Read reads the data of an event.
func (e *Event) Read(v any) error {
	if len(e.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(e.Data, v); err != nil {
		return agent.Errorf(agent.Invalid, "the data of an event %s cannot be read: %s", e.Type, err)
	}
	return nil
}
