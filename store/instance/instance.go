// Package instance is the seam between the runtime and whatever keeps durable instances: one fenced, atomic commit for all that
// a turn of an instance changed, and the reads that go with it. Package store implements it in the data directory;
// instancetest holds a second implementation, in memory, and the tests that every one passes. docs/design/instances.md tells
// why it is as it is, and how a database of many machines would map it.
package instance

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// MaxKey is the most bytes of an instance's key.
const MaxKey = 128

// ID names an instance: one addressable copy of an agent. It is comparable.
type ID struct {
	App   agent.App     `json:"app"`
	Agent agent.AgentID `json:"agent"`
	Key   string        `json:"key"`
}

// Check returns an Invalid error unless the id can name an instance.
func (id ID) Check() error {
	switch {
	case !isPart(string(id.App), 63) || !isPart(string(id.Agent), 64):
		return agent.Errorf(agent.Invalid, "an instance is named by an app, an agent's id and a key, not by %.80q, %.80q", id.App, id.Agent)
	}
	return CheckKey(id.Key)
}

// CheckKey returns an Invalid error unless key can name an instance.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey || !utf8.ValidString(key) {
		return agent.Errorf(agent.Invalid, "instance key %.80q must be 1 to %d bytes of UTF-8", key, MaxKey)
	}
	return nil
}

