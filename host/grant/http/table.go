package http

import (
	"context"
	"fmt"
	"sync"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// Table holds the exchanges that one cell has open. It is safe for concurrent use.
type Table struct {
	client func() Client
	opts   Options

	mu        sync.Mutex
	exchanges map[uint32]*exchange
	last      uint32 // id
	begun     int64
	held      int64 // bytes of bodies that travel whole
	closed    bool
	running   sync.WaitGroup
}

// New returns the table of one cell, whose requests are made by what client returns for each. Close it when the cell ends.
func New(client func() Client, o *Options) *Table {
	t := &Table{client: client, exchanges: map[uint32]*exchange{}}
	if o != nil {
		t.opts = *o
	}
	if t.opts.Open == 0 {
		t.opts.Open = 64
	}
	if t.opts.Requests == 0 {
		t.opts.Requests = 1000
	}
	if t.opts.Whole == 0 {
		t.opts.Whole = 8 << 20
	}
	if t.opts.Held == 0 {
		t.opts.Held = 64 << 20
	}
	return t
}

// Handlers returns what answers the cell's calls, by name.
func (t *Table) Handlers() map[string]grant.Handler {
	return map[string]grant.Handler{
		abi.CallHTTP:      grant.JSON(t.whole),
		abi.CallHTTPOpen:  t.open,
		abi.CallHTTPWrite: t.write,
		abi.CallHTTPHead: func(ctx context.Context, in []byte) ([]byte, error) {
			x, err := t.named(in)
			if err != nil {
				return nil, err
			}
			return t.answer(ctx, x)
		},
		abi.CallHTTPRead: t.read,
		abi.CallHTTPClose: func(_ context.Context, in []byte) ([]byte, error) {
			id, err := abi.SplitHTTPID(in)
			if err != nil {
				return nil, invalid(err)
			}
			if x, err := t.find(id); err == nil {
				t.drop(x)
			}
			return nil, nil
		},
	}
}

// Close gives up every exchange and waits until nothing of them runs. Calls that come after it are refused.
func (t *Table) Close() {
	t.mu.Lock()
	t.closed = true
	for _, x := range t.exchanges {
		x.cut()
	}
	clear(t.exchanges)
	t.mu.Unlock()
	t.running.Wait()
}

// enter takes a place for a new exchange, whose context ends with ctx, by cut, or with the table.
func (t *Table) enter(ctx context.Context) (context.Context, *exchange, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, nil, errGone()
	case t.begun >= t.opts.Requests:
		return nil, nil, agent.Exceeded(agent.LimitHTTP, "the code made more than %d requests within one call", t.opts.Requests)
	case len(t.exchanges) >= t.opts.Open:
		return nil, nil, &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitHTTP, Msg: fmt.Sprintf("more than %d requests are open at once", t.opts.Open),
			Hint: "read or cancel the bodies of responses before making more requests",
		}
	}
	t.begun++
	t.last++
	ctx, cancel := context.WithCancel(ctx)
	x := &exchange{id: t.last, client: t.client(), cancel: cancel, headed: make(chan struct{}), inbox: newInbox()}
	t.exchanges[x.id] = x
	return ctx, x, nil
}

// drop gives up an exchange, and its place.
func (t *Table) drop(x *exchange) {
	t.mu.Lock()
	delete(t.exchanges, x.id)
	t.mu.Unlock()
	x.cut()
}

// hold takes room for n more bytes of bodies that travel whole, or gives some back.
func (t *Table) hold(n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > 0 && t.held+n > t.opts.Held {
		return false
	}
	t.held += n
	return true
}

func (t *Table) find(id uint32) (*exchange, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.exchanges[id]; x != nil {
		return x, nil
	}
	if t.closed {
		return nil, errGone()
	}
	return nil, agent.Errorf(agent.NotFound, "the request is over: its response was read to the end, failed or was closed")
}

func (t *Table) named(in []byte) (*exchange, error) {
	id, err := abi.SplitHTTPID(in)
	if err != nil {
		return nil, invalid(err)
	}
	return t.find(id)
}

func errGone() error { return agent.Errorf(agent.Cancelled, "the request was given up") }
