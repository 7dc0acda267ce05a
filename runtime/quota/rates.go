package quota

import (
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

var _ grant.Rates = (*Keeper)(nil)

// grantKey is a grant of an agent.
type grantKey struct {
	app          agent.App
	agent, grant string
}

// grantCounter counts uses of a grant that has a rate.
type grantCounter struct {
	minute window
	day    int64
}

func (k *Keeper) grant(key grantKey) *grantCounter {
	g := k.grants[key]
	if g == nil {
		g = &grantCounter{minute: window{span: time.Minute}}
		k.grants[key] = g
	}
	return g
}

// Take implements grant.Rates: it takes one use of what, which is a grant of the agent, or returns an Exhausted error. Uses are
// counted while the grant has a rate; a rate per day counts from the ledger, across restarts.
func (k *Keeper) Take(s grant.Subject, what string, r agent.Rate) error {
	if r.PerMinute == 0 && r.PerDay == 0 {
		return nil
	}
	now := k.now()
	key := grantKey{s.App, s.Agent, what}
	g, err := k.take(now, key, r)
	if err != nil || r.PerDay == 0 || k.note == nil {
		return err
	}
	err = k.note(agent.UsageEvent{
		Time: now, Kind: agent.UseGrant, App: s.App, Agent: s.Agent, Session: s.Session, Run: s.Run, Function: what, Outcome: agent.Succeeded,
	})
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.grants[key] == g { // else the day has ended
			g.day--
			g.minute.back()
		}
	}
	return err
}

func (k *Keeper) take(now time.Time, key grantKey, r agent.Rate) (*grantCounter, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	g, at := k.grant(key), now.Sub(k.base)
	if r.PerDay > 0 && g.day >= r.PerDay {
		return nil, over(k.midnight(now), "the grant of %.200s to agent %q is for %d uses a day, and it is used up until midnight UTC", key, r.PerDay)
	}
	if r.PerMinute > 0 && g.minute.count(at) >= r.PerMinute {
		return nil, over(g.minute.wait(at, r.PerMinute), "the grant of %.200s to agent %q is for %d uses a minute", key, r.PerMinute)
	}
	g.minute.add(at)
	g.day++
	return g, nil
}

func over(after time.Duration, format string, key grantKey, n int64) error {
	err := agent.AsError(agent.Exceeded(agent.LimitRate, format, key.grant, key.agent, n))
	err.After = after
	return err
}
