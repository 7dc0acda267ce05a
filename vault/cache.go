package vault

import (
	"slices"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// maxCached is how many decrypted values are kept.
const maxCached = 256

// cache keeps decrypted values, those used last, until they change. Values that it drops are overwritten.
type cache struct {
	mu     sync.Mutex
	values map[cacheKey]*cached
	gen    int64 // counts changes, so that a value read before one is not kept
	clock  int64
	closed bool
}

type cacheKey struct {
	app  agent.App
	name string
}

type cached struct {
	Material
	used int64
}

// get returns a copy of a value, or the generation to keep it under once it was read.
func (c *cache) get(k cacheKey) (m Material, gen int64, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, found := c.values[k]
	if !found {
		return Material{}, c.gen, false
	}
	c.clock++
	e.used = c.clock
	m = e.Material
	m.Value = slices.Clone(m.Value)
	return m, c.gen, true
}

// keep takes a copy of m.
func (c *cache) keep(k cacheKey, m Material, gen int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gen != c.gen || c.closed {
		return
	}
	if c.values == nil {
		c.values = map[cacheKey]*cached{}
	}
	c.drop(k)
	if len(c.values) >= maxCached {
		var oldest cacheKey
		least := c.clock + 1
		for k, e := range c.values {
			if e.used < least {
				oldest, least = k, e.used
			}
		}
		c.drop(oldest)
	}
	m.Value = slices.Clone(m.Value)
	c.clock++
	c.values[k] = &cached{m, c.clock}
}

func (c *cache) drop(k cacheKey) {
	if e := c.values[k]; e != nil {
		clear(e.Value)
		delete(c.values, k)
	}
}

// changed forgets a value.
func (c *cache) changed(k cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gen++
	c.drop(k)
}

func (c *cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for k := range c.values {
		c.drop(k)
	}
}
