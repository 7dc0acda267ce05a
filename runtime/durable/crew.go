package durable

import (
	"sync"

	"github.com/skep-dev/skep/agent"
)

const (
	backlog      = 1024 // pieces of work that wait for one app's workers
	backlogBytes = 1 << 20
)

// crew does pieces of work beside each other. Apps that have work share the workers, so that one with a thousand slow alarms makes none
// of another's late; each has at least one. Nobody is interrupted: for a while there may be more workers than there should be.
type crew struct {
	workers int
	more    func() // called when there is room again for an app whose work was refused

	mu   sync.Mutex
	apps map[agent.App]*gang // that have work
	all  sync.WaitGroup
}

// gang is the work of one app.
type gang struct {
	working int
	waiting []job
	bytes   int // of waiting
	refused bool
}

type job struct {
	bytes int
	do    func()
}

func newCrew(workers int, more func()) *crew {
	return &crew{workers: workers, more: more, apps: map[agent.App]*gang{}}
}

// give has f called, now or when the app's turn has come. It refuses what the app has no room for.
func (c *crew) give(app agent.App, bytes int, f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.apps[app]
	if g == nil {
		g = &gang{}
		c.apps[app] = g
	}
	switch {
	case g.working < c.share():
		g.working++
		c.all.Go(func() { c.work(app, g, f) })
	case len(g.waiting) < backlog && g.bytes+bytes <= backlogBytes:
		g.waiting = append(g.waiting, job{bytes, f})
		g.bytes += bytes
	default:
		g.refused = true
		return false
	}
	return true
}

// again has f called after what waits of the app, without regard to bounds. Who calls it is a worker of the app.
func (c *crew) again(app agent.App, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.apps[app]
	g.waiting = append(g.waiting, job{0, f})
}

// share is how many workers an app may have. The caller holds mu.
func (c *crew) share() int { return max(1, c.workers/len(c.apps)) }

// work does f, and then what waits of the app.
func (c *crew) work(app agent.App, g *gang, f func()) {
	for f != nil {
		f()
		f = c.next(app, g)
	}
}

// next returns what a worker of the app does now, nil when it is not needed any more.
func (c *crew) next(app agent.App, g *gang) (f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(g.waiting) > 0 && g.working <= c.share() {
		f = g.waiting[0].do
		g.bytes -= g.waiting[0].bytes
		g.waiting = g.waiting[1:]
	} else if g.working--; g.working == 0 {
		delete(c.apps, app)
	}
	if g.refused && len(g.waiting) <= backlog/4 {
		g.refused = false
		c.more()
	}
	return f
}

// wait returns when all is done.
func (c *crew) wait() { c.all.Wait() }
