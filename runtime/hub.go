package runtime

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// chunkEvents is how many events one read of the store takes. Chunk i holds the events i*chunkEvents+1 and on.
const chunkEvents = 128

// boundsRead stands for the read of a log's extent where a chunk's number is asked for.
const boundsRead = -1

// hub serves the listeners of one log. It keeps chunks of the log in memory, within a window of bytes: those that were just
// committed, and those that listeners read from the store. Whoever needs an event that is in no chunk reads its chunk from
// the store; who needs the same chunk meanwhile waits for that read. So listeners share reads wherever they stand, and a
// slow one costs reads, never memory.
//
// Every durable event up to high is known to be there, because a log has no gaps. That is why the seam between reading
// and following cannot lose one: a hub is entered in feeds before it asks the store how far the log goes, and each commit
// is published after it is durable.
type hub struct {
	feeds     *feeds
	log       store.Log
	listeners int // guarded by feeds.mu

	mu      sync.Mutex
	known   bool  // whether the store was asked for first and high
	first   int64 // oldest event the log still has
	high    int64 // newest event known to be durable
	chunks  map[int64]*chunk
	recent  []int64 // of chunks, least recently used first
	bytes   int
	reading map[int64]*reading

	tick atomic.Pointer[tick] // what listeners who have all that there is wait for; changed under mu
}

// tick is the next change of a log. Who waits for it has what was published without asking the hub: a thousand who wake at once would
// stand in line for its lock. It is not kept by listeners who do something else, so a slow one holds nothing.
type tick struct {
	after  int64         // the newest event before it
	frames []Frame       // set before done is closed; those that follow after, or none
	done   chan struct{} // closed when there is more
}

// chunk holds contiguous events of one stretch of the log. Frames that were handed out are never changed: frames only grows
// or is replaced.
type chunk struct {
	from   int64 // number of the first
	frames []Frame
	bytes  int
}

func (c *chunk) next() int64 { return c.from + int64(len(c.frames)) }

// reading is a read of the store under way.
type reading struct {
	done chan struct{}
	err  error
}

func newHub(f *feeds, l store.Log) *hub {
	h := &hub{feeds: f, log: l, chunks: make(map[int64]*chunk), reading: make(map[int64]*reading)}
	h.tick.Store(&tick{done: make(chan struct{})})
	return h
}

// reach makes sure the hub knows the log's extent, and that it goes as far as after.
func (h *hub) reach(ctx context.Context, after int64) error {
	if after < 0 {
		return agent.Errorf(agent.Invalid, "event number %d is negative", after)
	}
	high, known := h.extent()
	if !known {
		err := h.share(ctx, boundsRead, func() error {
			if _, known := h.extent(); known {
				return nil
			}
			_, err := h.ask(ctx)
			return err
		})
		if err != nil {
			return err
		}
		high, _ = h.extent()
	}
	if after <= high {
		return nil
	}
	// The caller may know of an event that was committed just now.
	high, err := h.ask(ctx)
	if err == nil && after > high {
		err = agent.Errorf(agent.Invalid, "event %d is past the end of the log, which is at %d", after, high)
	}
	return err
}

func (h *hub) extent() (high int64, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.high, h.known
}

// ask asks the store how far the log goes now.
func (h *hub) ask(ctx context.Context) (high int64, err error) {
	first, last, err := h.feeds.store.Bounds(ctx, h.log)
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = true
	h.first = max(h.first, first)
	h.raise(last, nil)
	return h.high, nil
}

