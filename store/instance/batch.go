package instance

import (
	"crypto/rand"
	"time"

	"github.com/skep-dev/skep/agent"
)

// The bounds of a batch. They are the same for every implementation.
const (
	MaxOps       = 500       // parts of a batch, all kinds together
	MaxBytes     = 1 << 20   // see Batch.Size
	MaxData      = 128 << 10 // of one entry, alarm or message
	MaxInline    = 96 << 10  // what an event's data, a run's input or output count for at most: a larger one is kept in a blob
	MaxAsks      = 48 << 10  // what the questions of a run count for at most: more are kept in a blob
	MaxAllAsks   = 8 << 20   // bytes of the questions of a run, as JSON
	MaxBlobs     = 16        // named by one entry or snapshot
	MaxSnapshot  = 4 << 10   // bytes of a snapshot's data
	MaxAlarmName = 128
)

// BatchID is a nonce by which a batch is known again. Its owner chooses it; it is not zero.
type BatchID [16]byte

// NewBatchID returns a random one.
func NewBatchID() (id BatchID) {
	rand.Read(id[:])
	return id
}

// Batch is all that one turn of an instance changes. Within each list the order counts.
type Batch struct {
	ID      BatchID
	State   []agent.StateEdit // as store.EditState: Ifs are held against the state before the batch
	Bounds  agent.StateGrant  // how large the state may be; a zero field means the most that can be granted
	Events  []Append
	Journal []Entry // numbered by the store, for each run from 1
	Alarms  []AlarmEdit
	Outbox  []Send
	Sent    []Mark // messages of its own that were received: each is the oldest of its pair
	Inbox   []Mark // messages of others that this turn consumed
	// Children are registered before they are acquired, and removed once they are deleted.
	Children []Child
	Runs     []RunEdit // records of runs of the instance's sessions
	Snapshot *Snapshot // nil leaves it as it is
}

// RunEdit makes a run, or changes one that stands as From says; another is a Conflict. The run's session must be with the instance. Of a
// run that is there its ids, FirstSeq, app, agent, plugin, function, input and Created stay as they were.
//
// Sessions and runs are made before the events of the batch are appended, so a batch may make a session, its run and their first events.
// A new run's FirstSeq is the number of the first event in the batch that is its own; when there is none it stays as it is given. An
// unknown status of a new run is Queued, and a zero Created is filled in.
//
// A run has up to agent.MaxAsks questions, which are MaxAllAsks bytes as JSON. One that ends has none: they are left out.
type RunEdit struct {
	From    agent.RunStatus // UnknownStatus makes the run; one that is there then is Exists
	Run     agent.Run       // as a whole, as it is to be; an empty Agent of a new one means the instance's
	Session *agent.Session  // made before the run, for Run.Session and the instance's key; nil when it is there. It counts as a part
}

// Log names a log of an instance: the log of one of its sessions, a log of its own, or the journal of a run. It is comparable.
type Log struct {
	Session agent.SessionID
	Name    string
	Run     agent.RunID
}

// SessionLog is the log of a session with the instance, which others append to as well. It is never trimmed.
func SessionLog(id agent.SessionID) Log { return Log{Session: id} }

// OwnLog is a log that only commits of the instance append to.
func OwnLog(name string) Log { return Log{Name: name} }

// Journal is what the entries of a run go to.
func Journal(run agent.RunID) Log { return Log{Run: run} }

func (l Log) String() string {
	switch {
	case l.Session != "":
		return "log of session " + string(l.Session)
	case l.Run != "":
		return "journal of run " + string(l.Run)
	}
	return "log " + l.Name
}

// Check returns an Invalid error unless l names one log.
func (l Log) Check() error {
	switch {
	case l.Session != "" && l.Name == "" && l.Run == "" && isPart(string(l.Session), 64),
		l.Run != "" && l.Name == "" && l.Session == "" && isPart(string(l.Run), 64):
		return nil
	case l.Name != "" && l.Session == "" && l.Run == "":
		return agent.CheckName("log", l.Name)
	}
	return agent.Errorf(agent.Invalid, "a log is named by a session, a name or a run, and by one of them: %.80q, %.80q, %.80q", l.Session, l.Name, l.Run)
}

// Append adds an event to a log. Its Seq is given by the store, and its Time when it is zero.
type Append struct {
	Log   Log
	Event agent.Event
}

// Entry is one entry of a run's journal. The store does not read Data.
type Entry struct {
	Run   agent.RunID    `json:"-"`
	Seq   int64          `json:"-"`               // given by the store
	Blobs []agent.Digest `json:"blobs,omitempty"` // what Data speaks of and backups must hold
	Data  []byte         `json:"-"`
}

// Alarm is when an instance wants to be woken. An instance has one of each name.
type Alarm struct {
	Name string
	At   time.Time // to the millisecond; a fraction is rounded up, so no alarm is early
	Gen  int64     // the head that the commit which set it led to: tells it from an earlier one of the same name
	Data []byte
}

