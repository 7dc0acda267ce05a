package agent

import (
	"encoding/json"
	"time"
)

// Instance is what is known of an instance from outside. Shared, the state that clients see, and Own, its children, are in an inspection
// only.
type Instance struct {
	Agent    string          `json:"agent"`
	Key      string          `json:"key"`
	Created  time.Time       `json:"created"`
	Updated  time.Time       `json:"updated"`
	Version  Digest          `json:"version,omitempty"` // of the code that its newest turn ran
	State    StateSize       `json:"state"`
	LogBytes int64           `json:"log_bytes"`
	Alarms   int64           `json:"alarms"`
	Outbox   int64           `json:"outbox"` // messages that are on their way
	Children int64           `json:"children"`
	Sockets  int             `json:"sockets"` // connections that are open now
	Waiting  int             `json:"waiting"` // turns that wait in its line now
	Commits  int64           `json:"commits"` // of all its life
	Parent   *InstanceName   `json:"parent,omitempty"`
	Shared   json.RawMessage `json:"shared,omitempty"`
	Own      []InstanceName  `json:"own,omitempty"`
}

// InstanceName names an instance by its agent's name and its key.
type InstanceName struct {
	Agent string `json:"agent"`
	Key   string `json:"key"`
}

// Alarm is an alarm of an instance, or one that failed for the last time: a dead letter.
type Alarm struct {
	Key     string          `json:"key,omitempty"` // of its instance, in a list of several instances
	Name    string          `json:"name"`
	Method  string          `json:"method"`
	Payload json.RawMessage `json:"payload,omitempty"`
	At      time.Time       `json:"at"`
	Every   time.Duration   `json:"every,omitempty"` // nanoseconds in JSON
	Cron    string          `json:"cron,omitempty"`
	Zone    string          `json:"zone,omitempty"`
	Attempt int             `json:"attempt,omitempty"` // that failed
	Dead    bool            `json:"dead,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// JournalEntry is an entry of a run's journal as a person reads it: what the run asked of its host, and what it got.
type JournalEntry struct {
	Seq    int64           `json:"seq"`
	Kind   string          `json:"kind"` // "begin", "start", "done", "deliver", "timer", "event", "snapshot", "commit", "end", ...
	Time   time.Time       `json:"time,omitzero"`
	Call   uint64          `json:"call,omitempty"`
	Name   string          `json:"name,omitempty"`   // of the call, the event or the step
	Input  json.RawMessage `json:"input,omitempty"`  // what a call asked for: up to 160 bytes, as text
	Output json.RawMessage `json:"output,omitempty"` // clipped, and clean of secrets
	Error  *RunError       `json:"error,omitempty"`
	Class  string          `json:"class,omitempty"` // pure, read, own, inside, wait, idempotent, once
	Bytes  int64           `json:"bytes,omitempty"`
	Life   int             `json:"life,omitempty"`
}

// Resolution says what became of a call whose effect is not known.
type Resolution struct {
	Call   uint64          `json:"call"`
	Action string          `json:"action"`           // "retry" makes it again; "answer" gives Output; "fail" gives Error
	Output json.RawMessage `json:"output,omitempty"` // of a request: {"status", "header", "body"}; of another call: the JSON value it returns
	Error  string          `json:"error,omitempty"`
}

// Replay is what came of playing a run again.
type Replay struct {
	Same       bool              `json:"same"`
	Calls      int               `json:"calls"` // that were compared
	Output     *Payload          `json:"output,omitempty"`
	Error      *RunError         `json:"error,omitempty"`
	Difference *ReplayDifference `json:"difference,omitempty"`
	Complete   bool              `json:"complete"` // whether the run had ended; else it was played as far as its journal goes
}

// ReplayDifference is where the two first differ.
type ReplayDifference struct {
	Call uint64 `json:"call,omitempty"` // 0 for the result
	Was  string `json:"was"`
	Now  string `json:"now"`
}
