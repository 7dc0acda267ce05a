package host

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// key names code by its content.
type key [sha256.Size]byte

func keyOf(src agent.Source) key {
	h := sha256.New()
	put := func(b []byte) {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(b)))
		h.Write(b)
	}
	put([]byte{byte(src.Kind)})
	put([]byte(src.Main))
	for _, name := range slices.Sorted(maps.Keys(src.Files)) {
		put([]byte(name))
		put(src.Files[name])
	}
	return key(h.Sum(nil))
}

// entry is a loaded guest, or one that is being loaded.
type entry struct {
	key   key
	ready chan struct{} // closed when guest and err are set
	guest guest
	err   error

	users   int
	used    time.Time // when the last user left
	names   []agent.Digest
	agents  map[caller]bool // whose newest call was of it
	left    bool            // an agent's newest call was of it, and then of other code
	place   *list.Element   // in images.order; nil once it was dropped
	dropped bool
}

// caller is an agent of an app.
type caller struct {
	app   agent.App
	agent string
}

// oldAfter is how long a guest is kept that no agent's newest call was of: runs that began with it may go on.
const oldAfter = 10 * time.Second

// images keeps loaded guests up to a number of bytes, the ones used last. One that is in use is never freed. When another is loaded, those go
// whose agents have all gone on to other code: a new version of an agent's code leaves no old one behind.
type images struct {
	most int64

	mu       sync.Mutex
	entries  map[key]*entry
	digests  map[agent.Digest]*entry
	newest   map[caller]*entry
	order    *list.List // of *entry, the one used last in front
	bytes    int64
	draining bool
}

func newImages(most int64) *images {
	return &images{most: most, entries: map[key]*entry{}, digests: map[agent.Digest]*entry{}, newest: map[caller]*entry{}, order: list.New()}
}

// byDigest returns the loaded guest that an agent calls by a name it was given, or nil. Release it.
func (s *images) byDigest(d agent.Digest, of caller) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.digests[d]
	if e != nil {
		s.use(e)
		s.goOn(of, e)
	}
	return e
}

// goOn notes that an agent's newest call is of e. The caller holds the lock.
func (s *images) goOn(of caller, e *entry) {
	was := s.newest[of]
	if was == e || e.dropped {
		return
	}
	if was != nil {
		delete(was.agents, of)
		was.left = true
	}
	if e.agents == nil {
		e.agents = map[caller]bool{}
	}
	e.agents[of], s.newest[of] = true, e
}

// isOld tells whether all whose newest call was of e have gone on to other code, some time ago.
func (e *entry) isOld(now time.Time) bool {
	return e.left && len(e.agents) == 0 && now.Sub(e.used) >= oldAfter
}

// byKey returns a loaded guest, or nil. Release it.
func (s *images) byKey(k key) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil {
		return nil
	}
	select {
	case <-e.ready:
	default:
		return nil
	}
	if e.err != nil {
		return nil
	}
	s.use(e)
	return e
}

// name lets byDigest find e by d, by which an agent has just called it.
func (s *images) name(d agent.Digest, e *entry, of caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.digests[d] != e && !e.dropped {
		s.digests[d] = e
		e.names = append(e.names, d)
	}
	s.goOn(of, e)
}

// get returns the guest of a key, loading it if need be: many callers of one key share one loading. Release it.
func (s *images) get(ctx context.Context, k key, load func(context.Context) (guest, error)) (*entry, error) {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return nil, agent.Errorf(agent.Unavailable, "the host is closing")
	}
	e := s.entries[k]
	if e == nil {
		e = &entry{key: k, ready: make(chan struct{})}
		s.entries[k] = e
		e.place = s.order.PushFront(e)
		s.use(e)
		s.mu.Unlock()
		s.fill(ctx, e, load)
		return s.loaded(e)
	}
	s.use(e)
	s.mu.Unlock()
	select {
	case <-e.ready:
		return s.loaded(e)
	case <-ctx.Done():
		s.release(e)
		return nil, agent.Wrap(agent.Cancelled, context.Cause(ctx), "cancelled while the code was being prepared")
	}
}

// fill loads a guest. Others may wait for it, so it goes on when the caller who happened to come first has gone.
func (s *images) fill(ctx context.Context, e *entry, load func(context.Context) (guest, error)) {
	e.guest, e.err = load(context.WithoutCancel(ctx))
	close(e.ready)
	s.mu.Lock()
	var freed []*entry
	if e.err != nil {
		s.drop(e)
	} else {
		s.bytes += e.guest.Size()
		freed = s.shrink(time.Now())
	}
	s.mu.Unlock()
	closeAll(ctx, freed)
}

func (s *images) loaded(e *entry) (*entry, error) {
	if e.err == nil {
		return e, nil
	}
	s.release(e)
	return nil, e.err
}

func (s *images) use(e *entry) {
	e.users++
	if e.place != nil {
		s.order.MoveToFront(e.place)
	}
}

// release ends a use.
func (s *images) release(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.users--; e.users == 0 {
		e.used = time.Now()
	}
}

// drop forgets an entry. The caller holds the lock.
func (s *images) drop(e *entry) {
	delete(s.entries, e.key)
	for _, d := range e.names {
		delete(s.digests, d)
	}
	for of := range e.agents {
		delete(s.newest, of)
	}
	s.order.Remove(e.place)
	e.place, e.dropped = nil, true
}

// shrink drops what is old, and what was not used for the longest time until the rest fits. It returns what nobody uses. The caller
// holds the lock.
func (s *images) shrink(now time.Time) (free []*entry) {
	for p := s.order.Back(); p != nil; {
		e := p.Value.(*entry)
		p = p.Prev()
		if e.users > 0 || s.bytes <= s.most && !e.isOld(now) {
			continue
		}
		s.bytes -= e.guest.Size()
		s.drop(e)
		free = append(free, e)
	}
	return free
}

func closeAll(ctx context.Context, es []*entry) {
	for _, e := range es {
		_ = e.guest.Close(ctx)
	}
}

func (s *images) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	var errs []error
	for _, e := range s.entries {
		if e.guest != nil && e.err == nil {
			errs = append(errs, e.guest.Close(ctx))
		}
	}
	clear(s.entries)
	return errors.Join(errs...)
}
