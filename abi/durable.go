package abi

// The calls of durable code. All but CallSelf and the marks of steps are refused in a call that belongs to no instance; those of
// runs are refused outside of one. Times are milliseconds since 1970 (Unix), durations milliseconds.
const (
	CallSelf = "self" // empty -> Self; answered at once

	// The instance's own ordered key-value state: as the calls of state.*, and part of the turn's commit.
	CallStorageGet    = "storage.get"    // StateGet -> StateEntries
	CallStorageSet    = "storage.set"    // StateEdit -> StateVersion
	CallStorageDelete = "storage.delete" // StateEdit -> StateVersion
	CallStorageList   = "storage.list"   // StateList -> StateEntries
	CallStorageBatch  = "storage.batch"  // StateBatch -> StateVersion
	CallStorageSQL    = "storage.sql"    // SQL -> SQLRows

	// The state that clients of the instance see. Both are answered at once.
	CallSharedGet = "shared.get" // empty -> Shared
	CallSharedSet = "shared.set" // SharedSet -> Shared

	CallAlarmSet    = "alarm.set"    // AlarmSet -> Alarm
	CallAlarmList   = "alarm.list"   // AlarmList -> Alarms
	CallAlarmCancel = "alarm.cancel" // AlarmCancel -> AlarmCancelled

	CallSleep     = "run.sleep"  // Sleep -> empty, when the time has come
	CallWait      = "run.wait"   // Wait -> Waited, when an event has come or the time is up
	CallStart     = "run.start"  // Start -> Started: begins another run, once
	CallResult    = "run.result" // Result -> AgentResult, when that run has ended; how it failed is the error
	CallStepBegin = "step.begin" // StepMark -> empty; answered at once
	CallStepEnd   = "step.end"   // StepMark -> empty; answered at once

	CallSocketSend   = "socket.send"   // SocketSend -> empty; the frames leave with the turn's commit
	CallSocketClose  = "socket.close"  // SocketClose -> empty
	CallSocketAttach = "socket.attach" // SocketAttach -> empty
	CallSocketList   = "socket.list"   // SocketList -> Sockets

	CallChildDelete = "child.delete" // ChildDelete -> empty: ends an instance that is the caller's own

	// In a call of an instance: commits what the turn has changed and lets other turns of the instance go first, until the
	// code enters again; in between it cannot reach what belongs to the instance. They do nothing in runs, whose waits let others go anyway, and
	// in alarms and messages, which have the instance alone to their end.
	CallTurnLeave = "turn.leave" // empty -> empty
	CallTurnEnter = "turn.enter" // empty -> empty
)

// Self is who the code is. Key is empty in a call that belongs to no instance.
type Self struct {
	Agent   string `json:"agent"`
	Key     string `json:"key,omitempty"`
	Session string `json:"session,omitempty"`
	Run     string `json:"run,omitempty"`
	Version string `json:"version,omitempty"` // digest of the code
}

// SQL is one statement of SQLite with its parameters; several statements without parameters may be separated by semicolons.
type SQL struct {
	Query  string     `json:"query"`
	Params []SQLValue `json:"params,omitempty"`
}

// SQLValue is a value of SQLite: null, or exactly one field. Integers beyond 2^53 travel as text in Int.
type SQLValue struct {
	Int   *int64   `json:"int,omitempty,string"`
	Real  *float64 `json:"real,omitempty"`
	Text  *string  `json:"text,omitempty"`
	Bytes *[]byte  `json:"bytes,omitempty"`
}

// SQLRows is what a statement returned, up to 10,000 rows and 8 MiB.
type SQLRows struct {
	Columns []string     `json:"columns"`
	Rows    [][]SQLValue `json:"rows"`
	Changes int64        `json:"changes"` // rows that it inserted, changed or deleted
}

// Shared is the state that clients see. Version 0 means that it was never set.
type Shared struct {
	State   Raw   `json:"state,omitempty"`
	Version int64 `json:"version"`
}

// SharedSet sets it, if it has the version that If names.
type SharedSet struct {
	State Raw    `json:"state"`
	If    *int64 `json:"if,omitempty"`
}

// AlarmSet sets an alarm, in place of one of the same name. Of At, Delay, Every and Cron one is set.
type AlarmSet struct {
	Name    string `json:"name,omitempty"`   // "" makes one up from method, time and payload, so that the same is set once
	Method  string `json:"method,omitempty"` // that is called; onAlarm when empty
	Payload Raw    `json:"payload,omitempty"`

	At    int64  `json:"at,omitempty"`
	Delay int64  `json:"delay,omitempty"`
	Every int64  `json:"every,omitempty"` // 1000 or more
	Cron  string `json:"cron,omitempty"`  // five or six fields, or a word such as @daily
	Zone  string `json:"zone,omitempty"`  // of Cron, by the IANA database; UTC when empty

	Overlap string      `json:"overlap,omitempty"` // of Every and Cron, when the call before still runs: "skip" (the default) or "queue"
	Missed  string      `json:"missed,omitempty"`  // of Every and Cron, for times that passed meanwhile: "once" (the default), "skip" or "all"
	Retry   *AlarmRetry `json:"retry,omitempty"`
	Keep    bool        `json:"keep,omitempty"` // one of the same name that is there stays as it is
}