// isPart reports whether s is 1 to most printable ASCII characters without a space or a slash.
func isPart(s string, most int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '/' {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// Fence is what an owner presents with each write: which owner it is, and how many commits it knows of. Epochs and heads of one
// id only rise, also when the instance is deleted and made anew.
type Fence struct {
	Epoch int64 `json:"epoch"`
	Head  int64 `json:"head"`
}

// Info is what is known of an instance as a whole.
type Info struct {
	ID       ID              `json:"id"`
	Fence    Fence           `json:"fence"`
	Parent   ID              `json:"parent,omitzero"`
	Created  time.Time       `json:"created"`
	Updated  time.Time       `json:"updated"` // newest commit or Acquire
	State    agent.StateSize `json:"state"`
	LogBytes int64           `json:"log_bytes"` // of its own logs and journals, as they are stored
	Alarms   int64           `json:"alarms"`    // that are set
	Outbox   int64           `json:"outbox"`    // messages that are not yet received
	Children int64           `json:"children"`
	Snapshot Snapshot        `json:"snapshot,omitzero"`
}

// Owner is the part of a Store that writes. Nothing is promised across instances; each method is linearizable within one. Errors
// are agent.Errors that wrap this package's sentinels where there is one. After an error other than ErrUnknown nothing was
// changed.
type Owner interface {
	// Acquire makes the caller the owner: it raises the epoch, so that no commit of an earlier owner is accepted any more, and makes
	// the instance when it is not there. parent is of use then only: it is zero, or names an instance that lists the new one among
	// its children.
	Acquire(ctx context.Context, id, parent ID) (Info, error)
	// Commit makes everything in b durable, or nothing, and moves the head by one. It is accepted at the exact fence only; another
	// is ErrFenced. The newest batch, by its ID, may be sent again at the fence before it or the one it led to: the answer is the
	// same and nothing is done twice. After ErrUnknown the owner must Resolve before it does anything else.
	Commit(ctx context.Context, id ID, f Fence, b *Batch) (Result, error)
	// Resolve tells what became of the batch that was sent at f with an unknown outcome, and from which fence to go on. A batch that
	// it calls NotLanded never lands. Resolve may be repeated.
	Resolve(ctx context.Context, id ID, f Fence, batch BatchID) (Outcome, Fence, error)
	// Trim removes the entries of one of the instance's own logs or journals that are numbered below before. The fence must be exact and stays
	// as it is. A Trim that fails midway has removed the oldest ones.
	Trim(ctx context.Context, id ID, f Fence, log Log, before int64) error
	// Delete removes the instance and all that is its own; logs of sessions stay. Once it has begun nobody sees the instance any more and no
	// commit is accepted; the rest may take many parts, which an Acquire of the same id finishes when Delete was stopped. An
	// instance with children is a Conflict.
	Delete(ctx context.Context, id ID, f Fence) error
}

// Reader is the part of a Store that reads one instance; an instance that is not there is ErrGone. It needs no fence: what it
// returns was committed, and may be old by the time it is used.
type Reader interface {
	Info(ctx context.Context, id ID) (Info, error)
	// Load returns the entries of those keys that are there, of one moment. An entry's version is the head that its commit led to.
	Load(ctx context.Context, id ID, keys ...string) ([]agent.StateEntry, error)
	// Scan returns one page of the state in the order of keys' bytes; next is the After of the page that follows, "" at the end.
	Scan(ctx context.Context, id ID, r agent.StateRange) (page []agent.StateEntry, next string, err error)
	// ReadLog returns events numbered above after, oldest first, fewer than limit when they are large. Trimmed ones are skipped;
	// any other gap is ErrCorrupt. A log that was never written is empty.
	ReadLog(ctx context.Context, id ID, log Log, after int64, limit int) ([]agent.Event, error)
	// ReadJournal is ReadLog for a run's journal.
	ReadJournal(ctx context.Context, id ID, run agent.RunID, after int64, limit int) ([]Entry, error)
	// Journals lists the runs that have a journal here, those behind after, in the order of their ids: of ULIDs the oldest first. A journal
	// stays until Trim has removed it to its end, also when its run has ended.
	Journals(ctx context.Context, id ID, after agent.RunID, limit int) ([]agent.RunID, error)
	// Alarms lists the instance's alarms in the order of names, those behind after.
	Alarms(ctx context.Context, id ID, after string, limit int) ([]Alarm, error)
	// Alarm returns the alarm of that name, and whether it is set.
	Alarm(ctx context.Context, id ID, name string) (Alarm, bool, error)
	// Children lists the instances that it registered, those behind after in the order of agent and key.
	Children(ctx context.Context, id ID, after ID, limit int) ([]ID, error)
	// Received returns the number of the newest message from another instance whose mark was committed; 0 for none.
	Received(ctx context.Context, id, from ID) (int64, error)
}

// Store keeps instances. It is safe for concurrent use.
type Store interface {
	Owner
	Reader
	// List returns one page of an agent's instances in the order of keys' bytes; next is the After of the page that follows.
	List(ctx context.Context, app agent.App, id agent.AgentID, p agent.Page) (list []Info, next string, err error)
	// Due returns alarms of all instances that are due at now, the earliest first. It changes nothing that it returns: an alarm
	// stays until a commit clears or moves it.
	Due(ctx context.Context, now time.Time, after Cursor, limit int) (DuePage, error)
	// Outgoing returns messages of all instances that are not yet received, those of one pair in their order. They stay until a
	// commit of their sender says that they were received.
	Outgoing(ctx context.Context, after Cursor, limit int) ([]Message, Cursor, error)
}

// Cursor says where a page over all instances ended. It is opaque; "" is the beginning. What is set behind a cursor's back is
// found by the next walk from the beginning.
type Cursor string

// DuePage is one page of alarms.
type DuePage struct {
	Alarms []Due
	Next   Cursor    // the After of the page that follows; "" when none is left
	Last   Cursor    // where the page ended, also when none is left: the After of a walk that goes on when more are due
	Wake   time.Time // when the first alarm after now is due, zero when there is none or Next is set
}

// Due is an alarm and whose it is.
type Due struct {
	ID ID
	Alarm
}

// MaxPage is the most that one page of any list holds; a limit of 0 asks for it.
const MaxPage = 1000

// CheckLimit returns the limit of a page.
func CheckLimit(limit int) (int, error) {
	switch {
	case limit == 0:
		return MaxPage, nil
	case limit < 0 || limit > MaxPage:
		return 0, agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and %d", limit, MaxPage)
	}
	return limit, nil
}
