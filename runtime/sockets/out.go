package sockets

import (
	"context"
	"sync"
	"time"

	"github.com/skep-dev/skep/internal/ws"
)

// lastWrite is what a write under way may still take when the connection is to be closed because its client does not read.
const lastWrite = 10 * time.Second

// out is what waits to be written to a connection. It is written by a goroutine that is there only while something waits.
type out struct {
	wire  *ws.Conn
	bound int

	mu      sync.Mutex
	queue   []ws.Frame
	bytes   int // queued, and being written
	writing bool
	closing *ws.CloseError // set once: nothing is queued any more
	room    chan struct{}  // closed when half of the bound is free
	writers sync.WaitGroup
}

// cost is what a frame counts for while it waits, so that many empty ones count as well.
func cost(f ws.Frame) int { return len(f.Data) + 64 }

// Push queues a frame. A client for which too much waits is closed with code 1013: who sends never waits for who does not read.
func (c *Conn) Push(f ws.Frame) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing != nil {
		return
	}
	if o.bytes > 0 && o.bytes+cost(f) > o.bound {
		o.close(ws.TryAgain, "the client does not read what it is sent")
		o.queue, o.bytes = nil, 0
		_ = o.wire.Deadline(lastWrite) // an error will be met by the writer
		return
	}
	o.bytes += cost(f)
	o.queue = append(o.queue, f)
	o.write()
}

// Close queues a close frame behind what waits, unless there is one. The reader of the connection sees its end then.
func (c *Conn) Close(code int, reason string) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.close(code, reason)
}

func (o *out) close(code int, reason string) {
	if o.closing != nil {
		return
	}
	o.closing = &ws.CloseError{Code: code, Reason: reason, Ours: true}
	o.free()
	o.write()
}

// Closing returns how the connection is being closed from here, or nil.
func (c *Conn) Closing() *ws.CloseError {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.closing
}

// write makes sure that there is a writer. The caller holds mu.
func (o *out) write() {
	if o.writing {
		return
	}
	o.writing = true
	o.writers.Go(o.writeAll)
}

func (o *out) writeAll() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			o.writing = false
			closing := o.closing
			o.queue = nil
			o.mu.Unlock()
			if closing != nil && (closing.Code == ws.Abnormal || o.wire.Close(closing.Code, closing.Reason) != nil) {
				_ = o.wire.Shut()
			}
			return
		}
		f := o.queue[0]
		o.queue[0] = ws.Frame{}
		o.queue = o.queue[1:]
		o.mu.Unlock()
		err := o.wire.Write(f)
		o.mu.Lock()
		o.bytes = max(o.bytes-cost(f), 0) // it is 0 already when the queue was dropped
		if o.bytes <= o.bound/2 {
			o.free()
		}
		if err != nil { // the reader finds out
			o.queue, o.bytes = nil, 0
			if o.closing == nil {
				o.closing = &ws.CloseError{Code: ws.Abnormal, Ours: true}
			}
			o.writing = false
			o.free()
			o.mu.Unlock()
			_ = o.wire.Shut()
			return
		}
		o.mu.Unlock()
	}
}

func (o *out) free() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// WaitRoom returns when half of what may wait is free, for those who have more to send than may wait. It returns false once the
// connection is being closed, or ctx has ended.
func (c *Conn) WaitRoom(ctx context.Context) bool {
	o := &c.out
	for {
		o.mu.Lock()
		if o.closing != nil || o.bytes <= o.bound/2 {
			open := o.closing == nil
			o.mu.Unlock()
			return open && ctx.Err() == nil
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// Wait returns when nothing is being written any more. It is called after Close.
func (c *Conn) Wait() { c.out.writers.Wait() }
