package policy

import (
	"time"

	"github.com/skep-dev/skep/agent"
)

// When says on which side of a call a hook runs.
type When uint8

const (
	Before When = iota + 1 // it may deny, raise to ask, or annotate; never allow
	After                  // it may annotate, or withhold the result
)

func (w When) String() string {
	switch w {
	case Before:
		return "before"
	case After:
		return "after"
	}
	return "unknown"
}

// DefaultHookTimeout is how long a hook may take, MaxHookTimeout the most that a policy can give it.
const (
	DefaultHookTimeout = 5 * time.Second
	MaxHookTimeout     = time.Minute
)

// Hook is a program or a function of an agent that is told of calls. One that fails, or takes too long, denies.
type Hook struct {
	When     When
	Text     string   // as it stands in the policy: its name in decisions
	From     string   // where it stands: "policy:12"
	Agent    string   // whose Function is called,
	Function string   //
	Command  []string // or the program that is run, with its arguments; no shell is used
	Timeout  time.Duration

	on Pattern
}

// Hooks returns the hooks that a call sets off, in the order of the file. One whose pattern might match, though that cannot be told, is among them.
func (p *Policy) Hooks(w When, c Call) []Hook {
	if len(p.hooks) == 0 {
		return nil
	}
	s := p.scene(c)
	var out []Hook
	for _, h := range p.hooks {
		if h.When == w && (s.bad != nil || h.on.eval(s, agent.Ask) != no) {
			out = append(out, h)
		}
	}
	return out
}

// Commands tells whether the policy has hooks that are programs, which run as the server does: only who owns the server may set those.
func (p *Policy) Commands() bool {
	for _, h := range p.hooks {
		if len(h.Command) > 0 {
			return true
		}
	}
	return false
}
