// Package cache keeps whole answers of models for requests that are the same, in memory: those used last, within a bound of bytes, each for its own time.
package cache

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/gateway/wire"
)

// Bounds unless others are given.
const (
	MaxBytes  = 64 << 20
	MaxAnswer = 4 << 20 // bytes of one answer
	overhead  = 512     // bytes that an entry counts for beside its own
)

// Key is what makes requests the same.
type Key [sha256.Size]byte

// Answer is one that is kept: bytes as a client got them, or the canonical form. It must not be changed.
type Answer struct {
	Status      int
	ContentType string
	Stream      bool
	Body        []byte
	Whole       *wire.Answer
	Provider    string // who said it
	Model       string
	At          time.Time
}

// Cache is safe for concurrent use.
type Cache struct {
	most int64

	mu     sync.Mutex
	by     map[Key]*list.Element
	recent *list.List // of *entry, the one used last first
	size   int64
}

type entry struct {
	key   Key
	a     *Answer
	size  int64
	until time.Time
}

// New returns an empty cache of at most so many bytes; 0 means MaxBytes.
func New(most int64) *Cache {
	if most == 0 {
		most = MaxBytes
	}
	return &Cache{most: most, by: map[Key]*list.Element{}, recent: list.New()}
}

// Get returns what is kept for a key, or nil.
func (c *Cache) Get(k Key, now time.Time) *Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.by[k]
	if at == nil {
		return nil
	}
	e := at.Value.(*entry)
	if !now.Before(e.until) {
		c.drop(at)
		return nil
	}
	c.recent.MoveToFront(at)
	return e.a
}

// Put keeps an answer until a time. size is how many bytes it has; one that is too large is not kept.
func (c *Cache) Put(k Key, a *Answer, size int, until time.Time) {
	n := int64(size) + overhead
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[k]; at != nil {
		c.drop(at)
	}
	if size > MaxAnswer || n > c.most {
		return
	}
	c.by[k] = c.recent.PushFront(&entry{k, a, n, until})
	for c.size += n; c.size > c.most; {
		c.drop(c.recent.Back())
	}
}

func (c *Cache) drop(at *list.Element) {
	e := c.recent.Remove(at).(*entry)
	delete(c.by, e.key)
	c.size -= e.size
}

// Len is how many answers there are, and Size the bytes that they count for.
func (c *Cache) Len() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.by) }

// Size is told at Len.
func (c *Cache) Size() int64 { c.mu.Lock(); defer c.mu.Unlock(); return c.size }

// KeyOf makes a key of what it is given, each apart from the next.
func KeyOf(parts ...[]byte) Key {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		for i := range n {
			n[i] = byte(len(p) >> (8 * i))
		}
		h.Write(n[:])
		h.Write(p)
	}
	return Key(h.Sum(nil))
}

// Normal is a JSON object without spaces and with its fields in order, so that equal requests have equal bytes; numbers and all values stay as they were
// written. The fields named are left out at the top.
func Normal(body []byte, without ...string) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(body, &top); err != nil {
		return nil, err
	}
	for name := range top {
		if slices.Contains(without, name) {
			delete(top, name)
		}
	}
	plain, err := json.Marshal(top)
	if err != nil {
		return nil, err
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
