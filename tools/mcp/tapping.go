package mcp

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tapping is a transport on whose connection results can be tapped. The SDK binds an SSE stream to the context that it was begun in, which is to be the
// link's.
type tapping struct {
	mcp.Transport
	ctx context.Context
}

func (t tapping) Connect(context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(t.ctx)
	if err != nil {
		return nil, err
	}
	return &tapped{Connection: c, taps: map[jsonrpc.ID]*tap{}}, nil
}

type tapped struct {
	mcp.Connection
	mu   sync.Mutex
	taps map[jsonrpc.ID]*tap
}

func (c *tapped) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if res, ok := msg.(*jsonrpc.Response); ok && err == nil {
		c.mu.Lock()
		t := c.taps[res.ID]
		delete(c.taps, res.ID)
		c.mu.Unlock()
		t.take(res.Result)
	}
	return msg, err
}

func (c *tapped) Write(ctx context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		if t := tapOf(ctx); t != nil {
			c.mu.Lock()
			c.taps[req.ID] = t
			c.mu.Unlock()
			context.AfterFunc(ctx, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.taps, req.ID)
			})
		}
	}
	return c.Connection.Write(ctx, msg)
}
