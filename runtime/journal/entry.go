// Package journal is what a run asked of its host and what it got back, in order: the form of its entries, and what can be told from
// them. It stores nothing and runs nothing. docs/design/runs.md has the rules.
package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/wire"
	"github.com/skep-dev/skep/store/instance"
)

// Kind says what an entry tells.
type Kind uint8

const (
	UnknownKind Kind = iota
	Begin            // the run begins: Seed, Time, Digest of its code
	Life             // a cell begins: Count is its number
	Start            // a call leaves, or a wait begins: Call, Name, Sum, Class, Text is its brief; Until when a wait is over at the latest
	Done             // what a call came to, before the code has got it: Call, Name, Sum, Out or Err; Class and Text unless a Start told them; Flag says that a person said so
	Deliver          // the code gets it: Call, Time; and what a Done has unless one told it
	Timer            // the code's first timer is due: Time
	Answered         // a call that was answered at once: as Done
	Event            // an event from outside came: Name is its type, ID its once-key, Out its data
	Take             // a waiting call got an event: Call, Count is which, from 1
	Snapshot         // the cell was given up: Digest of its image, Blob of that; Out, or Blobs; Lines, Bytes, Call, Usage
	Mark             // the events up to call number Call and Lines console lines are in the log; Count events and Bytes of lines in all
	Crash            // a life ended with its process or over a limit of memory: Count is its number, Text what happened
	Retry            // a call whose effect is not known is made again: Call
	Terminate        // somebody wants the run to end where it is
	Rejected         // what the code waited for then, up to Call, was refused
	Step             // a step begins, or ends: Call, Name, Count is the attempt; Flag says that it ends
	End              // the run has ended: Text is its status
	Judged           // a call of a tool was judged: Call, Name, Sum, Text is its brief, Class what it is when it is made, Out how; Flag says that a person is asked, until Until; Blob has the arguments then if they are too long for the question, a line for each call
	Verdict          // a person has answered, or nobody in time: Call, Flag allows it, Out is the answer
	Used             // a grant with a limit for the run was used: Name is the grant
	kinds
)

var kindNames = [kinds]string{
	"unknown", "begin", "life", "start", "done", "deliver", "timer", "answered", "event", "take", "snapshot", "commit", "crash", "retry",
	"terminate", "rejected", "step", "end", "judged", "verdict", "used",
}

func (k Kind) String() string {
	if k >= kinds {
		return kindNames[0]
	}
	return kindNames[k]
}

// Entry is one entry. Which fields are of use is said at its kind.
type Entry struct {
	Kind  Kind
	Class Class
	Call  uint64
	Name  string
	Sum   Sum
	Time  time.Time
	Until time.Time // to the millisecond
	Out   []byte    // an empty one is not nil
	Blob  agent.Digest
	Err   *agent.Error // without its cause
	ID    string
	Image agent.Digest // of a snapshot; Begin has its code here
	Seed  [32]byte
	Lines int64
	Count int64
	Bytes int64
	Text  string
	Flag  bool
	Usage agent.Usage

	// ImageBlob is where the image of a snapshot is.
	ImageBlob agent.Digest
}

// Sum names what was asked. The zero one stands for what is not compared.
type Sum [sha256.Size]byte

// Bounds of the journal of one run.
const (
	MaxEntries = 10_000   // without those of http.read and http.write, which count by their bytes
	MaxBytes   = 32 << 20 // as the entries are stored, and of results in blobs
	MaxInline  = 96 << 10 // of a result; a larger one is a blob

	maxPack = 112 << 10
	version = 1
)

// The fields of an entry, as bits of a mask that says which follow.
const (
	hasClass = 1 << iota
	hasCall
	hasName
	hasSum
	hasTime
	hasUntil
	hasOut
	hasBlob
	hasErr
	hasID
	hasImage
	hasSeed
	hasLines
	hasCount
	hasBytes
	hasText
	isFlag
	hasUsage
	hasImageBlob
	allFields = 1<<iota - 1
)

