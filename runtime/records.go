package runtime

import (
	"context"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// maxRecords bounds the cache; the records dropped are read again.
const maxRecords = 10_000

// record is an agent with the code it runs now. Both are shared and must not be changed.
type record struct {
	agent  *agent.Agent
	plugin *agent.Plugin
}

type recordKey struct {
	app  agent.App
	name string
}

// records remembers agents and their plugins, so that a call reads no disk. Whoever changes one through this runtime
// forgets it here afterwards. A record that was read before a change is not kept after it: reading notes the generation,
// keeping compares it.
type records struct {
	mu         sync.RWMutex
	generation uint64
	byName     map[recordKey]record
}

// resolve returns the agent and its plugin: the newest version, unless the agent pins one.
func (c *records) resolve(ctx context.Context, st *store.Store, app agent.App, name string) (record, error) {
	key := recordKey{app, name}
	c.mu.RLock()
	rec, ok := c.byName[key]
	generation := c.generation
	c.mu.RUnlock()
	if ok {
		return rec, nil
	}
	a, err := st.Agent(ctx, app, name)
	if err != nil {
		return record{}, err
	}
	p, err := st.Plugin(ctx, app, a.Plugin)
	if err != nil {
		return record{}, err
	}
	rec = record{&a, &p}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == generation {
		if c.byName == nil {
			c.byName = make(map[recordKey]record)
		}
		if len(c.byName) >= maxRecords {
			for some := range c.byName {
				delete(c.byName, some)
				break
			}
		}
		c.byName[key] = rec
	}
	return rec, nil
}

func (c *records) forgetAgents(app agent.App, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for _, name := range names {
		delete(c.byName, recordKey{app, name})
	}
}

func (c *records) forgetPlugin(app agent.App, plugin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for key, rec := range c.byName {
		name, _, _ := strings.Cut(rec.agent.Plugin, "@")
		if key.app == app && name == plugin {
			delete(c.byName, key)
		}
	}
}
