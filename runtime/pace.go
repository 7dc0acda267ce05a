package runtime

import (
	"context"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// What calls to the host cost the server, about, with what the store does for them.
const (
	askCost   = 20 * time.Microsecond  // of most
	lineCost  = 25 * time.Microsecond  // of a line of console output, which is written down later
	eventCost = 50 * time.Microsecond  // of an event
	callCost  = 250 * time.Microsecond // of a call of another agent, which has a cell of its own

	keptCost  = 100 * time.Nanosecond // of a byte of a line or an event, beside that
	takenCost = 5 * time.Nanosecond   // of one of another call's input
)

const (
	paceBurst = 25 * time.Millisecond // of the server's time that an app may use at once
	paceRest  = 5 * time.Millisecond  // that who has to wait waits at least
	paceSpan  = time.Second           // for which an app counts as there
)

// pacer holds back apps that ask their host for more than it has time for beside others' calls. The cells that ask take turns at the
// processors; what the server does for them has no place there, and the store's part comes later. So an app pays for each call, while other
// apps are there too: those that ask for more than they may in the long run wait until it is theirs. Who is alone never waits.
type pacer struct {
	most float64 // processors that all who are held back may use

	mu      sync.Mutex
	since   time.Time // when now began
	now     map[agent.App]*paced
	earlier map[agent.App]*paced // those of the span before, too
	heavy   float64              // weights of those that had to wait in this span or the one before
}

// paced is what an app may use.
type paced struct {
	weight float64
	left   time.Duration // less than nothing when it has to wait
	at     time.Time     // when left was reckoned
	waits  int           // spans for which it still counts as heavy
}

func newPacer() *pacer {
	return &pacer{most: float64(goruntime.GOMAXPROCS(0)) / 8, now: map[agent.App]*paced{}, earlier: map[agent.App]*paced{}}
}

// seen returns an app's account, and notes that the app is there. The caller holds the lock.
func (p *pacer) seen(app agent.App, weight int, now time.Time) *paced {
	if now.Sub(p.since) > paceSpan {
		p.turn(now)
	}
	a := p.now[app]
	if a == nil {
		if a = p.earlier[app]; a == nil {
			a = &paced{left: paceBurst, at: now}
		}
		p.now[app] = a
	}
	if a.waits == 0 { // else it counts with the weight that it had
		a.weight = float64(max(1, weight))
	}
	return a
}

// turn begins a new span. The caller holds the lock.
func (p *pacer) turn(now time.Time) {
	if p.earlier = p.now; now.Sub(p.since) > 2*paceSpan {
		p.earlier = map[agent.App]*paced{}
	}
	p.now, p.since, p.heavy = map[agent.App]*paced{}, now, 0
	for _, a := range p.earlier {
		if a.waits = max(0, a.waits-1); a.waits > 0 {
			p.heavy += a.weight
		}
	}
}

// alone tells whether no other app is there. The caller holds the lock.
func (p *pacer) alone(app agent.App) bool {
	_, was := p.earlier[app]
	return len(p.now) == 1 && (len(p.earlier) == 0 || was && len(p.earlier) == 1)
}

// share is how many processors an app may use of the server. The caller holds the lock.
func (p *pacer) share(a *paced) float64 {
	all := p.heavy
	if a.waits == 0 {
		all += a.weight
	}
	return p.most * a.weight / all
}

// here notes that an app works, so that it is not forgotten while others ask.
func (p *pacer) here(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen(j.App, j.weight, time.Now())
}

// charge has an app pay, and returns for how long it has to wait for that.
func (p *pacer) charge(app agent.App, weight int, cost time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.seen(app, weight, now)
	if p.alone(app) {
		a.left, a.at = paceBurst, now
		return 0
	}
	share := p.share(a)
	a.left = min(paceBurst, a.left+time.Duration(share*float64(now.Sub(a.at)))) - cost
	a.at = now
	if a.left >= 0 {
		return 0
	}
	if a.waits == 0 {
		p.heavy += a.weight
	}
	a.waits = 2
	return max(paceRest, time.Duration(float64(-a.left)/share))
}

// price returns what a call to the host costs.
func price(name string, in []byte) time.Duration {
	bytes := time.Duration(len(in))
	switch name {
	case abi.CallLog:
		return lineCost + bytes*keptCost
	case abi.CallEmit:
		return eventCost + bytes*keptCost
	case abi.CallAgent:
		return callCost + bytes*takenCost
	}
	return askCost + bytes*takenCost
}

// calls are the calls of a job, which waits for them when its app has asked for too much.
func (p *pacer) calls(j *job, calls host.Calls) host.Calls {
	p.here(j)
	return func(ctx context.Context, name string, in []byte) ([]byte, error) {
		if wait := p.charge(j.App, j.weight, price(name, in), time.Now()); wait > 0 {
			t := time.NewTimer(wait)
			defer t.Stop()
			select {
			case <-t.C:
			case <-ctx.Done():
				return nil, agent.Wrap(agent.Cancelled, context.Cause(ctx), "the call to the host was given up while it waited for other apps' calls")
			}
		}
		return calls(ctx, name, in)
	}
}
