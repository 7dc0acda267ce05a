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
}

// is reports whether two calls are the same: of the same tool, with the same arguments.
func (c JudgedCall) is(d JudgedCall) bool {
	return c.Tool == d.Tool && c.Digest == d.Digest && c.Args == d.Args
}

// permit is a call of a change set that was approved. It may be made once.
type permit struct {
	change uint64
	call   JudgedCall
	used   bool
}

// Permitted returns the number of an approved change set that has this call and whose part of it was not made yet, or 0.
func (v *View) Permitted(c JudgedCall) uint64 {
	for _, p := range v.permits {
		if !p.used && p.call.is(c) {
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
	for i := range v.permits {
		if p := &v.permits[i]; !p.used && p.change == c.Judged.Change && p.call.is(c.Judged.Calls[0]) {
			p.used = true
			return
		}
	}
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
		for _, call := range c.Judged.Calls {
			v.permits = append(v.permits, permit{change: e.Call, call: call})
		}
	}
}
