package agent

import (
	"cmp"
	"math"
	"time"
)

// UsageKind says what a usage event is of.
type UsageKind uint8

const (
	UnknownUse UsageKind = iota
	UseCall              // a stateless call, by a client or another agent
	UseFetch             // an HTTP request to a fetch handler
	UseRun
	UseCode     // code that ran once
	UseLoad     // code was compiled, initialised and made an image
	UseGrant    // one use of a grant with a limit per day; Function names the grant
	UseTurn     // a call of an instance's method, or a socket's event
	UseAlarm    // an alarm of an instance
	UseModel    // one call to a provider of models; Function names the model
	UseOutbound // an outbound request of a sandbox, or a part of a long one; Function names the host
)

var usageNames = [...]string{"unknown", "call", "fetch", "run", "code", "load", "grant", "turn", "alarm", "model", "outbound"}

func (k UsageKind) String() string               { return nameOf(usageNames[:], k) }
func (k UsageKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *UsageKind) UnmarshalText(b []byte) error {
	return parseName(usageNames[:], b, k, "kind of usage")
}

// Counts reports whether it counts for quotas, which are about what cells and sandboxes of agents do.
func (k UsageKind) Counts() bool {
	return k >= UseCall && k <= UseCode || k == UseTurn || k == UseAlarm || k == UseOutbound
}

// Outcome is how what a usage event tells of ended: well, or with an error of some kind.
type Outcome uint8

const (
	UnknownOutcome Outcome = iota
	Succeeded
	firstFailure // Internal; the other kinds follow
)

var outcomeNames = append([]string{"unknown", "ok"}, kindNames[:]...)

func (o Outcome) String() string               { return nameOf(outcomeNames, o) }
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
func (o *Outcome) UnmarshalText(b []byte) error {
	return parseName(outcomeNames, b, o, "outcome")
}

// OutcomeOf returns the outcome that err is; nil is Succeeded.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Succeeded
	}
	return firstFailure + Outcome(KindOf(err))
}

// Cost is what usage events count. Costs add up, but for Memory, of which the sum has the greatest.
type Cost struct {
	CPU       time.Duration `json:"cpu"`        // running guest code; nanoseconds in JSON
	Wall      time.Duration `json:"wall"`       // nanoseconds in JSON
	Memory    int64         `json:"memory"`     // bytes at the peak
	In        int64         `json:"in"`         // bytes of input
	Out       int64         `json:"out"`        // bytes of output
	Sent      int64         `json:"sent"`       // bytes of outbound requests
	Received  int64         `json:"received"`   // bytes of the answers to them
	HostCalls int64         `json:"host_calls"` // calls to the host
	Fuel      int64         `json:"fuel"`       // instructions
}

// Add adds d to c.
func (c *Cost) Add(d Cost) {
	c.CPU = sum(c.CPU, d.CPU)
	c.Wall = sum(c.Wall, d.Wall)
	c.Memory = max(c.Memory, d.Memory)
	c.In = sum(c.In, d.In)
	c.Out = sum(c.Out, d.Out)
	c.Sent = sum(c.Sent, d.Sent)
	c.Received = sum(c.Received, d.Received)
	c.HostCalls = sum(c.HostCalls, d.HostCalls)
	c.Fuel = sum(c.Fuel, d.Fuel)
}

// sum adds up figures, none below 0, and stays at the greatest: whoever claims too much must not come out below what was used.
func sum[T ~int64](a T, more ...T) T {
	for _, b := range more {
		if b > math.MaxInt64-a {
			return math.MaxInt64
		}
		a += b
	}
	return a
}

// Bytes is what counts for a quota of bytes.
func (c Cost) Bytes() int64 { return sum(c.In, c.Out, c.Sent, c.Received) }

// CostOf returns what a cell's usage costs. Outbound requests are counted elsewhere. Figures below 0, which come only from a
// process that a guest has broken into, count as 0.
func CostOf(u Usage) Cost {
	return Cost{
		CPU: max(u.CPU, 0), Wall: max(u.Wall, 0), Memory: max(u.Memory, 0), In: max(u.In, 0), Out: max(u.Out, 0),
		HostCalls: max(u.HostCalls, 0), Fuel: max(u.Fuel, 0),
	}
}

