// Package policy judges calls of tools by an app's policy: a short file of allow, ask and deny rules. It is pure: it reads no store, no clock
// and no network, so the same call under the same policy has the same answer, which can be explained and tested.
//
// Over all rules that match, deny wins over ask, and ask over allow; where none does, the tool's effect decides. Above all stands the floor, a
// short table of what nothing can allow. What cannot be read, such as an argument of another type than the rule's or a command that does not parse,
// makes no rule fail open: it never counts as allowed, and a deny takes it for what it denies. docs/design/policy.md has each case.
package policy

import (
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Call is a call to be judged.
type Call struct {
	Agent      string          // who calls
	Tool       agent.Tool      // Name, Effect, and Input where it is known; the rest is not looked at
	Args       json.RawMessage // an object; empty counts as {}
	Unattended bool            // nobody can be asked
}

// Policy is a parsed policy. It does not change, and is safe for concurrent use.
type Policy struct {
	file       string
	defaults   defaults
	unattended agent.Verdict // what becomes of ask when nobody can be asked
	timeout    time.Duration
	rules      []*rule
	budgets    []*Budget
	agents     []section
	hooks      []Hook
	commands   []commandArg
	writes     []*glob
	guarded    []*glob
	freed      []*glob // within what is guarded
	tests      []test
}

// defaults are the verdicts by effect; has tells which were written.
type defaults struct {
	verdict [5]agent.Verdict
	has     [5]bool
}

// section is what holds for the agents that a name matches.
type section struct {
	name     *glob
	text     string
	defaults defaults
	rules    []*rule
	budgets  []*Budget
}

// DefaultText is the policy of an app that has set none.
const DefaultText = `# What an agent may do without being asked. docs/guide/policy.md tells how to write one.
read: allow
modify: ask
modify_execute: ask
execute: ask

unattended: deny   # what becomes of ask when nobody can be asked
timeout: 1h        # a question that nobody answers is denied after it

rules: []
`

// Default is the policy of an app that has set none.
func Default() *Policy {
	p, err := Parse([]byte(DefaultText), "default")
	if err != nil {
		return &Policy{file: "default"} // denies all; the test of DefaultText keeps it from happening
	}
	return p
}

// Guard returns a policy like p under which nothing can reach the given folders, which are absolute paths: Skep's own. Their folder tools, in which servers
// of tools run, is left out.
func (p *Policy) Guard(paths ...string) *Policy {
	q := *p
	q.guarded = append([]*glob(nil), p.guarded...)
	q.freed = append([]*glob(nil), p.freed...)
	for _, path := range paths {
		q.guarded = append(q.guarded, guardGlobs(path)...)
		q.freed = append(q.freed, guardGlobs(path+"/tools")...)
	}
	return &q
}
