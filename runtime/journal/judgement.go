package journal

import (
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// Judgement is how a call of tools was judged, as a Judged entry has it.
type Judgement struct {
	Calls  []JudgedCall `json:"calls"`            // one, unless it is a change set
	Change uint64       `json:"change,omitempty"` // number of the change set that it is a part of, whose approval allows it
}

// JudgedCall is one call of a tool.
type JudgedCall struct {
	Tool     string         `json:"tool"`
	Digest   agent.Digest   `json:"digest"` // of the tool's definition
	Args     agent.Digest   `json:"args"`   // of the bytes that are sent
	Decision agent.Decision `json:"decision"`
	Undo     bool           `json:"undo,omitempty"` // it takes back the call before it, or one that was made
}

// is reports whether two calls are the same: of the same tool, with the same arguments, to do something or to undo it.
func (c JudgedCall) is(d JudgedCall) bool {
	return c.Tool == d.Tool && c.Digest == d.Digest && c.Args == d.Args && c.Undo == d.Undo
}

// permit is a call of a change set that was approved. It may be made once.
type permit struct {
	change uint64
	call   JudgedCall
	of     int    // of an undo: where in the list the permit is of what it takes back
	by     uint64 // the call that has used it; 0 when there is none
}

// Permit returns the number of an approved change set of which call number n is a part that was not made yet, or 0. What it finds is used up by n. An
// undo is permitted when what it takes back was.
func (v *View) Permit(n uint64, c JudgedCall) uint64 {
	for i := range v.permits {
		p := &v.permits[i]
		if p.by == n || p.by == 0 && p.call.is(c) && (!c.Undo || v.permits[p.of].by != 0) {
			p.by = n
			return p.change
		}
	}
	return 0
}

// judged takes a Judged entry.
func (v *View) judged(e *Entry) {
	c := v.call(e)
	c.Judged, c.Asks = new(Judgement), e.Flag
	if e.Flag {
		c.Until = e.Until
	}
	if json.Unmarshal(e.Out, c.Judged) != nil || c.Judged.Change == 0 || len(c.Judged.Calls) != 1 {
		return
	}
	v.Permit(e.Call, c.Judged.Calls[0])
}

// answered takes a Verdict.
func (v *View) answered(e *Entry) {
	c := v.call(e)
	if c.Answered {
		return
	}
	c.Answered, c.Allowed, c.Answer = true, e.Flag, e.Out
	if c.Judged == nil || !c.Asks { // a question of its tool's server
		return
	}
	c.Until = e.Until // which is zero
	if e.Flag && len(c.Judged.Calls) > 0 && c.change {
		of := len(v.permits)
		for _, call := range c.Judged.Calls {
			if !call.Undo {
				of = len(v.permits)
			}
			v.permits = append(v.permits, permit{change: e.Call, call: call, of: of})
		}
	}
}
