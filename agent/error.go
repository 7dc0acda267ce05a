package agent

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what a caller can do about an error. The set is closed; three tables map it to an HTTP status (api), an
// exit code (cmd/skep) and an ABI status (abi).
type Kind uint8

const (
	Internal        Kind = iota // a bug or a fault of ours; details go to the log, never to the caller
	Invalid                     // the request can never succeed as it stands
	Unauthenticated             // no token, or one that is not known
	Denied                      // known, but not granted
	NotFound                    // no such thing
	Exists                      // already there
	Conflict                    // wrong state, or lost a race: read again, then retry
	Exhausted                   // over a limit or a quota
	Unavailable                 // not now: try again later
	Failed                      // the agent's own code threw, trapped or exited
	Cancelled                   // the caller, or a person, stopped it
)

var kindNames = [...]string{
	"internal", "invalid", "unauthenticated", "denied", "not_found", "exists", "conflict", "exhausted", "unavailable",
	"failed", "cancelled",
}

// Kinds lists every kind, for the tests of the tables.
func Kinds() []Kind {
	ks := make([]Kind, len(kindNames))
	for i := range ks {
		ks[i] = Kind(i)
	}
	return ks
}

func (k Kind) String() string               { return nameOf(kindNames[:], k) }
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *Kind) UnmarshalText(b []byte) error {
	return parseName(kindNames[:], b, k, "error kind")
}

// Error is the one error type that crosses package borders.
type Error struct {
	Kind Kind
	Msg  string // safe to show to whoever made the request
	Err  error  // cause, for the log

	Hint  string        // what to do about it, in a sentence; may be empty
	After time.Duration // when trying again makes sense, for Exhausted and Unavailable; 0 means unknown
	Limit Limit         // which limit was hit, when Kind is Exhausted; else NoLimit
	Pos   Pos           // where in the author's source, when known
	Stack string        // the author's stack trace, one frame a line, when known
	Given Kind          // that the author's code gave what it threw, when Kind is Failed; Internal when it gave none
}

// Pos is a place in an author's source. Line and Column count from 1; a zero Line means unknown.
type Pos struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	return e.Msg + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error whose message may be shown to the caller.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Msg: fmt.Sprintf(format, args...)}
}

// Wrap gives err a kind and a message to show; err itself goes only to the log.
func Wrap(kind Kind, err error, msg string) error {
	return &Error{Kind: kind, Msg: msg, Err: err}
}

// Exceeded returns the error for a limit that was hit.
func Exceeded(limit Limit, format string, args ...any) error {
	return &Error{Kind: Exhausted, Limit: limit, Msg: fmt.Sprintf(format, args...)}
}

// AsError returns the outermost Error in err, or an Internal one that wraps err. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Internal, Msg: "internal error", Err: err}
}

// KindOf reports the kind of the outermost Error in err, or Internal.
func KindOf(err error) Kind {
	if e := AsError(err); e != nil {
		return e.Kind
	}
	return Internal
}