// Append appends an entry's bytes: its kind, a mask of the fields that it has, and these in the order of Entry's bits. Numbers are
// varints, texts and bytes come after their length.
func (e *Entry) Append(b []byte) []byte {
	mask := uint64(0)
	set := func(bit uint64, there bool) {
		if there {
			mask |= bit
		}
	}
	set(hasClass, e.Class != UnknownClass)
	set(hasCall, e.Call != 0)
	set(hasName, e.Name != "")
	set(hasSum, e.Sum != Sum{})
	set(hasTime, !e.Time.IsZero())
	set(hasUntil, !e.Until.IsZero())
	set(hasOut, e.Out != nil)
	set(hasBlob, e.Blob != "")
	set(hasErr, e.Err != nil)
	set(hasID, e.ID != "")
	set(hasImage, e.Image != "")
	set(hasSeed, e.Seed != [32]byte{})
	set(hasLines, e.Lines != 0)
	set(hasCount, e.Count != 0)
	set(hasBytes, e.Bytes != 0)
	set(hasText, e.Text != "")
	set(isFlag, e.Flag)
	set(hasUsage, e.Usage != agent.Usage{})
	set(hasImageBlob, e.ImageBlob != "")

	b = append(b, byte(e.Kind))
	b = binary.AppendUvarint(b, mask)
	has := func(bit uint64) bool { return mask&bit != 0 }
	text := func(bit uint64, s string) {
		if has(bit) {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	if has(hasClass) {
		b = append(b, byte(e.Class))
	}
	if has(hasCall) {
		b = binary.AppendUvarint(b, e.Call)
	}
	text(hasName, e.Name)
	if has(hasSum) {
		b = append(b, e.Sum[:]...)
	}
	if has(hasTime) {
		b = binary.AppendVarint(b, e.Time.UnixNano())
	}
	if has(hasUntil) {
		b = binary.AppendVarint(b, e.Until.UnixMilli())
	}
	text(hasOut, string(e.Out))
	text(hasBlob, string(e.Blob))
	if has(hasErr) {
		b = append(b, byte(e.Err.Kind), byte(e.Err.Limit))
		b = append(binary.AppendUvarint(b, uint64(len(e.Err.Msg))), e.Err.Msg...)
		b = append(binary.AppendUvarint(b, uint64(len(e.Err.Hint))), e.Err.Hint...)
	}
	text(hasID, e.ID)
	text(hasImage, string(e.Image))
	if has(hasSeed) {
		b = append(b, e.Seed[:]...)
	}
	for _, n := range []struct {
		bit uint64
		n   int64
	}{{hasLines, e.Lines}, {hasCount, e.Count}, {hasBytes, e.Bytes}} {
		if has(n.bit) {
			b = binary.AppendVarint(b, n.n)
		}
	}
	text(hasText, e.Text)
	if has(hasUsage) {
		u := e.Usage
		for _, n := range []int64{int64(u.CPU), int64(u.Wall), u.Fuel, u.Memory, u.HostCalls, u.In, u.Out, u.Log} {
			b = binary.AppendVarint(b, n)
		}
	}
	text(hasImageBlob, string(e.ImageBlob))
	return b
}

func read(r *wire.Reader) (e Entry) {
	if len(r.B) == 0 || r.B[0] == 0 || Kind(r.B[0]) >= kinds {
		r.Fail()
		return e
	}
	e.Kind = Kind(r.B[0])
	r.B = r.B[1:]
	mask := r.Number(allFields)
	has := func(bit uint64) bool { return mask&bit != 0 && !r.Bad }
	one := func() byte {
		if len(r.B) == 0 {
			r.Fail()
			return 0
		}
		c := r.B[0]
		r.B = r.B[1:]
		return c
	}
	fixed := func(to []byte) {
		if len(r.B) < len(to) {
			r.Fail()
			return
		}
		r.B = r.B[copy(to, r.B):]
	}
	text := func(bit uint64) string {
		if !has(bit) {
			return ""
		}
		return string(r.Bytes())
	}
	number := func(bit uint64) int64 {
		if !has(bit) {
			return 0
		}
		return r.Int()
	}
	if has(hasClass) {
		if e.Class = Class(one()); e.Class >= classes {
			r.Fail()
		}
	}
	if has(hasCall) {
		e.Call = r.Uint()
	}
	e.Name = text(hasName)
	if has(hasSum) {
		fixed(e.Sum[:])
	}
	if has(hasTime) {
		e.Time = time.Unix(0, r.Int()).UTC()
	}
	if has(hasUntil) {
		e.Until = time.UnixMilli(r.Int()).UTC()
	}
	if has(hasOut) {
		if e.Out = r.Bytes(); e.Out == nil {
			e.Out = []byte{}
		}
	}
	e.Blob = agent.Digest(text(hasBlob))
	if has(hasErr) {
		e.Err = &agent.Error{Kind: agent.Kind(one()), Limit: agent.Limit(one())}
		if e.Err.Kind > agent.Cancelled || e.Err.Limit > agent.MaxLimit {
			r.Fail()
		}
		e.Err.Msg, e.Err.Hint = string(r.Bytes()), string(r.Bytes())
	}
	e.ID = text(hasID)
	e.Image = agent.Digest(text(hasImage))
	if has(hasSeed) {
		fixed(e.Seed[:])
	}
	e.Lines, e.Count, e.Bytes = number(hasLines), number(hasCount), number(hasBytes)
	e.Text = text(hasText)
	e.Flag = has(isFlag)
	if has(hasUsage) {
		e.Usage = agent.Usage{
			CPU: time.Duration(r.Int()), Wall: time.Duration(r.Int()), Fuel: r.Int(), Memory: r.Int(), HostCalls: r.Int(), In: r.Int(), Out: r.Int(), Log: r.Int(),
		}
	}
	e.ImageBlob = agent.Digest(text(hasImageBlob))
	return e
}

// Size is about what an entry takes.
func (e *Entry) Size() int {
	n := 64 + len(e.Name) + len(e.Out) + len(e.ID) + len(e.Text)
	if e.Err != nil {
		n += len(e.Err.Msg) + len(e.Err.Hint)
	}
	return n
}

// Pack puts entries into as few of a store's entries as hold them.
func Pack(run agent.RunID, entries []Entry) []instance.Entry {
	var out []instance.Entry
	for i := range entries {
		e := &entries[i]
		blobs := e.blobs()
		last := len(out) - 1
		if last < 0 || len(out[last].Data)+e.Size()+64 > maxPack || len(out[last].Blobs)+len(blobs) > instance.MaxBlobs {
			out = append(out, instance.Entry{Run: run, Data: []byte{version}})
			last++
		}
		out[last].Data = e.Append(out[last].Data)
		out[last].Blobs = append(out[last].Blobs, blobs...)
	}
	return out
}

func (e *Entry) blobs() (out []agent.Digest) {
	for _, d := range []agent.Digest{e.Blob, e.ImageBlob} {
		if d != "" {
			out = append(out, d)
		}
	}
	return out
}

// Unpack reads one of a store's entries. The parts share its bytes.
func Unpack(b []byte) ([]Entry, error) {
	switch {
	case len(b) == 0:
		return nil, agent.Errorf(agent.Internal, "an entry of the journal is empty")
	case b[0] != version:
		return nil, agent.Errorf(agent.Conflict, "the journal has form %d, and this version of Skep reads form %d", b[0], version)
	}
	r := wire.Reader{B: b[1:]}
	var out []Entry
	for len(r.B) > 0 {
		e := read(&r)
		if r.Bad {
			return nil, agent.Errorf(agent.Internal, "an entry of the journal cannot be read")
		}
		out = append(out, e)
	}
	return out, nil
}
