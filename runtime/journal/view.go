package journal

import (
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// Call is what is known of one call.
type Call struct {
	Name      string
	Sum       Sum
	Class     Class
	Text      string    // its brief
	Until     time.Time // when a wait is over at the latest
	Started   bool
	Known     bool // what it came to
	Delivered bool
	Result

	// Of a call of a tool: how it was judged, whether a person is asked, and what that person said.
	Judged   *Judgement
	Asks     bool
	Answered bool
	Allowed  bool
	Answer   []byte
	change   bool // it is a change set
}

// Waits reports whether the call waits for something that it has told.
func (c *Call) Waits() bool { return c.Started || c.Open() }

// Open reports whether a person is asked about the call and has not answered.
func (c *Call) Open() bool { return c.Asks && !c.Answered }

// progress reports whether the run has got on by what the call came to: it is what a sandbox did, or told. A life that plays the journal adds no such delivery,
// so that code which ends its process at one place gets on there once at most.
func (c *Call) progress() bool {
	return c.Err == nil && (c.Name == abi.CallSandboxNext || c.Class == Idempotent && strings.HasPrefix(c.Name, "sandbox."))
}

// Result is what a call came to. Bytes that are kept in a blob are not here.
type Result struct {
	Out  []byte
	Blob agent.Digest
	Err  *agent.Error
}

// Delivery is something that the code got. A Call of 0 is its first timer.
type Delivery struct {
	Call uint64
	Time time.Time
}

// Arrival is an event from outside.
type Arrival struct {
	Type, ID string
	Data     []byte
	Blob     agent.Digest
	By       uint64 // the call that got it; 0 when none has
}

// View is what a journal tells. It is built from entries, oldest first, by Add.
type View struct {
	Begun      bool
	Seed       [32]byte
	Began      time.Time
	Calls      map[uint64]*Call
	Deliveries []Delivery // since the newest snapshot, or all with Whole
	Snapshot   *Entry     // the newest
	Events     []Arrival
	Mark       Entry // how far events and lines are in the log
	Lives      int64
	Rested     bool     // the newest life gave up its cell by itself
	Crashes    []string // of the lives that ended otherwise, since one that did, the run got on in its sandbox, or a person said how to go on
	Terminate  bool
	Rejected   uint64 // calls up to this one are refused; 0 when nothing was refused yet
	Clock      time.Time
	Ended      bool
	Entries    int
	Bytes      int64
	Steps      []Entry
	Uses       map[string]int64 // of grants with a limit for the run
	permits    []permit

	// Whole keeps all results and deliveries, also those that a snapshot holds. It is set before the first Add.
	Whole bool
	// Now, when it is set, has results dropped that the code has got: whoever adds entries does so as they happen.
	Now bool
}

// NewView returns the view of an empty journal.
func NewView() *View { return &View{Calls: map[uint64]*Call{}, Uses: map[string]int64{}} }

func (v *View) call(e *Entry) *Call {
	c := v.Calls[e.Call]
	if c == nil {
		c = &Call{}
		v.Calls[e.Call] = c
	}
	if e.Name != "" {
		c.Name, c.Sum, c.change = e.Name, e.Sum, e.Name == abi.CallToolChange
	}
	if e.Class != UnknownClass {
		c.Class = e.Class
	}
	if e.Text != "" {
		c.Text = e.Text
	}
	return c
}

func (c *Call) came(e *Entry) { c.Known, c.Result = true, Result{Out: e.Out, Blob: e.Blob, Err: e.Err} }

// Add takes the next entry.
func (v *View) Add(e Entry) {
	v.count(&e)
	if !e.Time.IsZero() && e.Kind != Crash {
		v.Clock = later(v.Clock, e.Time)
	}
	switch e.Kind {
	case Begin:
		v.Begun, v.Seed, v.Began = true, e.Seed, e.Time
	case Life:
		v.Lives, v.Rested = v.Lives+1, false
	case Start:
		c := v.call(&e)
		c.Started = true
		if c.Until.IsZero() {
			c.Until = e.Until
		}
	case Done, Answered:
		v.call(&e).came(&e)
		if e.Flag { // a person has looked at it
			v.Crashes = nil
		}
	case Deliver:
		c := v.call(&e)
		if !c.Known {
			c.came(&e)
		}
		c.Delivered = true
		if c.progress() {
			v.Crashes = nil
		}
		if v.Now {
			c.Result, c.Text = Result{}, ""
			return
		}
		v.Deliveries = append(v.Deliveries, Delivery{e.Call, e.Time})
	case Timer:
		if !v.Now {
			v.Deliveries = append(v.Deliveries, Delivery{0, e.Time})
		}
	case Event:
		v.Events = append(v.Events, Arrival{Type: e.Name, ID: e.ID, Data: e.Out, Blob: e.Blob})
	case Take:
		if i := e.Count - 1; i >= 0 && i < int64(len(v.Events)) {
			v.Events[i].By = e.Call
		}
	case Snapshot:
		v.Snapshot, v.Rested, v.Crashes = &e, true, nil
		if !v.Whole {
			v.forget()
		}
	case Mark:
		v.Mark = e
	case Crash:
		v.Crashes = append(v.Crashes, e.Text)
	case Retry:
		c := v.call(&e)
		c.Started, v.Crashes = false, nil
	case Terminate:
		v.Terminate = true
	case Rejected:
		v.Rejected = max(v.Rejected, e.Call)
	case Step:
		v.Steps = append(v.Steps, e)
	case Judged:
		v.judged(&e)
	case Verdict:
		v.answered(&e)
	case Used:
		v.Uses[e.Name]++
	case End:
		v.Ended = true
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// forget drops what the newest snapshot holds.
func (v *View) forget() {
	for _, d := range v.Deliveries {
		delete(v.Calls, d.Call)
	}
	v.Deliveries = nil
	for n, c := range v.Calls {
		if c.Delivered || c.Known && n <= v.Snapshot.Call && c.answeredAtOnce() {
			delete(v.Calls, n)
		}
	}
}

func (c *Call) answeredAtOnce() bool {
	switch c.Name {
	case abi.CallSharedGet, abi.CallSharedSet, abi.CallEmit, abi.CallStepBegin, abi.CallStepEnd, abi.CallSelf:
		return true
	}
	return false
}

func (v *View) count(e *Entry) {
	v.Bytes += int64(e.Size())
	if e.Blob != "" {
		v.Bytes += e.Bytes
	}
	switch e.Kind {
	case Start, Done, Answered:
		if e.Name == abi.CallHTTPRead || e.Name == abi.CallHTTPWrite {
			return
		}
	case Deliver:
		if c := v.Calls[e.Call]; e.Name == abi.CallHTTPRead || e.Name == abi.CallHTTPWrite || e.Name == "" && c != nil && c.Name == abi.CallHTTPWrite {
			return
		}
	}
	v.Entries++
}

// Full returns the error of a run whose journal may not grow any more, or nil.
func (v *View) Full() error {
	if v.Entries <= MaxEntries && v.Bytes <= MaxBytes {
		return nil
	}
	return &agent.Error{
		Kind: agent.Exhausted, Limit: agent.LimitHostCalls,
		Msg:  "the run's journal is full: it holds up to 10000 entries and 32 MiB",
		Hint: "have the code start a new run with what it knows by then, and end",
	}
}

// Uncertain returns the number of the first call that may have been made or not, and that must not be made twice; 0 when there is
// none. under says which are still under way.
func (v *View) Uncertain(under func(uint64) bool) uint64 {
	first := uint64(0)
	for n, c := range v.Calls {
		if c.Started && c.Class == Once && !c.Known && (first == 0 || n < first) && !under(n) {
			first = n
		}
	}
	return first
}

// Find returns the index of the first event of a type that no call got, or -1.
func (v *View) Find(kind string) int {
	return slices.IndexFunc(v.Events, func(a Arrival) bool { return a.Type == kind && a.By == 0 })
}

// Has reports whether an event with that once-key came.
func (v *View) Has(id string) bool {
	return id != "" && slices.ContainsFunc(v.Events, func(a Arrival) bool { return a.ID == id })
}

// Until cuts a journal where a step begins: what it returns is the beginning of another run that has come as far as that. An empty name
// is the beginning of the run.
func Until(entries []Entry, step string) ([]Entry, bool) {
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.Kind == Step && !e.Flag && e.Name == step })
	if step == "" {
		at = 0
	}
	if at < 0 {
		return nil, false
	}
	var out []Entry
	for i, e := range entries {
		before := i < at && e.Call < entries[at].Call
		switch e.Kind {
		case Begin:
			if step != "" {
				out = append(out, e)
			}
		case Life, Crash, Terminate, Rejected, Retry, End, Event:
			if e.Kind == Event && i < at {
				out = append(out, e)
			}
		case Mark:
			if i < at && entries[at].Call > 0 {
				e.Call = min(e.Call, entries[at].Call-1)
				out = append(out, e)
			}
		default:
			if before {
				out = append(out, e)
			}
		}
	}
	return out, true
}
