package runtime

import (
	"context"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
)

// maxManifests is how many manifests are kept.
const maxManifests = 1000

// manifests remembers what code says of itself, which does not change.
type manifests struct {
	mu   sync.Mutex
	list map[agent.Digest]plugins.Manifest
}

// Manifest returns what a plugin's code says of itself, with its section mcp made complete by what the code exports. It is shared: nobody changes it.
func (r *Runtime) Manifest(ctx context.Context, p agent.Plugin) (plugins.Manifest, error) {
	c := &r.manifests
	c.mu.Lock()
	known, found := c.list[p.Digest]
	c.mu.Unlock()
	if found {
		return known, nil
	}
	body, err := r.store.Blob(ctx, p.Digest)
	if err != nil {
		return plugins.Manifest{}, err
	}
	_, m, err := plugins.Open("", "", body, plugins.Unlimited())
	if err == nil {
		err = m.MCP.Check(p.Exports)
	}
	if err != nil {
		return plugins.Manifest{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil || len(c.list) >= maxManifests {
		c.list = map[agent.Digest]plugins.Manifest{}
	}
	c.list[p.Digest] = m
	return m, nil
}
