package mcp

import (
	"context"

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
	return &tapped{Connection: c}, nil
}

type tapped struct {
	mcp.Connection
	taps taps
}

func (c *tapped) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if err == nil {
		c.taps.pass(msg)
	}
	return msg, err
}

func (c *tapped) Write(ctx context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok {
		c.taps.expect(ctx, req)
	}
	return c.Connection.Write(ctx, msg)
}
