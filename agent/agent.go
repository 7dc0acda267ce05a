// Package agent is the vocabulary of Skep: the ids, records, events, limits and errors that every other package speaks.
// It does nothing and imports nothing of ours.
package agent

import (
	"cmp"
	"encoding/json"
	"time"
)

// App names the boundary that owns plugins, agents and sessions.
type App string

// DefaultApp is the app that every organization starts with.
const DefaultApp App = "default"

// AppInfo is what is kept of an app.
type AppInfo struct {
	Name     App       `json:"name"`
	Weight   int       `json:"weight"`             // its share of the processors beside other apps; 1 unless given
	Outbound string    `json:"outbound,omitempty"` // the agent whose fetch handler sees each outbound request of the app's agents
	Quota    Quota     `json:"quota,omitzero"`
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated"`
}

// Quota bounds what an app or an agent uses over time. A zero field means no bound of its own.
type Quota struct {
	Cells          int64         `json:"cells,omitempty"`            // live at once
	CallsPerSecond int64         `json:"calls_per_second,omitempty"` // begun
	CPUPerDay      time.Duration `json:"cpu_per_day,omitempty"`      // UTC; nanoseconds in JSON
	BytesPerDay    int64         `json:"bytes_per_day,omitempty"`    // in and out, of calls and of outbound requests; UTC
}

// CodeKind says what kind of guest a plugin is.
type CodeKind uint8

const (
	UnknownCode CodeKind = iota
	Wasm                 // a WebAssembly module that speaks the Extism ABI
	Script               // JavaScript or TypeScript
	Python
)

var codeNames = [...]string{"unknown", "wasm", "script", "python"}

func (k CodeKind) String() string               { return nameOf(codeNames[:], k) }
func (k CodeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *CodeKind) UnmarshalText(b []byte) error {
	return parseName(codeNames[:], b, k, "code kind")
}

// Source is agent code as its author wrote it: one WebAssembly module, or files of text.
type Source struct {
	Kind  CodeKind
	Main  string            // path of the entry file, a key of Files
	Files map[string][]byte // by slash-separated relative path
}

// Plugin is immutable agent code, named by digest and by name and version.
type Plugin struct {
	App     App       `json:"app"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Digest  Digest    `json:"digest"` // of the uploaded file; of a package made of it, when that was a single script
	Kind    CodeKind  `json:"kind"`
	Main    string    `json:"main"`           // entry file
	Exports []string  `json:"exports"`        // functions a caller may name, sorted
	Asks    *Grants   `json:"asks,omitempty"` // what its manifest asks for; nil when it has none that says
	Size    int64     `json:"size"`           // bytes uploaded
	Created time.Time `json:"created"`
}

// Agent is a named thing in an app that can be run.
type Agent struct {
	App         App               `json:"app"`
	ID          AgentID           `json:"id"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Plugin      string            `json:"plugin,omitempty"` // name, or name@version to pin one; "" for an agent that runs only code that it is given
	Config      map[string]string `json:"config,omitempty"` // plain settings the code may read; never secrets
	Grants      Grants            `json:"grants"`
	Limits      Limits            `json:"limits"` // zero fields mean the defaults
	Quota       Quota             `json:"quota,omitzero"`
	Sandbox     *SandboxUse       `json:"sandbox,omitempty"` // that it works in; nil for one that has none
	Created     time.Time         `json:"created"`
	Updated     time.Time         `json:"updated"`
}

// Session is a conversation with an agent: an ordered event log.
type Session struct {
	App     App       `json:"app"`
	ID      SessionID `json:"id"`
	Agent   string    `json:"agent"` // agent name
	Key     string    `json:"key"`   // instance key; "default" unless given
	Title   string    `json:"title,omitempty"`
	Created time.Time `json:"created"`
	LastSeq int64     `json:"last_seq"` // number of the newest event; 0 when there is none
}

