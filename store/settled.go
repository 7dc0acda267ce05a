package store

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
)

// changes counts commits that changed what is asked for with each request of a model and seldom changes, so that it need not be read again. It is
// counted after the commit can be read, and before its makers hear of it. So what was read after a count was taken is good for as long as the count
// stays the same, and whoever was told of a change never sees what was before.
type changes struct {
	models atomic.Int64 // apps, and providers, routes, limits, guardrails and settings of models
	keys   atomic.Int64 // virtual keys
}

var modelHeads = []string{
	prefixDocHead + string(Providers) + "/", prefixDocHead + string(ModelRoutes) + "/", prefixDocHead + string(ModelLimits) + "/",
	prefixDocHead + string(Guardrails) + "/", prefixDocHead + string(modelSettings) + "/", prefixRec + string(apps) + "/",
}

var keyHeads = []string{prefixModelKey, prefixDocHead + string(modelKeys) + "/"}

// note takes note of the keys that a commit wrote.
func (c *changes) note(order []key) {
	models, keys := false, false
	for _, k := range order {
		if k == "" || k[0] != 'd' && k[0] != 'r' && k[0] != 'm' {
			continue
		}
		models = models || hasAnyPrefix(k, modelHeads)
		keys = keys || hasAnyPrefix(k, keyHeads)
	}
	if models {
		c.models.Add(1)
	}
	if keys {
		c.keys.Add(1)
	}
}

func hasAnyPrefix(k key, list []string) bool {
	for _, p := range list {
		if strings.HasPrefix(string(k), p) {
			return true
		}
	}
	return false
}

// ModelsVersion is a number that changes with each commit that changes an app, or a provider, route, limit, guardrail or setting of models of any app. What was read after it
// was asked for is good for as long as it stays the same. It means nothing to another process.
func (s *Store) ModelsVersion() int64 { return s.commit.changes.models.Load() }

// maxKnownKeys is how many virtual keys are kept in memory.
const maxKnownKeys = 10_000

// knownKeys are virtual keys by the hash of their value, as they were read at a count of changes.
type knownKeys struct {
	mu      sync.RWMutex
	version int64
	by      map[[32]byte]agent.ModelKey
}

// keysVersion changes with each commit that changes an app or a virtual key.
func (s *Store) keysVersion() int64 {
	return s.commit.changes.models.Load() + s.commit.changes.keys.Load()
}

func (n *knownKeys) get(version int64, hash [32]byte) (agent.ModelKey, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.version != version {
		return agent.ModelKey{}, false
	}
	k, ok := n.by[hash]
	return k, ok
}

// put keeps a key that was read after version was taken. One of a run is not kept: it dies with the run, of which nobody counts the commits.
func (n *knownKeys) put(version int64, hash [32]byte, k agent.ModelKey) {
	if k.Run != "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.version > version {
		return
	}
	if n.version < version || n.by == nil || len(n.by) >= maxKnownKeys {
		n.version, n.by = version, map[[32]byte]agent.ModelKey{}
	}
	n.by[hash] = k
}

// maxKnownLogging is how many apps' settings are kept in memory.
const maxKnownLogging = 4096

// knownLogging is what apps keep of calls to models, as it was read at a count of changes.
type knownLogging struct {
	mu      sync.Mutex
	version int64
	by      map[agent.App]agent.ModelLogging
}

func (n *knownLogging) get(version int64, app agent.App) (agent.ModelLogging, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, ok := n.by[app]
	return l, ok && n.version == version
}

func (n *knownLogging) put(version int64, app agent.App, l agent.ModelLogging) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.version > version {
		return
	}
	if n.version < version || n.by == nil || len(n.by) >= maxKnownLogging {
		n.version, n.by = version, map[agent.App]agent.ModelLogging{}
	}
	n.by[app] = l
}
