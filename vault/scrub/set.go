package scrub

import (
	"sync"
	"sync/atomic"
)

// Set is a Scrubber that grows: of all values that were used so far, such as by one cell. It is safe for concurrent use, and
// its zero value is empty.
type Set struct {
	mu  sync.Mutex // held while it grows
	now atomic.Pointer[Scrubber]
}

// Add adds the values of a Scrubber, which may be nil. What is scrubbed after Add has returned has none of them.
func (s *Set) Add(more *Scrubber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.now.Load(); !old.has(more) {
		s.now.Store(Merge(old, more))
	}
}

// Scrubber returns a Scrubber of the values that are there now, or nil when there are none.
func (s *Set) Scrubber() *Scrubber { return s.now.Load() }

// Bytes returns b with each value replaced by Mark.
func (s *Set) Bytes(b []byte) []byte { return s.now.Load().Bytes(b) }

// String is Bytes of a string.
func (s *Set) String(text string) string { return s.now.Load().String(text) }

// has reports whether all of the other's values are among those of s.
func (s *Scrubber) has(other *Scrubber) bool {
	if other == nil || s == other {
		return true
	}
	if s == nil {
		return false
	}
	known := make(map[string]bool, len(s.values))
	for _, v := range s.values {
		known[string(v)] = true
	}
	for _, v := range other.values {
		if !known[string(v)] {
			return false
		}
	}
	return true
}
