package tools

import (
	"sync"

	"github.com/skep-dev/skep/agent"
)

// changes tells who waits for it that an app's tools may have changed.
type changes struct {
	mu sync.Mutex
	of map[agent.App]chan struct{}
}

// Changed returns a channel that is closed when the app's tools may be others than they were when it was asked for: a server has said so, or its
// record was changed, or Touch was called. Whoever goes on waiting asks for another channel, and then looks.
func (c *Catalogue) Changed(app agent.App) <-chan struct{} {
	c.changes.mu.Lock()
	defer c.changes.mu.Unlock()
	if c.changes.of == nil {
		c.changes.of = map[agent.App]chan struct{}{}
	}
	ch := c.changes.of[app]
	if ch == nil {
		ch = make(chan struct{})
		c.changes.of[app] = ch
	}
	return ch
}

// Touch tells who waits that something else has changed that an app's list is made of, such as an agent's code or its grants.
func (c *Catalogue) Touch(app agent.App) { c.changes.tell(app) }

func (c *changes) tell(app agent.App) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.of[app]; ch != nil {
		close(ch)
		delete(c.of, app)
	}
}
