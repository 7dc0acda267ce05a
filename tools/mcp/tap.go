package mcp

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// tap takes the result of one request as the server wrote it. The SDK decodes results, and then absent and false, or 1 and 1.0, look alike.
type tap struct {
	mu     sync.Mutex
	result json.RawMessage
}

type tapKey struct{}

func withTap(ctx context.Context, t *tap) context.Context { return context.WithValue(ctx, tapKey{}, t) }

func tapOf(ctx context.Context) *tap {
	t, _ := ctx.Value(tapKey{}).(*tap)
	return t
}

func (t *tap) take(result json.RawMessage) {
	if t == nil || len(result) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result = result
}

func (t *tap) get() json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result
}

// taps are those that wait on a connection, by the request whose result they are for. The zero value has none.
type taps struct {
	mu sync.Mutex
	by map[jsonrpc.ID]*tap
}

// expect notes a request that is sent, when its result is to be tapped.
func (t *taps) expect(ctx context.Context, req *jsonrpc.Request) {
	one := tapOf(ctx)
	if one == nil || !req.IsCall() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[jsonrpc.ID]*tap{}
	}
	t.by[req.ID] = one
	context.AfterFunc(ctx, func() { t.pull(req.ID) })
}

func (t *taps) pull(id jsonrpc.ID) *tap {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.by[id]
	delete(t.by, id)
	return one
}

// pass gives a response's own JSON to who waits for it.
func (t *taps) pass(msg jsonrpc.Message) {
	if res, ok := msg.(*jsonrpc.Response); ok {
		t.pull(res.ID).take(res.Result)
	}
}

// delivery is how far a call's request has come, and what cuts the call off.
type delivery struct {
	left  atomic.Bool
	abort context.CancelCauseFunc
}

type deliveryKey struct{}

func withDelivery(ctx context.Context, d *delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

func deliveryOf(ctx context.Context) *delivery {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)
	return d
}

// leave notes that the request may be on its way.
func (d *delivery) leave() {
	if d != nil {
		d.left.Store(true)
	}
}

// cut ends the call with a reason.
func (d *delivery) cut(err error) {
	if d != nil && d.abort != nil {
		d.abort(err)
	}
}
