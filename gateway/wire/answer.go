package wire

import (
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Answer is what a model said, whole.
type Answer struct {
	ID       string
	Model    string
	Created  time.Time
	Parts    []Part
	Stop     Stop
	StopText string // the stop sequence that was met
	Usage    Usage
	Tier     string
}

// Stop is why a model stopped.
type Stop uint8

const (
	StopUnknown Stop = iota
	StopEnd
	StopSequence
	StopLength // of the output or of the context
	StopTool   // it waits for results
	StopFilter // refused
	StopPause  // it wants to be asked to go on
	StopBroken // it made a call that is none; may be asked again, once
)

// Usage is what an answer used, in inclusive figures whose parts do not overlap, and as the provider told it.
type Usage struct {
	Tokens agent.ModelTokens
	Known  bool // the provider told it; an explicit 0 is known
	Raw    json.RawMessage
}

// EventKind says what an Event is.
type EventKind uint8

const (
	Begin      EventKind = iota // ID, Model, Created, Usage as far as known
	PartBegin                   // Index, Part: its kind, and of a CallPart the id and name, both known, and Thought if it is known already (PartOpaque tells it too)
	PartDelta                   // Index, Text: its next text, or of a CallPart the next piece of its arguments
	PartOpaque                  // Index, Part.Thought: opaque data of a part that is open
	PartEnd                     // Index
	Used                        // Usage, the whole of it until now: it replaces what was told before
	End                         // Stop, StopText, Usage; nothing follows but the protocol's terminator
	Broken                      // Fault; nothing follows
	Ping                        // the stream is alive
)

// Event is a step of a streamed answer. Parts are numbered from 0 without gaps, in the order in which they begin; several may be open at once. A
// decoder begins a call only when its id and name are known, and ends each part once.
type Event struct {
	Kind     EventKind
	ID       string
	Model    string
	Created  time.Time
	Index    int
	Part     Part
	Text     string
	Usage    Usage
	Stop     Stop
	StopText string
	Tier     string
	Fault    *Fault
}

// Content reports whether e carries something that a model said: after the first such event a request cannot be made again elsewhere.
func (e Event) Content() bool {
	return e.Kind == PartDelta && e.Text != "" || e.Kind == PartOpaque || e.Kind == PartBegin && e.Part.Kind == CallPart
}
