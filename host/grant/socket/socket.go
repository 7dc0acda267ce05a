// Package socket grants an instance its connections: to send, to close, to keep something with them, and to list them.
package socket

import (
	"context"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

const (
	maxFrame  = 1 << 20
	maxNames  = 1000 // connections that one frame names
	maxReason = 123  // bytes, of RFC 6455, section 5.5
)

// Sockets are the connections of one instance. What is done to them happens when the turn is committed; a list shows it at once.
type Sockets interface {
	Send(ctx context.Context, in abi.SocketSend) error
	Close(ctx context.Context, in abi.SocketClose) error
	Attach(ctx context.Context, in abi.SocketAttach) error
	List(ctx context.Context, tag string) ([]abi.Socket, error)
}

// Add puts the handlers of package abi's socket calls into a door's.
func Add(handlers map[string]grant.Handler, s Sockets) {
	handlers[abi.CallSocketSend] = grant.JSON(func(ctx context.Context, in abi.SocketSend) (grant.None, error) {
		if err := checkSend(in); err != nil {
			return grant.None{}, err
		}
		return grant.None{}, s.Send(ctx, in)
	})
	handlers[abi.CallSocketClose] = grant.JSON(func(ctx context.Context, in abi.SocketClose) (grant.None, error) {
		if in.Code == 0 {
			in.Code = 1000
		}
		if !mayClose(in.Code) {
			return grant.None{}, agent.Errorf(agent.Invalid, "a connection is closed with a code of 1000, 1001, 1008, 1011 to 1013, or 3000 to 4999; not %d", in.Code)
		}
		if len(in.Reason) > maxReason {
			return grant.None{}, agent.Errorf(agent.Invalid, "the reason of a close has %d bytes, more than %d", len(in.Reason), maxReason)
		}
		return grant.None{}, s.Close(ctx, in)
	})
	handlers[abi.CallSocketAttach] = grant.JSON(func(ctx context.Context, in abi.SocketAttach) (grant.None, error) {
		return grant.None{}, s.Attach(ctx, in)
	})
	handlers[abi.CallSocketList] = grant.JSON(func(ctx context.Context, in abi.SocketList) (abi.Sockets, error) {
		list, err := s.List(ctx, in.Tag)
		if list == nil {
			list = []abi.Socket{}
		}
		return abi.Sockets{Sockets: list}, err
	})
}

func checkSend(in abi.SocketSend) error {
	size := len(in.Base64)
	if in.Text != nil {
		size = len(*in.Text)
	}
	switch {
	case in.Text != nil && in.Base64 != nil:
		return agent.Errorf(agent.Invalid, "a frame is text or bytes, not both")
	case size > maxFrame:
		return &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitOutput, Msg: "a frame has more than 1 MiB", Hint: "send it in pieces, or send where to fetch it",
		}
	case len(in.To) > maxNames || len(in.Except) > maxNames:
		return agent.Errorf(agent.Invalid, "a frame names more than %d connections: give them a tag", maxNames)
	case len(in.To) > 0 && in.Tag != "":
		return agent.Errorf(agent.Invalid, "a frame goes to connections that are named or to those that have a tag, not both")
	}
	return nil
}

func mayClose(code int) bool {
	return code == 1000 || code == 1001 || code == 1008 || code >= 1011 && code <= 1013 || code >= 3000 && code <= 4999
}
