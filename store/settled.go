package store

import (
	"strings"
	"sync"
	"sync/atomic"
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

// ModelsVersion is a number that changes with each commit that changes an app, or a provider, route, limit, guardrail or setting of models of any
// app. What was read after it was asked for is good for as long as it stays the same. It means nothing to another process.
func (s *Store) ModelsVersion() int64 { return s.commit.changes.models.Load() }

// keysVersion changes with each commit that changes an app or a virtual key.
func (s *Store) keysVersion() int64 {
	return s.commit.changes.models.Load() + s.commit.changes.keys.Load()
}

// maxSettled is how many values a settled keeps.
const maxSettled = 10_000

// settled keeps in memory what was read at a count of changes, for as long as the count stays the same.
type settled[K comparable, V any] struct {
	mu      sync.RWMutex
	version int64
	by      map[K]V
}

func (n *settled[K, V]) get(version int64, k K) (v V, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.version != version {
		return v, false
	}
	v, ok = n.by[k]
	return v, ok
}

// put keeps what was read after version was taken.
func (n *settled[K, V]) put(version int64, k K, v V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.version > version {
		return
	}
	if n.version < version || n.by == nil || len(n.by) >= maxSettled {
		n.version, n.by = version, map[K]V{}
	}
	n.by[k] = v
}
