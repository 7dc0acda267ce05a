package inside

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/driver"
)

const (
	deltaEvery = 50 * time.Millisecond // between deltas of one text
	deltaBytes = 8 << 10               // of a delta: below MaxEvent also when each byte is escaped
	eventCost  = 256                   // bytes that an event is counted as besides its data
	batchBytes = driver.MaxMessage / 2
)

// ring holds the events that are not acknowledged, numbered from 1. Who adds one waits while it is full.
type ring struct {
	most int
	wake chan struct{} // holds one when there is something to send

	mu      sync.Mutex
	room    sync.Cond
	list    []driver.Event
	first   int64 // number of list[0]
	bytes   int
	held    []*delta // in the order of their first text
	flushed time.Time
	timer   *time.Timer
	gone    bool // nobody will acknowledge anything: events are dropped
}

// delta is a text that grows before it becomes an event.
type delta struct {
	event driver.Event
	data  driver.TextData
	text  strings.Builder
}

func newRing(most int) *ring {
	r := &ring{most: most, first: 1, wake: make(chan struct{}, 1)}
	r.room.L = &r.mu
	r.timer = time.AfterFunc(time.Hour, r.tick)
	r.timer.Stop()
	return r
}

// run ends the ring's waiting when ctx has ended.
func (r *ring) run(ctx context.Context) {
	<-ctx.Done()
	r.abandon()
	r.timer.Stop()
}

// abandon drops what comes from now on, so that nobody waits for room that will never be.
func (r *ring) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	r.room.Broadcast()
}

// add adds an event, after the deltas that are held; or holds it, when it is a delta that follows another too soon.
func (r *ring) add(e driver.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.bytes > r.most && !r.gone {
		r.room.Wait()
	}
	if isDelta(e.Type) {
		var d driver.TextData
		if e.Read(&d) == nil {
			r.hold(e, d)
			return
		}
	}
	r.flush()
	r.put(e)
}

func isDelta(kind string) bool {
	switch kind {
	case driver.TextDelta, driver.ReasoningDelta, driver.ToolOutput, driver.SetupOutput, driver.ExecOutput:
		return true
	}
	return false
}

func (r *ring) hold(e driver.Event, data driver.TextData) {
	text := data.Text
	data.Text = ""
	var d *delta
	for _, h := range r.held {
		if h.event.Type == e.Type && h.event.Turn == e.Turn && h.data == data {
			d = h
			break
		}
	}
	if d == nil {
		e.Data = nil
		d = &delta{event: e, data: data}
		r.held = append(r.held, d)
	}
	d.text.WriteString(text)
	if since := time.Since(r.flushed); d.text.Len() >= deltaBytes || since >= deltaEvery {
		r.flush()
	} else {
		r.timer.Reset(deltaEvery - since)
	}
}

func (r *ring) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := deltaEvery - time.Since(r.flushed); left > 0 { // what it was set for has been flushed since
		if len(r.held) > 0 {
			r.timer.Reset(left)
		}
		return
	}
	r.flush()
}

// flush makes events of what is held.
func (r *ring) flush() {
	for _, d := range r.held {
		for rest := d.text.String(); rest != ""; {
			d.data.Text = driver.CutText(rest, deltaBytes)
			rest = rest[len(d.data.Text):]
			e := d.event
			e.Data = driver.Body(d.data)
			r.put(e)
		}
	}
	if len(r.held) > 0 {
		r.flushed = time.Now()
	}
	r.held = r.held[:0]
}

func (r *ring) put(e driver.Event) {
	if r.gone {
		return
	}
	e.Fit()
	r.list = append(r.list, e)
	r.bytes += len(e.Data) + eventCost
	r.poke()
}

func (r *ring) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// after returns a batch of the events behind number seq; nil when there is none.
func (r *ring) after(seq int64) (first int64, list []driver.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := int(max(seq+1-r.first, 0))
	to, bytes := from, 0
	for to < len(r.list) && to-from < driver.MaxBatch && bytes < batchBytes {
		bytes += len(r.list[to].Data) + eventCost
		to++
	}
	if from >= to {
		return 0, nil
	}
	return r.first + int64(from), append([]driver.Event(nil), r.list[from:to]...)
}

// ack drops the events up to number seq. It reports false when there were never so many.
func (r *ring) ack(seq int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := int(seq + 1 - r.first)
	if n <= 0 {
		return true
	}
	if n > len(r.list) {
		return false
	}
	for i := range n {
		r.bytes -= len(r.list[i].Data) + eventCost
	}
	clear(r.list[:n]) // so that their data can go before the array does
	r.list = r.list[n:]
	r.first += int64(n)
	r.room.Broadcast()
	r.poke()
	return true
}

// newest returns the number of the newest event.
func (r *ring) newest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first + int64(len(r.list)) - 1
}

// oldest returns the number of the oldest event that is not acknowledged.
func (r *ring) oldest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// empty reports whether all is acknowledged. What is held becomes events first.
func (r *ring) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	return len(r.list) == 0
}
