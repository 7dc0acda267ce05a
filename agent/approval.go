package agent

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// ApprovalID names a question to a person: the run and the number of the call that waits, as RUN-CALL.
type ApprovalID string

// NewApprovalID returns the id of the question about a call of a run.
func NewApprovalID(run RunID, call uint64) ApprovalID {
	return ApprovalID(string(run) + "-" + strconv.FormatUint(call, 10))
}

// Split returns the run and the call's number, or an Invalid error.
func (id ApprovalID) Split() (run RunID, call uint64, err error) {
	name, number, ok := strings.Cut(string(id), "-")
	n, bad := strconv.ParseUint(number, 10, 64)
	if !ok || bad != nil || n == 0 || name == "" {
		return "", 0, Errorf(Invalid, "%s is no id of an approval, which is RUN-CALL", quote(string(id)))
	}
	return RunID(name), n, nil
}

// Approval is a question to a person that holds a run: about one call, about the calls of a change set together, or what a server
// of tools wants to know.
type Approval struct {
	ID      ApprovalID     `json:"id"`
	App     App            `json:"app"`
	Agent   string         `json:"agent"`
	Session SessionID      `json:"session"`
	Run     RunID          `json:"run"`
	Call    uint64         `json:"call"` // the call of the run that waits
	Title   string         `json:"title,omitempty"`
	Calls   []ApprovalCall `json:"calls,omitempty"`    // what would be done; one unless it is a change set, where each may be followed by its undo
	Asks    *Question      `json:"question,omitempty"` // in place of calls
	Created time.Time      `json:"created"`
	Expires time.Time      `json:"expires"` // nobody has answered by then: denied
}

// ApprovalCall is one call that is asked about.
type ApprovalCall struct {
	Tool       string          `json:"tool"`
	Digest     Digest          `json:"digest"`      // of the tool's definition
	Args       json.RawMessage `json:"args"`        // as they would be sent; a string that says so where they are longer than MaxShownArgs
	ArgsDigest Digest          `json:"args_digest"` // of the bytes that would be sent
	Decision   Decision        `json:"decision"`
	Undo       bool            `json:"undo,omitempty"` // it takes back the call before it, and is made only if a later one fails
}

// Position says which of the calls of an approval the one at index i is: its number, from 1, without those that take others back, and how
// many there are. That of an undo is the number of the call that it takes back.
func (a Approval) Position(i int) (n, of int) {
	for j, c := range a.Calls {
		if c.Undo {
			continue
		}
		if of++; j <= i {
			n++
		}
	}
	return n, of
}

// MaxShownArgs is how much of a call's arguments an approval holds, in bytes. Longer ones are shown by their beginning.
const MaxShownArgs = 16 << 10

// MaxAsks is how many questions of one run may be open at a time.
const MaxAsks = 64

// Question is what a server of tools asks a person for while it works (MCP elicitation).
type Question struct {
	Server  string          `json:"server"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"` // of the answer: a flat object
	URL     string          `json:"url,omitempty"`    // that the person is to open instead; for what may not pass through here, such as secrets
}

// ApprovalScope says what an answer covers.
type ApprovalScope uint8

const (
	ScopeOnce    ApprovalScope = iota // the calls that were asked about, as they stand
	ScopeRun                          // and whatever the same run asks of the same tools
	ScopePattern                      // and what matches a pattern, for so many calls and so long, by the same agent
)

var approvalScopeNames = [...]string{"once", "run", "pattern"}

func (s ApprovalScope) String() string               { return nameOf(approvalScopeNames[:], s) }
func (s ApprovalScope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *ApprovalScope) UnmarshalText(b []byte) error {
	return parseName(approvalScopeNames[:], b, s, "scope of an answer")
}

// ApprovalAnswer is a person's answer to one question, or to several of them at once.
type ApprovalAnswer struct {
	Allow   bool            `json:"allow"`
	Reason  string          `json:"reason,omitempty"` // that the code is told when it is refused
	Scope   ApprovalScope   `json:"scope,omitempty"`
	Pattern string          `json:"pattern,omitempty"` // of ScopePattern: as in a rule of the policy, "fs.write_file(path=/tmp/**)"
	Count   int             `json:"count,omitempty"`   // of ScopePattern: 1 to 1000
	For     time.Duration   `json:"for,omitempty"`     // of ScopePattern: up to a day; nanoseconds in JSON
	Content json.RawMessage `json:"content,omitempty"` // to a Question: the object it asks for
}

// ApprovalAnswered is the data of an EventApprovalAnswered.
type ApprovalAnswered struct {
	ApprovalAnswer
	ID  ApprovalID `json:"id"`
	By  string     `json:"by"` // token's id and name, "link", "timeout", or "cli" when the CLI that asked does not any more
	Due time.Time  `json:"due,omitzero"`
}

// Allowance is a standing answer: calls that match are allowed until it is used up or over.
type Allowance struct {
	App     App        `json:"app"`
	ID      string     `json:"id"`
	Agent   string     `json:"agent"`
	Run     RunID      `json:"run,omitempty"` // for this one only
	Pattern string     `json:"pattern"`
	Rule    string     `json:"rule,omitempty"`   // the rule of the policy that asked; then it holds for what that rule asks about
	Budget  string     `json:"budget,omitempty"` // the budget that the question was beyond; else it holds within budgets only
	Left    int        `json:"left,omitempty"`   // calls; 0 means any number
	Until   time.Time  `json:"until,omitzero"`   // zero for as long as the run lasts
	By      string     `json:"by"`               // who allowed it
	From    ApprovalID `json:"from,omitempty"`   // the question it answered
	Rev     int64      `json:"rev"`
	Created time.Time  `json:"created"`
}
