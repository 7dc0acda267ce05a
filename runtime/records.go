package runtime

import (
	"context"
	"strings"
	"sync"
	"weak"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// maxRecords bounds the cache of agents, and that of plugins; the records dropped are read again.
const maxRecords = 10_000

// record is an agent with the code it runs now. What it points to is shared and must not be changed.
type record struct {
	agent  *agent.Agent
	plugin *agent.Plugin
	live   *liveAgent
	weight int         // of the app
	quota  agent.Quota // of the app
}

type recordKey struct {
	app  agent.App
	name string
}

// records remembers agents, plugins and apps, so that a call reads no disk. Whoever changes one through this runtime says so here
// afterwards.
//
// Each agent that is in the cache or that a cell works for has one liveAgent. It is what its cells judge by, so it must be the only
// one: agents holds those in the cache, living finds those that only cells still hold.
type records struct {
	changing stripes // held over the commit that changes an agent and what is said of it here, so that both have one order

	mu      sync.RWMutex
	agents  map[recordKey]*liveAgent
	living  map[recordKey]weak.Pointer[liveAgent]
	sweepAt int                         // how many living there may be before those that are gone are swept out
	plugins map[recordKey]*agent.Plugin // by app and reference: a name, name@version or a digest
	pushes  uint64                      // a plugin that was read before a push is not kept after it
	apps    map[agent.App]agent.AppInfo
	edits   uint64                // the same for apps
	names   map[logAddress]string // of agents by their ids; one that is gone may be there, and its name may be another's
}

// resolve returns the agent and its plugin: the newest version, unless the agent pins one.
func (c *records) resolve(ctx context.Context, st *store.Store, app agent.App, name string) (record, error) {
	live, a, err := c.agent(ctx, st, recordKey{app, name})
	if err != nil {
		return record{}, err
	}
	p := noPlugin
	if a.Plugin != "" {
		if p, err = c.plugin(ctx, st, recordKey{app, a.Plugin}); err != nil {
			return record{}, err
		}
	}
	info, err := c.app(ctx, st, app)
	if err != nil {
		return record{}, err
	}
	return record{agent: a, plugin: p, live: live, weight: info.Weight, quota: info.Quota}, nil
}

func (c *records) agent(ctx context.Context, st *store.Store, key recordKey) (*liveAgent, *agent.Agent, error) {
	for {
		c.mu.RLock()
		live := c.agents[key]
		c.mu.RUnlock()
		if live == nil {
			live = c.revive(key)
		}
		if a := live.now.Load(); a != nil && a != deleted {
			return live, a, nil
		}
		a, err := st.Agent(ctx, key.app, key.name)
		if err != nil {
			c.drop(key, live)
			return nil, nil, err
		}
		live.now.CompareAndSwap(nil, &a) // else somebody changed it meanwhile, and said how
		if now := live.now.Load(); now != deleted {
			return live, now, nil
		}
		c.drop(key, live) // what was read may be another agent of the same name
	}
}

// revive puts an agent's one liveAgent into the cache, and makes it when there is none.
func (c *records) revive(key recordKey) *liveAgent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if live := c.agents[key]; live != nil {
		return live
	}
	live := c.living[key].Value()
	if live == nil || live.now.Load() == deleted {
		live = c.adopt(key)
	}
	if c.agents == nil {
		c.agents = make(map[recordKey]*liveAgent)
	}
	makeRoom(c.agents)
	c.agents[key] = live
	return live
}

// drop forgets a liveAgent, unless another has taken its place.
func (c *records) drop(key recordKey, live *liveAgent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agents[key] == live {
		delete(c.agents, key)
	}
	if c.living[key].Value() == live {
		delete(c.living, key)
	}
}

func (c *records) plugin(ctx context.Context, st *store.Store, key recordKey) (*agent.Plugin, error) {
	c.mu.RLock()
	p, pushes := c.plugins[key], c.pushes
	c.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	read, err := st.Plugin(ctx, key.app, key.name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pushes == pushes {
		if c.plugins == nil {
			c.plugins = make(map[recordKey]*agent.Plugin)
		}
		makeRoom(c.plugins)
		c.plugins[key] = &read
	}
	return &read, nil
}

// app returns what is kept of an app.
func (c *records) app(ctx context.Context, st *store.Store, name agent.App) (agent.AppInfo, error) {
	c.mu.RLock()
	info, found := c.apps[name]
	edits := c.edits
	c.mu.RUnlock()
	if found {
		return info, nil
	}
	info, err := st.App(ctx, name)
	if err != nil {
		return agent.AppInfo{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.edits == edits {
		if c.apps == nil {
			c.apps = make(map[agent.App]agent.AppInfo)
		}
		makeRoom(c.apps)
		c.apps[name] = info
	}
	return info, nil
}

// nameOf returns the name that an agent has, or had, "" when it is not known.
func (c *records) nameOf(app agent.App, id agent.AgentID) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.names[logAddress{app, id}]
}

func (c *records) named(app agent.App, id agent.AgentID, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = make(map[logAddress]string)
	}
	makeRoom(c.names)
	c.names[logAddress{app, id}] = name
}

// makeRoom lets go of one record for one that comes.
func makeRoom[K comparable, V any](m map[K]V) {
	if len(m) < maxRecords {
		return
	}
	for some := range m {
		delete(m, some)
		return
	}
}

// changed says that an agent was changed. Its cells see it at once. The caller holds changing.
func (c *records) changed(a agent.Agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if live := c.living[recordKey{a.App, a.Name}].Value(); live != nil {
		live.now.Store(&a)
	}
}

// gone says that agents were deleted: their cells have no grants any more. The caller holds changing.
func (c *records) gone(app agent.App, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		key := recordKey{app, name}
		if live := c.living[key].Value(); live != nil {
			live.now.Store(deleted)
		}
		delete(c.agents, key)
		delete(c.living, key)
	}
}

// pushed says that a plugin has a new version. What names a version or a digest means the same as before.
func (c *records) pushed(app agent.App, name string) {
	name, _, _ = strings.Cut(name, "@")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushes++
	delete(c.plugins, recordKey{app, name})
}

// edited says that an app was made, changed or deleted.
func (c *records) edited(app agent.App) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edits++
	delete(c.apps, app)
}