// share runs read for a chunk, or waits for another listener's. When that listener gave up, it is read once more.
func (h *hub) share(ctx context.Context, i int64, read func() error) error {
	for {
		h.mu.Lock()
		other := h.reading[i]
		if other == nil {
			mine := &reading{done: make(chan struct{})}
			h.reading[i] = mine
			h.mu.Unlock()
			mine.err = read()
			h.mu.Lock()
			delete(h.reading, i)
			h.mu.Unlock()
			close(mine.done)
			return mine.err
		}
		h.mu.Unlock()
		select {
		case <-other.done:
			if other.err == nil {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// next returns events that follow pos, at least one.
func (h *hub) next(ctx context.Context, pos int64) ([]Frame, error) {
	for {
		if t := h.tick.Load(); t.after == pos && pos > 0 {
			select {
			case <-t.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if len(t.frames) > 0 {
				return t.frames, nil
			}
		}
		h.mu.Lock()
		pos = max(pos, h.first-1)
		if got := h.cached(pos); len(got) > 0 {
			h.mu.Unlock()
			return got, nil
		}
		high, wake := h.high, h.tick.Load().done
		h.mu.Unlock()
		if pos < high {
			var got []Frame
			err := h.share(ctx, pos/chunkEvents, func() (err error) {
				got, err = h.load(ctx, pos)
				return err
			})
			if err != nil || len(got) > 0 { // else the read was another listener's, and its chunk is in memory, or was
				return got, err
			}
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h *hub) cached(pos int64) []Frame {
	i := pos / chunkEvents
	c := h.chunks[i]
	if c == nil || pos+1 < c.from || pos+1 >= c.next() {
		return nil
	}
	h.touch(i)
	return c.frames[pos+1-c.from : len(c.frames) : len(c.frames)]
}

// load reads the part of a chunk that holds the event after pos. It begins at the chunk's beginning, so that listeners
// further back share it, or where the chunk in memory ends. It returns the events after pos, none if the log forgot them.
func (h *hub) load(ctx context.Context, pos int64) ([]Frame, error) {
	i := pos / chunkEvents
	begin, end := i*chunkEvents, (i+1)*chunkEvents
	h.mu.Lock()
	if got := h.cached(pos); len(got) > 0 { // another listener's read came in between
		h.mu.Unlock()
		return got, nil
	}
	if c := h.chunks[i]; c != nil && c.from <= pos+1 {
		begin = c.next() - 1
	}
	h.mu.Unlock()
	h.feeds.reads.Add(1)
	events, err := h.feeds.store.Read(ctx, h.log, begin, int(end-begin))
	if err != nil {
		return nil, err
	}
	fresh := frames(events)
	if len(fresh) == 0 || fresh[0].Event.Seq > pos+1 { // an agent's log has let go of events
		first, _, err := h.feeds.store.Bounds(ctx, h.log)
		if err != nil {
			return nil, err
		}
		if first <= pos+1 {
			return nil, agent.Errorf(agent.Internal, "%s has lost event %d", h.log, pos+1)
		}
		h.mu.Lock()
		h.first = max(h.first, first)
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(i, fresh)
	return h.cached(pos), nil
}

// keep joins what was read with the chunk in memory, which may have grown meanwhile.
func (h *hub) keep(i int64, fresh []Frame) {
	if len(fresh) == 0 {
		return
	}
	c := &chunk{from: fresh[0].Event.Seq, frames: fresh}
	if old := h.chunks[i]; old != nil {
		h.bytes -= old.bytes
		switch {
		case old.from <= c.from && old.next() >= c.from:
			old.frames = append(old.frames, fresh[min(old.next()-c.from, int64(len(fresh))):]...)
			c = old
		case c.next() >= old.from && old.next() > c.next():
			c.frames = append(c.frames, old.frames[c.next()-old.from:]...)
		}
	}
	c.bytes = 0
	for _, f := range c.frames {
		c.bytes += len(f.JSON)
	}
	h.bytes += c.bytes
	h.chunks[i] = c
	h.touch(i)
	h.evict()
}

// publish takes in events that were just committed. Those that do not follow what is in memory are left to be read.
func (h *hub) publish(fresh []Frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	high, follow := h.high, 0
	for n, f := range fresh {
		seq := f.Event.Seq
		i := (seq - 1) / chunkEvents
		c := h.chunks[i]
		if c == nil && h.known && seq == high+1 {
			c = &chunk{from: seq}
			h.chunks[i] = c
		}
		if c != nil && c.next() == seq {
			c.frames = append(c.frames, f)
			c.bytes += len(f.JSON)
			h.bytes += len(f.JSON)
			h.touch(i)
		}
		if n == follow && seq == h.high+1+int64(n) {
			follow++
		}
		high = max(high, seq)
	}
	h.raise(high, fresh[:follow:follow])
	h.evict()
}

// raise notes that the log goes to seq, and wakes whoever waits for more. frames are those that follow high, as far as they are at hand.
func (h *hub) raise(seq int64, frames []Frame) {
	if seq > h.high {
		h.high = seq
		was := h.tick.Swap(&tick{after: seq, done: make(chan struct{})})
		was.frames = frames
		close(was.done)
	}
}

func (h *hub) touch(i int64) {
	if n := len(h.recent); n > 0 && h.recent[n-1] == i {
		return
	}
	if at := slices.Index(h.recent, i); at >= 0 {
		h.recent = slices.Delete(h.recent, at, at+1)
	}
	h.recent = append(h.recent, i)
}

// evict forgets the chunks used longest ago until the rest fits the window; the newest one stays.
func (h *hub) evict() {
	for h.bytes > h.feeds.window && len(h.recent) > 1 {
		i := h.recent[0]
		h.recent = h.recent[1:]
		h.bytes -= h.chunks[i].bytes
		delete(h.chunks, i)
	}
}