// Run is one piece of work, from input to a terminal status. It belongs to a session.
type Run struct {
	App      App       `json:"app"`
	ID       RunID     `json:"id"`
	Session  SessionID `json:"session"`
	FirstSeq int64     `json:"first_seq"` // number of its first event in the session's log
	Agent    string    `json:"agent"`
	Plugin   Digest    `json:"plugin"`         // the code it runs, fixed at creation
	Code     bool      `json:"code,omitempty"` // that is not a plugin's, but was given with the run: a script of code mode
	Tools    []string  `json:"tools,omitzero"` // of Code: the tools that it was given of those its agent is granted; nil means all of these
	Function string    `json:"function"`
	Input    Payload   `json:"input"`
	Status   RunStatus `json:"status"`
	Output   *Payload  `json:"output,omitempty"` // when completed
	Error    *RunError `json:"error,omitempty"`  // when failed or cancelled
	Usage    Usage     `json:"usage"`            // of all its lives together
	Trace    string    `json:"trace,omitempty"`  // traceparent of the request that began it (W3C Trace Context)

	Parent  *RunParent `json:"parent,omitempty"` // the run that began it, when one did
	Wait    *RunWait   `json:"wait,omitempty"`   // while it is Waiting, Paused or Uncertain
	Asks    []Approval `json:"asks,omitempty"`   // questions to a person that are open
	Lives   int        `json:"lives,omitempty"`  // cells it has had; more than one after a wait or a crash
	Lost    int        `json:"lost,omitempty"`   // lives in a row that ended with their process or over a limit of memory
	Created time.Time  `json:"created"`
	Started time.Time  `json:"started,omitzero"`
	Ended   time.Time  `json:"ended,omitzero"`
}

// RunParent names the call of a run that began another run.
type RunParent struct {
	Run  RunID  `json:"run"`
	Call uint64 `json:"call"`
}

// RunWait says what a run waits for that has no cell meanwhile.
type RunWait struct {
	For   string    `json:"for"`            // "sleep", "event", "run", "reply", "approval", "pause", "answer"; more than one thing is "several"
	Name  string    `json:"name,omitempty"` // of the event's type, the run, or what call it is whose reply is awaited, or whose effect is not known
	Call  uint64    `json:"call,omitempty"` // its number in the journal
	Until time.Time `json:"until,omitzero"` // when it goes on at the latest; zero when nothing says so
}

// RunStatus is where a run stands. The terminal ones are Completed, RunFailed and RunCancelled.
type RunStatus uint8

const (
	UnknownStatus RunStatus = iota
	Queued
	Running
	Waiting   // holds no cell; a time, an event or an answer brings it back
	Paused    // by a person, until one resumes it
	Uncertain // a call was made whose effect is not known; a person has to say what became of it
	Completed
	RunFailed
	RunCancelled
)

var statusNames = [...]string{"unknown", "queued", "running", "waiting", "paused", "uncertain", "completed", "failed", "cancelled"}

func (s RunStatus) String() string               { return nameOf(statusNames[:], s) }
func (s RunStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *RunStatus) UnmarshalText(b []byte) error {
	return parseName(statusNames[:], b, s, "run status")
}

// Terminal reports whether the run has ended.
func (s RunStatus) Terminal() bool { return s >= Completed }

// Active reports whether a process has work to do for the run, also when the one that had it has died.
func (s RunStatus) Active() bool { return s == Queued || s == Running }

// RunError is an Error as a run keeps it.
type RunError struct {
	Kind  Kind   `json:"kind"`
	Msg   string `json:"message"`
	Hint  string `json:"hint,omitempty"`
	Limit Limit  `json:"limit,omitempty"`
	Pos   Pos    `json:"position,omitzero"`
	Stack string `json:"stack,omitempty"`
}

// ErrorOf returns what a run keeps of err: never the cause, which is for the log.
func ErrorOf(err error) *RunError {
	e := AsError(err)
	if e == nil {
		return nil
	}
	return &RunError{Kind: e.Kind, Msg: e.Msg, Hint: e.Hint, Limit: e.Limit, Pos: e.Pos, Stack: e.Stack}
}

// Payload is bytes with their content type, as a call takes and returns them.
type Payload struct {
	Type string // media type: "application/json", "text/plain; charset=utf-8", "application/octet-stream", ...
	Body []byte
}

// payloadJSON is a Payload in JSON: the value itself when it is JSON, a string when it is text, else base64.
type payloadJSON struct {
	Type   string          `json:"type,omitempty"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func (p Payload) MarshalJSON() ([]byte, error) {
	out := payloadJSON{Type: p.Type}
	switch {
	case p.IsJSON() && json.Valid(p.Body):
		out.JSON = p.Body
	case p.IsText():
		s := string(p.Body)
		out.Text = &s
	default:
		out.Base64 = p.Body
	}
	return json.Marshal(out)
}

func (p *Payload) UnmarshalJSON(b []byte) error {
	var in payloadJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*p = Payload{Type: in.Type}
	switch {
	case in.JSON != nil:
		p.Body = in.JSON
		p.Type = cmp.Or(p.Type, TypeJSON)
	case in.Text != nil:
		p.Body = []byte(*in.Text)
		p.Type = cmp.Or(p.Type, TypeText)
	default:
		p.Body = in.Base64
		p.Type = cmp.Or(p.Type, TypeBytes)
	}
	return nil
}
