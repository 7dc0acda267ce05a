// Package jsonrpc is one end of a JSON-RPC 2.0 connection with a command-line agent: one message a line, over the agent's standard input and output
// (https://www.jsonrpc.org/specification, https://agentclientprotocol.com/protocol/transports). Everything that the agent says is handled in its order by one
// goroutine, answers to our calls too: that is what lets the end of a turn come after all that was said in it.
package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// maxQueue is the most bytes that wait for an agent that does not read its input.
const maxQueue = 8 << 20

// Codes of errors.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	NoMethod       = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

// Pipe is what a connection goes over. Process of package backend is one.
type Pipe interface {
	io.ReadWriter
	CloseInput() error // ends what the other reads
}

// ID is that of a request of the other's, as it came.
type ID = json.RawMessage

// Error is one of the protocol.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string {
	if len(e.Data) == 0 || string(e.Data) == "null" {
		return e.Message
	}
	return fmt.Sprintf("%s (%.500s)", e.Message, e.Data)
}

// Options are what a connection does with what comes. The functions are called by Run's goroutine, one after the other, and must not wait for the agent.
type Options struct {
	Bare   bool                                               // without the field jsonrpc, as Codex has it
	Notify func(method string, params json.RawMessage)        // a notification
	Ask    func(id ID, method string, params json.RawMessage) // a request, which Reply or Refuse answers, then or later
	Junk   func(line []byte, why string)                      // what is no message; line may be only its beginning, and is the callee's only until it returns
}

// Conn is a connection.
type Conn struct {
	pipe Pipe
	o    Options

	mu      sync.Mutex
	next    int64
	pending map[string]func(json.RawMessage, error) // by our ids
	queue   [][]byte
	queued  int
	ended   error         // why nothing can be sent any more
	work    chan struct{} // of 1: there is something in queue, or ended is set
}

// New returns a connection, which Run brings to life.
func New(p Pipe, o *Options) *Conn {
	c := &Conn{pipe: p, o: *o, pending: map[string]func(json.RawMessage, error){}, work: make(chan struct{}, 1)}
	return c
}

type message struct {
	Version string          `json:"jsonrpc,omitempty"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// errEnded is for calls that cannot be answered any more.
var errEnded = agent.Errorf(agent.Unavailable, "the agent's program has ended")

// Run reads until the agent's output ends, which is no error, and writes what there is to be written. Calls that are not answered then fail.
func (c *Conn) Run() error {
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		c.write()
	}()
	err := c.read()
	c.end(errEnded)
	_ = c.pipe.CloseInput() // a write that waits for the agent to read ends, too
	<-wrote
	return err
}

// end fails what waits, once.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = err
	}
	list := c.pending
	c.pending = map[string]func(json.RawMessage, error){}
	c.mu.Unlock()
	c.wake()
	for _, done := range list {
		done(nil, err)
	}
}

func (c *Conn) wake() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

func (c *Conn) write() {
	for range c.work {
		c.mu.Lock()
		list, ended := c.queue, c.ended != nil
		c.queue, c.queued = nil, 0
		c.mu.Unlock()
		if ended {
			return
		}
		for _, line := range list {
			if _, err := c.pipe.Write(line); err != nil {
				c.mu.Lock()
				if c.ended == nil {
					c.ended = errEnded
				}
				c.mu.Unlock()
				return // reading ends when the agent does, which fails the calls
			}
		}
	}
}

func (c *Conn) read() error {
	err := stdio.Lines(c.pipe, stdio.MaxLine, func(line []byte, whole bool) {
		if !whole {
			c.o.Junk(line, fmt.Sprintf("a message of more than %d MiB", stdio.MaxLine>>20))
			return
		}
		c.handle(bytes.TrimSpace(line))
	})
	if err != nil {
		return fmt.Errorf("read from the agent: %w", err)
	}
	return nil
}

func (c *Conn) handle(line []byte) {
	if len(line) == 0 {
		return
	}
	var m message
	if line[0] != '{' {
		c.o.Junk(line, "not a message")
		return
	}
	if err := json.Unmarshal(line, &m); err != nil {
		c.o.Junk(line, err.Error())
		return
	}
	id := len(m.ID) != 0 && string(m.ID) != "null"
	switch {
	case m.Method != "" && id:
		c.o.Ask(m.ID, m.Method, m.Params)
	case m.Method != "":
		c.o.Notify(m.Method, m.Params)
	case id:
		c.answered(line, &m)
	default:
		c.o.Junk(line, "neither a request nor an answer")
	}
}

func (c *Conn) answered(line []byte, m *message) {
	key := string(bytes.Trim(m.ID, `"`)) // some send a number back as text
	c.mu.Lock()
	done := c.pending[key]
	delete(c.pending, key)
	c.mu.Unlock()
	switch {
	case done == nil:
		c.o.Junk(line, "an answer to nothing")
	case m.Error != nil:
		done(nil, m.Error)
	default:
		done(m.Result, nil)
	}
}

// Go calls a method. done is called once, with the result or the error, by Run's goroutine in the order of what the agent says, or by the caller's when the
// call cannot be sent.
func (c *Conn) Go(method string, params any, done func(result json.RawMessage, err error)) {
	c.mu.Lock()
	c.next++
	key := strconv.FormatInt(c.next, 10)
	c.pending[key] = done
	c.mu.Unlock()
	if err := c.send(&message{ID: ID(key), Method: method}, params); err != nil {
		c.mu.Lock()
		_, mine := c.pending[key]
		delete(c.pending, key)
		c.mu.Unlock()
		if mine {
			done(nil, err)
		}
	}
}

// Call calls a method and waits. What the agent refuses is an *Error.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	type answer struct {
		raw json.RawMessage
		err error
	}
	got := make(chan answer, 1)
	c.Go(method, params, func(raw json.RawMessage, err error) { got <- answer{raw, err} })
	select {
	case a := <-got:
		if a.err != nil {
			return fmt.Errorf("%s: %w", method, a.err)
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(a.raw, result); err != nil {
			return fmt.Errorf("%s: the answer cannot be read: %w", method, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// Tell sends a notification.
func (c *Conn) Tell(method string, params any) error {
	return c.send(&message{Method: method}, params)
}

// Reply answers a request.
func (c *Conn) Reply(id ID, result any) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	return c.send(&message{ID: id, Result: raw}, nil)
}

// Refuse answers a request with an error.
func (c *Conn) Refuse(id ID, code int, text string) error {
	return c.send(&message{ID: id, Error: &Error{Code: code, Message: text}}, nil)
}

func (c *Conn) send(m *message, params any) error {
	if !c.o.Bare {
		m.Version = "2.0"
	}
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("encode %s: %w", m.Method, err)
		}
		m.Params = raw
	}
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	line = append(line, '\n')
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return c.ended
	case c.queued+len(line) > maxQueue && c.queued > 0:
		return agent.Errorf(agent.Unavailable, "the agent's program does not read what it is told")
	}
	c.queue, c.queued = append(c.queue, line), c.queued+len(line)
	c.wake()
	return nil
}
