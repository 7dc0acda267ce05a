// Package sockets keeps the connections of clients with instances, which stay open while instances sleep: who is connected where, what
// is kept with a connection, what waits to be written to it, and the frames that are spoken. It runs no code and knows no turns.
package sockets

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/ws"
	"github.com/skep-dev/skep/store/instance"
)

// Bounds of what is kept with a connection, and of a frame that code sends.
const (
	MaxAttachment = 16 << 10
	MaxTags       = 10
	MaxTag        = 256     // bytes
	MaxMessage    = 1 << 20 // bytes of one message, either way
)

// Options of a Hub. Zero fields mean the default.
type Options struct {
	Instance int // connections of one instance; 10,000
	All      int // of all; 100,000
	Queue    int // bytes that may wait to be written to one connection; 4 MiB
}

// Hub knows the connections of all instances. It is safe for concurrent use.
type Hub struct {
	o Options

	mu    sync.Mutex
	rooms map[instance.ID][]*Conn // in the order they came
	all   int
}

// New returns a Hub without connections.
func New(o *Options) *Hub {
	h := &Hub{rooms: map[instance.ID][]*Conn{}}
	if o != nil {
		h.o = *o
	}
	h.o.Instance = cmp.Or(h.o.Instance, 10_000)
	h.o.All = cmp.Or(h.o.All, 100_000)
	h.o.Queue = cmp.Or(h.o.Queue, 4<<20)
	return h
}

// Conn makes a connection that nobody finds before it has joined.
func (h *Hub) Conn(id instance.ID, wire *ws.Conn, token agent.TokenID) *Conn {
	return &Conn{ID: newID(), Instance: id, Token: token, out: out{wire: wire, bound: h.o.Queue}}
}

// Room refuses a connection for which there is no room.
func (h *Hub) Room(id instance.ID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.room(id)
}

func (h *Hub) room(id instance.ID) error {
	e := &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitConcurrency, After: 5 * time.Second}
	switch {
	case len(h.rooms[id]) >= h.o.Instance:
		e.Msg, e.Hint = "the instance has as many connections as it may", "close some, or spread clients over more instances"
	case h.all >= h.o.All:
		e.Msg, e.Hint = "the server has as many connections as it may", "connect again later"
	default:
		return nil
	}
	return e
}

// Join lets a connection be found.
func (h *Hub) Join(c *Conn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.room(c.Instance); err != nil {
		return err
	}
	h.rooms[c.Instance] = append(h.rooms[c.Instance], c)
	h.all++
	return nil
}

// Leave is the opposite of Join. It may be called twice.
func (h *Hub) Leave(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := h.rooms[c.Instance]
	at := slices.Index(room, c)
	if at < 0 {
		return
	}
	h.all--
	if len(room) == 1 {
		delete(h.rooms, c.Instance)
		return
	}
	h.rooms[c.Instance] = slices.Delete(slices.Clone(room), at, at+1) // others may be reading it
}

// Of returns the connections of an instance. The slice is not to be changed.
func (h *Hub) Of(id instance.ID) []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := h.rooms[id]
	return room[:len(room):len(room)]
}

// Find returns one connection of an instance, or nil.
func (h *Hub) Find(id instance.ID, conn string) *Conn {
	for _, c := range h.Of(id) {
		if c.ID == conn {
			return c
		}
	}
	return nil
}

// Send queues a frame for the connections that are named, or that have the tag, or for all; not for those of except.
func (h *Hub) Send(id instance.ID, to []string, tag string, except []string, f ws.Frame) {
	for _, c := range h.Of(id) {
		if (len(to) == 0 || slices.Contains(to, c.ID)) && (tag == "" || c.has(tag)) && !slices.Contains(except, c.ID) {
			c.Push(f)
		}
	}
}

// Close closes those connections for which which says so.
func (h *Hub) Close(which func(*Conn) bool, code int, reason string) {
	h.mu.Lock()
	var closing []*Conn
	for _, room := range h.rooms {
		for _, c := range room {
			if which(c) {
				closing = append(closing, c)
			}
		}
	}
	h.mu.Unlock()
	for _, c := range closing {
		c.Close(code, reason)
	}
}

// Count returns how many connections an instance has.
func (h *Hub) Count(id instance.ID) int { return len(h.Of(id)) }

// All returns how many there are.
func (h *Hub) All() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all
}

// newID returns an id that sorts by time.
func newID() string { return string(agent.NewRunID(time.Now())) }

// Conn is one connection with an instance. It is safe for concurrent use.
type Conn struct {
	ID       string
	Instance instance.ID
	Token    agent.TokenID // by which it was opened

	mu         sync.Mutex
	tags       []string
	attachment abi.Raw
	mode       mode
	version    int64 // of the state that it was sent last

	out out
}

// mode is what a connection understands of the shared state.
type mode uint8

const (
	silent mode = iota // it has not been shown the state yet
	whole              // it is shown the whole state at each change
	patches
)

// Socket returns the connection as code sees it.
func (c *Conn) Socket() abi.Socket {
	c.mu.Lock()
	defer c.mu.Unlock()
	return abi.Socket{ID: c.ID, Tags: slices.Clone(c.tags), Attachment: c.attachment}
}

func (c *Conn) has(tag string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.tags, tag)
}

// Attach sets what is kept with the connection. A nil field of a leaves it as it is.
func (c *Conn) Attach(a abi.SocketAttach) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := Attached(abi.Socket{Tags: c.tags, Attachment: c.attachment}, a)
	c.tags, c.attachment = now.Tags, now.Attachment
}

// Attached returns a connection as code sees it, with what waits to be kept with it.
func Attached(s abi.Socket, a abi.SocketAttach) abi.Socket {
	if a.Attachment != nil {
		s.Attachment = a.Attachment
	}
	if a.Tags != nil {
		s.Tags = *a.Tags
	}
	return s
}

// CheckAttach returns an Invalid error for what cannot be kept with a connection.
func CheckAttach(a abi.SocketAttach) error {
	if len(a.Attachment) > MaxAttachment {
		return &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitState, Hint: "keep what is larger in storage, and its key with the connection",
			Msg: "an attachment is larger than 16 KiB",
		}
	}
	if a.Tags == nil {
		return nil
	}
	if n := len(*a.Tags); n > MaxTags {
		return agent.Errorf(agent.Invalid, "%d tags are too many for a connection: %d are allowed", n, MaxTags)
	}
	for _, tag := range *a.Tags {
		if tag == "" || len(tag) > MaxTag {
			return agent.Errorf(agent.Invalid, "a tag of a connection has 1 to %d bytes", MaxTag)
		}
	}
	return nil
}
