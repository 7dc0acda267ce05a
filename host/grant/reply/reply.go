// Package reply lets a fetch handler send its response's body in pieces, to a caller who takes them.
package reply

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// Begin takes the head of a response. The body comes as it is made; who does not want more of it ends the call.
type Begin func(head abi.HTTPReply, body io.Reader)

// Reply is the response of one cell. It is safe for concurrent use.
type Reply struct {
	begin Begin

	mu   sync.Mutex
	body *io.PipeWriter // nil until the head has come
}

// New returns a response that begin is told of when it is sent in pieces, and else not. Close it when the cell has ended.
func New(begin Begin) *Reply { return &Reply{begin: begin} }

// Handlers returns what answers the cell's calls, by name.
func (r *Reply) Handlers() map[string]grant.Handler {
	return map[string]grant.Handler{abi.CallReply: grant.JSON(r.head), abi.CallReplyWrite: r.write}
}

func (r *Reply) head(_ context.Context, in abi.HTTPReply) (grant.None, error) {
	if in.Status < 200 || in.Status > 599 {
		return grant.None{}, agent.Errorf(agent.Invalid, "the response's status is %d; it may be 200 to 599", in.Status)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body != nil {
		return grant.None{}, agent.Errorf(agent.Conflict, "the response has begun already")
	}
	var body *io.PipeReader
	body, r.body = io.Pipe()
	r.begin(in, body)
	return grant.None{}, nil
}

func (r *Reply) write(ctx context.Context, piece []byte) ([]byte, error) {
	r.mu.Lock()
	body := r.body
	r.mu.Unlock()
	if body == nil {
		return nil, agent.Errorf(agent.Conflict, "the response has not begun")
	}
	if len(piece) == 0 {
		return nil, nil
	}
	defer context.AfterFunc(ctx, func() { _ = body.CloseWithError(errGone) })() // it never fails
	if _, err := body.Write(piece); err != nil {
		return nil, agent.Wrap(agent.Cancelled, err, "nobody takes the response any more")
	}
	return nil, nil
}

var errGone = errors.New("the cell has ended")

// Close ends the body: well when err is nil. It reports whether the response had begun.
func (r *Reply) Close(err error) (begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body == nil {
		return false
	}
	_ = r.body.CloseWithError(err)
	return true
}