// UsageEvent is one entry of the usage ledger.
type UsageEvent struct {
	Time     time.Time `json:"time"` // when it ended
	Kind     UsageKind `json:"kind"`
	App      App       `json:"app"`
	Agent    string    `json:"agent,omitempty"` // empty for code that ran once, and for loads that no agent asked for
	Session  SessionID `json:"session,omitempty"`
	Run      RunID     `json:"run,omitempty"`
	Function string    `json:"function,omitempty"`
	Outcome  Outcome   `json:"outcome"`
	Model    *ModelUse `json:"model,omitempty"` // with UseModel
	Cost
}

// NoAgent stands in a usage row where an agent's name would, for what no agent did.
const NoAgent = "-"

// UsageRow sums usage events. Fields that it does not tell apart are empty.
type UsageRow struct {
	Day   string    `json:"day,omitempty"` // in UTC, as 2006-01-02
	App   App       `json:"app"`
	Agent string    `json:"agent,omitempty"` // or NoAgent
	Kind  UsageKind `json:"kind,omitzero"`

	// Of calls of models alone.
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	Route    string `json:"route,omitempty"`
	User     string `json:"user,omitempty"`
	Key      string `json:"key,omitempty"`

	Events int64     `json:"events"`
	Failed int64     `json:"failed"` // of the events, those that did not succeed
	Models *ModelSum `json:"models,omitempty"`
	Cost
}

// ModelSum sums calls of models.
type ModelSum struct {
	Calls    int64       `json:"calls"`
	Cached   int64       `json:"cached,omitempty"` // of Calls, those that were answered without asking a provider
	Tokens   ModelTokens `json:"tokens"`           // of those that were not
	Micro    *int64      `json:"micro"`            // cost of calls whose price is known, in millionths of a dollar; null when there is none
	Unpriced int64       `json:"unpriced"`         // calls whose price is not known, which Micro is without
}

// Add adds the calls of s to m.
func (m *ModelSum) Add(s ModelSum) {
	m.Calls += s.Calls
	m.Cached += s.Cached
	m.Tokens.Add(s.Tokens)
	m.Unpriced += s.Unpriced
	if s.Micro != nil {
		micro := max(*s.Micro, 0)
		if m.Micro != nil {
			micro = sum(micro, *m.Micro)
		}
		m.Micro = &micro
	}
}

// Add adds the events of s to r.
func (r *UsageRow) Add(s UsageRow) {
	r.Events += s.Events
	r.Failed += s.Failed
	r.Cost.Add(s.Cost)
	if s.Models != nil {
		both := *s.Models
		if r.Models != nil {
			both.Add(*r.Models)
		}
		r.Models = &both
	}
}

// Row returns the row that has only e.
func (e UsageEvent) Row() UsageRow {
	r := UsageRow{Day: UsageDay(e.Time), App: e.App, Agent: cmp.Or(e.Agent, NoAgent), Kind: e.Kind, Events: 1, Cost: e.Cost}
	if e.Outcome != Succeeded {
		r.Failed = 1
	}
	return r
}

// ModelRow returns the row of calls of models that has only e, if e is such a call.
func (e UsageEvent) ModelRow() (r UsageRow, ok bool) {
	if e.Kind != UseModel || e.Model == nil {
		return r, false
	}
	u := e.Model
	r = e.Row()
	r.Provider, r.Model, r.Route, r.User, r.Key = u.Provider, u.Model, u.Route, u.User, u.Key
	m := ModelSum{Unpriced: 1}
	if u.Micro != nil {
		m.Unpriced = 0
	}
	used := u.Tokens
	if u.Source == FromCache {
		m.Cached, used = 1, ModelTokens{}
	}
	m.Add(ModelSum{Calls: 1, Tokens: used, Micro: u.Micro})
	r.Models = &m
	return r, true
}

// UsageDay returns the UTC day of t, as usage rows write it.
func UsageDay(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// QuotaUse is how much of a quota is used now. Held is what calls under way may still use.
type QuotaUse struct {
	App       App           `json:"app"`
	Agent     string        `json:"agent,omitempty"` // empty for the quota of the app
	Quota     Quota         `json:"quota"`           // a zero field means no bound
	Cells     int64         `json:"cells"`
	Calls     int64         `json:"calls"`    // begun within the last second
	CPU       time.Duration `json:"cpu"`      // today, UTC; nanoseconds in JSON
	CPUHeld   time.Duration `json:"cpu_held"` // nanoseconds in JSON
	Bytes     int64         `json:"bytes"`    // today, UTC
	BytesHeld int64         `json:"bytes_held"`
}