// AlarmEdit sets the alarm of that name, in place of one that is there, or clears it. A clear that names a Gen leaves an alarm
// of another one as it is.
type AlarmEdit struct {
	Clear bool
	Alarm // its Gen is of use to a clear only
}

// Send is a message to another instance of the same app. It is delivered at least once and in order; marks make that once.
type Send struct {
	To   ID
	Data []byte
}

// Message is a message as it waits. Numbers of a pair are given by the store and rise by one.
type Message struct {
	From, To ID
	Seq      int64
	Oldest   bool // the sender holds no older one for the same receiver
	Data     []byte
}

// Mark names a message by the other end of the pair, From for an Inbox and To for Sent, and its number. A mark of an Inbox is
// accepted once, and in order: it must be the one after the newest marked, or else Oldest as the message was. That lets a
// sender or a receiver that was deleted and made anew go on.
type Mark struct {
	Peer   ID
	Seq    int64
	Oldest bool
}

// Child registers an instance as one of its own, or removes it.
type Child struct {
	Remove bool
	ID     ID
}

// Snapshot says from what a sleeping instance is restored. The store does not read Data. The zero one is none.
type Snapshot struct {
	Blobs []agent.Digest `json:"blobs,omitempty"` // what Data speaks of and backups must hold; they are stored before
	Data  []byte         `json:"data,omitempty"`
}

// Result is what a commit gave. Numbers stand in the order of the batch's parts.
type Result struct {
	Fence   Fence // for the next commit
	Events  []int64
	Journal []int64
	Outbox  []int64
	Counts  Counts // as the commit left them
}

// Counts is what Info counts of an instance's parts.
type Counts struct{ LogBytes, Alarms, Outbox, Children int64 }

// Outcome is what became of a batch.
type Outcome uint8

const (
	UnknownOutcome Outcome = iota
	Landed
	NotLanded
)

func (o Outcome) String() string {
	switch o {
	case Landed:
		return "landed"
	case NotLanded:
		return "not landed"
	}
	return "unknown"
}

// Ops counts the parts of a batch.
func (b *Batch) Ops() int {
	n := len(b.State) + len(b.Events) + len(b.Journal) + len(b.Alarms) + len(b.Outbox) + len(b.Sent) + len(b.Inbox) + len(b.Children) + len(b.Runs)
	if b.Snapshot != nil {
		n++
	}
	for _, e := range b.Runs {
		if e.Session != nil {
			n++
		}
	}
	return n
}

// recordSize is what the record of a run or a session counts for beside its texts: names, times and numbers.
const recordSize = 1 << 10

// Size is what a batch counts for: the bytes of its data and names. A state key counts three times, as stores may have to
// escape it; so do the texts of runs. Data of an event and of a run counts as MaxInline at most.
func (b *Batch) Size() int {
	n := 0
	for _, e := range b.State {
		n += 3*len(e.Key) + len(e.Value.Type) + len(e.Value.Body)
	}
	for _, e := range b.Events {
		n += len(e.Event.Name) + min(len(e.Event.Data), MaxInline)
	}
	for _, e := range b.Journal {
		n += len(e.Data)
	}
	for _, a := range b.Alarms {
		n += len(a.Name) + len(a.Data)
	}
	for _, m := range b.Outbox {
		n += len(m.Data)
	}
	for _, e := range b.Runs {
		n += e.size()
	}
	if b.Snapshot != nil {
		n += len(b.Snapshot.Data)
	}
	return n
}

func (e RunEdit) size() int {
	r, text := e.Run, len(e.Run.Input.Type)
	n := recordSize + min(len(r.Input.Body), MaxInline) // also of a run that is there, as its record may hold it
	if r.Output != nil {
		n += min(len(r.Output.Body), MaxInline)
		text += len(r.Output.Type)
	}
	if r.Error != nil {
		text += len(r.Error.Msg) + len(r.Error.Hint) + len(r.Error.Stack) + len(r.Error.Pos.File)
	}
	if r.Wait != nil {
		text += len(r.Wait.For) + len(r.Wait.Name)
	}
	n += min(AsksSize(r.Asks), MaxAsks)
	if e.Session != nil {
		n += recordSize
		text += len(e.Session.Title)
	}
	return n + 3*(text+len(r.Function)+len(r.Trace))
}

// AsksSize is about what questions are as JSON, in bytes.
func AsksSize(asks []agent.Approval) (n int) {
	for _, a := range asks {
		n += 512 + len(a.Title)
		for _, c := range a.Calls {
			n += 512 + len(c.Tool) + len(c.Args) + len(c.Decision.Rule) + len(c.Decision.Reason)
			for _, note := range c.Decision.Notes {
				n += len(note)
			}
		}
		if q := a.Asks; q != nil {
			n += len(q.Server) + len(q.Message) + len(q.Schema) + len(q.URL)
		}
	}
	return n
}
