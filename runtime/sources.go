package runtime

import (
	"context"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// maxSources is how many scripts of code mode are kept in memory, and how large one may be for that.
const (
	maxSources     = 256
	maxSourceBytes = 64 << 10
)

// sources remembers scripts of code mode between being stored and being run.
type sources struct {
	mu   sync.Mutex
	list map[agent.Digest]agent.Source
}

func (s *sources) put(d agent.Digest, src agent.Source) {
	size := 0
	for _, b := range src.Files {
		size += len(b)
	}
	if size > maxSourceBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = map[agent.Digest]agent.Source{}
	}
	for old := range s.list {
		if len(s.list) < maxSources {
			break
		}
		delete(s.list, old)
	}
	s.list[d] = src
}

// get returns a script, from the store when it is not in memory.
func (s *sources) get(ctx context.Context, r *Runtime, d agent.Digest) (agent.Source, error) {
	s.mu.Lock()
	src, ok := s.list[d]
	s.mu.Unlock()
	if ok {
		return src, nil
	}
	src, err := r.LoadSource(ctx, d)
	if err == nil {
		s.put(d, src)
	}
	return src, err
}
