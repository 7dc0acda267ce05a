package host

import (
	"context"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/script"
)

// Calls answers what a guest asks of its host: name is one of package abi's call names, in and out are that call's bytes.
// It is called from many goroutines, one for each call under way. An error's kind and message reach the guest, its cause
// does not. ctx ends when the cell is stopped; not with a cell that was suspended, but with the context of its call.
type Calls func(ctx context.Context, name string, in []byte) (out []byte, err error)

// Call is one call into a fresh cell.
type Call struct {
	Plugin   agent.Digest
	Tenant   agent.App // cells are never reused across tenants
	Agent    string    // whose call it is, by which its app's share of what is short is shared; may be empty
	Weight   int       // of the app against others, see fair.Who; 0 means 1
	Function string    // an export, or a method of a script's default export
	Input    agent.Payload
	Config   map[string]string
	Limits   agent.Limits // zero fields mean the defaults
	Calls    Calls        // nil refuses every call
	Lines    Calls        // takes console output in place of Calls; what it returns is not looked at. nil means Calls does
	Vars     bool         // an Extism module's variables are kept in the agent's state; else they last as long as the call
	Depth    int          // how many cells wait for this call, each for the next; 0 for a call from outside

	// Time and randomness as the guest sees them; nil means the real ones. A journal puts its own here to replay a run.
	Now    func() time.Time
	Random io.Reader

	// Waiting lets a script's call be suspended, or go on after that; nil means that it stays in its cell. Other code is
	// refused with it, for it waits inside a synchronous call.
	Waiting *Waiting
}

func (c *Call) who() Who { return Who{App: c.Tenant, Agent: c.Agent, Weight: c.Weight} }

// Result is what a call returned and what it cost. The usage is filled in even when the call failed.
type Result struct {
	Output    agent.Payload
	Usage     agent.Usage
	Suspended *Suspension // in place of the output, when the call was suspended
}

// Request and Response carry an HTTP exchange with a script's fetch handler.
type Request struct {
	Method string
	URL    string
	Header [][2]string
	Body   []byte
}

type Response struct {
	Status int
	Header [][2]string
	Body   []byte
}

// Prepared is what preparing code found out.
type Prepared struct {
	Exports []string // functions a caller may name, sorted
	Fetch   bool     // whether a fetch handler is there
}

// Bundled is a script as one text of JavaScript.
type Bundled struct {
	JS []byte
	at *script.SourceMap
}

// NewBundled returns a bundle with its source map (ECMA-426), in JSON.
func NewBundled(js, sourceMap []byte) Bundled { return Bundled{js, script.NewSourceMap(sourceMap)} }

// At finds the place in the author's files that a line and a column of JS, both from 1, are of.
func (b Bundled) At(line, column int) (agent.Pos, bool) { return b.at.Find(line, column) }

// Map returns the source map.
func (b Bundled) Map() []byte { return b.at.Raw() }

// Progress tells how far a long preparation has come. Done and Total count bytes or steps of Stage.
type Progress struct {
	Stage       string
	Done, Total int64
}
