package store

import (
	"bytes"
	"errors"
	"sync"
)

// recentBytes is how much is kept in each of two generations: of keys, payloads, and what a map needs for them.
const (
	recentBytes = 1 << 20
	recentEach  = 64
)

// recent has records as of the newest durable commit: what transactions wrote or, if small, have read. Most of what is read next is there: heads,
// the newest entry of a log, what an instance keeps. Nobody else writes to the database, so it has the same.
//
// The committer's leader alone changes it, and reads without the lock.
type recent struct {
	mu      sync.RWMutex
	known   [2]map[key]write // the newer first: what it has hides what the older one has
	bytes   int              // of the newer
	writing map[key]write    // what becomes of these is not known yet
}

// find is for the leader, or under the lock.
func (r *recent) find(k key) (write, bool) {
	for _, known := range r.known {
		if w, ok := known[k]; ok {
			return w, true
		}
	}
	return write{}, false
}

// begin says that a batch is about to be written. Until it is, somebody may find it in the database, so that nobody must find here what was before.
func (r *recent) begin(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = b.writes
}

// done takes what a durable batch has written and read.
func (r *recent) done(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = nil
	if b.bytes > groupBytes {
		r.known, r.bytes = [2]map[key]write{}, 0
		return
	}
	if r.known[0] == nil || r.bytes > recentBytes {
		r.known, r.bytes = [2]map[key]write{{}, r.known[0]}, 0
	}
	for k, w := range b.reads {
		r.put(k, write{bytes.Clone(w.payload), w.gone}) // what was read is its reader's to keep
	}
	for k, w := range b.writes {
		r.put(k, w)
	}
}

// put counts what is replaced as well: payloads of a batch are one piece of memory.
func (r *recent) put(k key, w write) {
	r.known[0][k] = w
	r.bytes += len(k) + len(w.payload) + recentEach
}

// forget is called when it is not known what a batch came to.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.bytes, r.writing = [2]map[key]write{}, 0, nil
}

// errNotRecent is that of a getter that does not know a record, or knows that it is not there.
var errNotRecent = errors.New("not known without the database")

// view has fn read what is known, all of it of one moment: after errNotRecent the database has to be asked for everything. What fn reads is valid
// until it returns.
func (r *recent) view(fn func(getter) error) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return fn(recentView{r})
}

type recentView struct{ *recent }

func (r recentView) get(k key) ([]byte, bool, error) {
	if _, writing := r.writing[k]; !writing {
		if w, ok := r.find(k); ok && !w.gone {
			return w.payload, true, nil
		}
	}
	return nil, false, errNotRecent
}