// AlarmRetry says how often a call that failed is made again, and after how long.
type AlarmRetry struct {
	Attempts int   `json:"attempts,omitempty"`  // in all; 6 unless given, at most 100
	Delay    int64 `json:"delay,omitempty"`     // before the second; 2000 unless given, doubled each time
	MaxDelay int64 `json:"max_delay,omitempty"` // 300000 unless given
}

// Alarm is one that is set, or that failed for the last time (Dead).
type Alarm struct {
	Name    string `json:"name"`
	Method  string `json:"method"`
	Payload Raw    `json:"payload,omitempty"`
	At      int64  `json:"at"` // when it is due next
	Every   int64  `json:"every,omitempty"`
	Cron    string `json:"cron,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Attempt int    `json:"attempt,omitempty"` // that failed
	Dead    bool   `json:"dead,omitempty"`
	Error   string `json:"error,omitempty"` // of the latest attempt
}

// AlarmList asks for alarms in the order of names, those that failed for the last time behind the others.
type AlarmList struct {
	After string `json:"after,omitempty"` // of the page before; or a name behind "a/", or behind "d/" for those that failed
	Limit int    `json:"limit,omitempty"` // 100 unless given, at most 1000
}

// Alarms answers it.
type Alarms struct {
	Alarms []Alarm `json:"alarms"`
	After  string  `json:"after,omitempty"` // for the next page; empty at the end
}

// AlarmCancel takes an alarm back.
type AlarmCancel struct {
	Name string `json:"name"`
}

// AlarmCancelled tells whether it was there.
type AlarmCancelled struct {
	Cancelled bool `json:"cancelled"`
}

// Sleep waits until a time, or for a duration.
type Sleep struct {
	Until int64 `json:"until,omitempty"`
	For   int64 `json:"for,omitempty"`
}

// Wait waits for an event of a type, for at most Timeout; 0 means until it comes.
type Wait struct {
	Type    string `json:"type"`
	Timeout int64  `json:"timeout,omitempty"`
}

// Waited answers Wait.
type Waited struct {
	TimedOut bool `json:"timed_out,omitempty"`
	Data     Raw  `json:"data,omitempty"`
}

// Start begins a run of an agent's function; Agent is the caller's own when empty, Key the caller's own for its own agent.
type Start struct {
	Agent    string `json:"agent,omitempty"`
	Key      string `json:"key,omitempty"`
	Function string `json:"function"`
	Type     string `json:"type,omitempty"`
	Input    []byte `json:"input,omitempty"`

	// Code is a script of code mode, which is run in place of a function of the agent's: for the agent itself, in an instance of its own. A script
	// cannot begin another.
	Code  string   `json:"code,omitempty"`
	Tools []string `json:"tools,omitzero"` // of those that the agent is granted: names, or SERVER.*; nil means all
}

// Started names it.
type Started struct {
	Run     string `json:"run"`
	Session string `json:"session"`
}

// Result asks what became of a run.
type Result struct {
	Run string `json:"run"`
}

// StepMark marks where a step begins and ends, for events, the tree of a run, and restarts.
type StepMark struct {
	Name     string `json:"name"`
	Attempt  int    `json:"attempt"` // from 1
	Error    string `json:"error,omitempty"`
	Rollback bool   `json:"rollback,omitempty"`
}

// SocketSend sends a frame to the connections that are named, or that have the tag, or to all but those of Except.
type SocketSend struct {
	To     []string `json:"to,omitempty"`
	Tag    string   `json:"tag,omitempty"`
	Except []string `json:"except,omitempty"`
	Text   *string  `json:"text,omitempty"`
	Base64 []byte   `json:"base64,omitempty"`
}

// SocketClose closes a connection with a code and a reason (RFC 6455, section 7.4).
type SocketClose struct {
	ID     string `json:"id"`
	Code   int    `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// SocketAttach sets what is kept with a connection. A nil field leaves it as it is.
type SocketAttach struct {
	ID         string    `json:"id"`
	Attachment Raw       `json:"attachment,omitempty"` // up to 16 KiB
	Tags       *[]string `json:"tags,omitempty"`       // up to 10
}

// SocketList asks for the connections that have a tag, or for all.
type SocketList struct {
	Tag string `json:"tag,omitempty"`
}

// Sockets answers it.
type Sockets struct {
	Sockets []Socket `json:"sockets"`
}

// Socket is a connection of a client with an instance, also as the input of onConnect, onSocketMessage and onClose.
type Socket struct {
	ID         string      `json:"id"`
	Tags       []string    `json:"tags,omitempty"`
	Attachment Raw         `json:"attachment,omitempty"`
	URL        string      `json:"url,omitempty"`    // that it was opened with; in onConnect
	Header     [][2]string `json:"header,omitempty"` // in onConnect; credentials are not in it
}

// SocketEvent is the input of onConnect, onSocketMessage and onClose.
type SocketEvent struct {
	Socket Socket  `json:"socket"`
	Text   *string `json:"text,omitempty"` // of a message
	Base64 []byte  `json:"base64,omitempty"`
	Code   int     `json:"code,omitempty"` // of a close
	Reason string  `json:"reason,omitempty"`
}

// ChildDelete names an instance that is the caller's own.
type ChildDelete struct {
	Agent string `json:"agent,omitempty"` // the caller's own when empty
	Key   string `json:"key"`
}
