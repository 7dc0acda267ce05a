package agent

import (
	"encoding/json"
	"time"
)

// EventKind says what an event tells.
type EventKind uint8

const (
	UnknownEvent      EventKind = iota
	EventMessage                // a message to the agent; data: {"role", "content"}
	EventRunQueued              // a run was accepted; data: {"function"}
	EventRunStarted             // a cell runs it
	EventLog                    // console output; data: {"level", "message"}
	EventEmit                   // the agent's own event; Name is what the agent called it, data is the agent's value
	EventRunCompleted           // data: {"output": Payload, "usage": Usage}
	EventRunFailed              // data: RunError
	EventRunCancelled           // data: RunError
	EventRefused                // the agent asked for what it was not granted; data: Refusal
	EventSecretUsed             // a secret went into a request; data: SecretUse
	EventHTTP                   // an outbound request ended; data: HTTPUse
	EventChanged                // in an audit log: what a person or program changed; data: Change

	EventRunWaiting   // a run gave up its cell; data: RunWait
	EventRunResumed   // it has one again
	EventRunPaused    // data: RunWait
	EventRunUncertain // data: RunWait, which names the call
	EventReceived     // an event from outside came for a run; Name is its type, data what it brought
	EventStepStarted  // Name is the step's; data: Step
	EventStepEnded    // Name is the step's; data: Step
	EventStateChanged // an instance's shared state; data: StateChange
	EventCreated      // an instance was made
	EventUpgraded     // an instance runs another version of its code; data: {"from", "to"}
	EventAlarmFired   // Name is the alarm's; data: AlarmFired
	EventAlarmFailed  // it failed for the last time and is kept as a dead letter; data: AlarmFired
	EventConnected    // a socket; data: {"connection"}
	EventDisconnected // data: {"connection"}

	EventToolCalled        // a call of a tool was judged; data: ToolUse with its Decision
	EventToolReturned      // a call that was allowed has ended; data: ToolUse
	EventApprovalRequested // a person is asked; data: Approval
	EventApprovalAnswered  // data: ApprovalAnswered

	EventMessageStarted // a model's answer that is shown begins; data: {"id", "attempt"}
	EventMessageDelta   // what it says next; data: {"id", "attempt", "index", "type", "offset", "text"}
	EventMessageDone    // it has ended; data: {"id", "attempt", "stop", "usage"}

	EventCLI // what happened in a sandbox, as package driver has it; Name is its type, data that of the type with the turn as "turn"
)

var eventNames = [...]string{
	"unknown", "message", "run.queued", "run.started", "log", "emit", "run.completed", "run.failed", "run.cancelled",
	"grant.refused", "secret.used", "http.request", "changed",
	"run.waiting", "run.resumed", "run.paused", "run.uncertain", "event.received", "step.started", "step.ended", "state.changed",
	"instance.created", "instance.upgraded", "alarm.fired", "alarm.failed", "socket.connected", "socket.disconnected",
	"tool.called", "tool.returned", "approval.requested", "approval.answered",
	"message.started", "message.delta", "message.done", "cli",
}

func (k EventKind) String() string               { return nameOf(eventNames[:], k) }
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *EventKind) UnmarshalText(b []byte) error {
	return parseName(eventNames[:], b, k, "event kind")
}

// EndsRun reports whether this event is the last of its run.
func (k EventKind) EndsRun() bool { return k >= EventRunCompleted && k <= EventRunCancelled }

// Event is one entry of a log. Seq is gapless from 1 within its log.
type Event struct {
	Seq  int64           `json:"seq"`
	Time time.Time       `json:"time"`
	Kind EventKind       `json:"kind"`
	Name string          `json:"name,omitempty"` // where the kind has one
	Run  RunID           `json:"run,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// LogLevel grades a line of console output.
type LogLevel uint8

const (
	LevelTrace LogLevel = iota
	LevelDebug
	LevelInfo
	LevelWarn
	LevelError
)

var levelNames = [...]string{"trace", "debug", "info", "warn", "error"}

func (l LogLevel) String() string               { return nameOf(levelNames[:], l) }
func (l LogLevel) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
func (l *LogLevel) UnmarshalText(b []byte) error {
	return parseName(levelNames[:], b, l, "log level")
}

// LogLine is the data of an EventLog.
type LogLine struct {
	Level   LogLevel `json:"level"`
	Message string   `json:"message"`
}

// Message is the data of an EventMessage.
type Message struct {
	Role    string          `json:"role"` // "user" or "agent"
	Content json.RawMessage `json:"content"`
}

// HTTPUse is the data of an EventHTTP. The query and whatever else may carry a secret are not in it.
type HTTPUse struct {
	Agent    string        `json:"agent"`
	Run      RunID         `json:"run,omitempty"`
	Method   string        `json:"method"`
	Host     string        `json:"host"` // with the port when it is not the scheme's own
	Path     string        `json:"path"`
	Status   int           `json:"status,omitempty"` // 0 when there was no answer
	Sent     int64         `json:"sent"`             // bytes of body
	Received int64         `json:"received"`         // bytes of body, decoded
	Duration time.Duration `json:"duration"`         // nanoseconds in JSON
	Error    string        `json:"error,omitempty"`
}

// Change is the data of an EventChanged: who did what to which thing.
type Change struct {
	Token  TokenID `json:"token,omitempty"` // whose; empty for the server itself, and for an agent
	Action string  `json:"action"`          // "secret.set", "agent.grants", "token.create", ...
	Name   string  `json:"name,omitempty"`  // of what was changed
	Detail string  `json:"detail,omitempty"`

	Request string `json:"request,omitempty"` // id of the request that asked for it
	Agent   string `json:"agent,omitempty"`   // whose code asked for it
	Run     RunID  `json:"run,omitempty"`     // in which it did
}

// Step is the data of an EventStepStarted and an EventStepEnded.
type Step struct {
	Attempt  int           `json:"attempt"`            // from 1
	Duration time.Duration `json:"duration,omitempty"` // of the attempt that ended; nanoseconds in JSON
	Error    string        `json:"error,omitempty"`
	Rollback bool          `json:"rollback,omitempty"` // what undoes the step
}

// StateChange is the data of an EventStateChanged. Patch leads from the version before to this one (RFC 7396).
type StateChange struct {
	Version int64           `json:"version"`
	Patch   json.RawMessage `json:"patch"`
	Source  string          `json:"source,omitempty"` // the connection that asked for it; empty for the agent itself
}

// AlarmFired is the data of an EventAlarmFired and an EventAlarmFailed.
type AlarmFired struct {
	Method  string    `json:"method"`
	Due     time.Time `json:"due"`
	Attempt int       `json:"attempt"`          // from 1
	Missed  int       `json:"missed,omitempty"` // times that passed while nobody was there, and that this one stands for
	Error   string    `json:"error,omitempty"`
}
