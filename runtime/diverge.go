package runtime

import (
	"fmt"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/journal"
)

// anotherInput is said of calls that differ where their briefs do not.
const anotherInput = ", with another input"

// describeNow says what the code asks for in place of a call that the journal has.
func describeNow(was *journal.Call, name string, in []byte) string {
	now := journal.Describe(name, journal.Brief(name, in))
	if was != nil && now == journal.Describe(was.Name, was.Text) {
		now += anotherInput
	}
	return now
}

// differenceOf says how code differs that does not take what a journal says it got next. pending is what the code waits for.
func differenceOf(v *journal.View, d host.Delivery, pending host.Pending) *agent.ReplayDifference {
	if d.ID == 0 {
		return &agent.ReplayDifference{Was: "a timer was due", Now: describePending(pending)}
	}
	was := v.Calls[d.ID]
	out := &agent.ReplayDifference{Call: d.ID, Was: d.Name, Now: describePending(pending)}
	if was != nil {
		out.Was = journal.Describe(was.Name, was.Text)
	}
	for _, c := range pending.Calls {
		if c.ID == d.ID {
			out.Now = describeNow(was, c.Name, c.Input)
		}
	}
	return out
}

// describePending says what code waits for that has not made a call.
func describePending(p host.Pending) string {
	const most = 3
	var parts []string
	for i, c := range p.Calls {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(p.Calls)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("call %d, %s", c.ID, journal.Describe(c.Name, journal.Brief(c.Name, c.Input))))
	}
	if !p.Alarm.IsZero() {
		parts = append(parts, "a timer that is due at "+p.Alarm.UTC().Format(time.RFC3339))
	}
	if len(parts) == 0 {
		return "the code has ended"
	}
	return "the code waits for " + strings.Join(parts, "; ")
}

// errDiverged ends a run whose code does not do again what its journal says.
func errDiverged(d *agent.ReplayDifference) error {
	what := fmt.Sprintf("%s there, and now %s", d.Was, d.Now)
	if d.Call > 0 {
		what = fmt.Sprintf("call %d was %s there, and is now: %s", d.Call, d.Was, d.Now)
	}
	return &agent.Error{
		Kind: agent.Conflict,
		Msg:  "the run diverges from its journal: " + what,
		Hint: "go on with the code, and the version of Skep, that the run began with",
	}
}

// diverges ends a run whose code does not take what its journal says it got.
func (x *execution) diverges(d host.Delivery, pending host.Pending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed == nil {
		x.failed = errDiverged(differenceOf(x.view, d, pending))
	}
}
