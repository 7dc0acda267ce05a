package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
)

// linger is how long the answer with a response's head waits for the rest of a short body, so that it comes with it.
const linger = 5 * time.Millisecond

// exchange is a request under way and its response. One goroutine runs it; calls of the guest wait for what that brings.
type exchange struct {
	id     uint32
	client Client
	cancel context.CancelFunc
	send   *io.PipeWriter // the request's body; nil when it is whole

	headed chan struct{} // closed when response and err are set
	res    *egress.Response
	err    error
	inbox  *inbox
}

// cut ends the exchange, soon.
func (x *exchange) cut() {
	x.cancel()
	if x.send != nil {
		_ = x.send.CloseWithError(context.Canceled) // never fails; what has been closed stays so
	}
}

// run makes the request and reads the response's body as far as there is room. ctx is that of the exchange.
func (x *exchange) run(ctx context.Context, r *egress.Request) {
	defer x.cancel()
	x.res, x.err = x.do(ctx, r)
	close(x.headed)
	if c, ok := r.Body.(io.Closer); ok {
		defer c.Close() // whoever writes to it must not wait for a reader that has gone
	}
	if x.err != nil {
		x.inbox.end(x.err)
		return
	}
	stop := context.AfterFunc(ctx, func() { x.inbox.end(errGone()) })
	defer stop()
	defer x.res.Body.Close()
	x.inbox.fill(ctx, x.res.Body)
}

// do keeps a fault of ours from ending the program: no door stands around this goroutine.
func (x *exchange) do(ctx context.Context, r *egress.Request) (res *egress.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, agent.Wrap(agent.Internal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "internal error")
		}
	}()
	res, err = x.client.Do(ctx, r)
	var known *agent.Error
	if err != nil && ctx.Err() != nil && !errors.As(err, &known) {
		err = errGone()
	}
	return res, err
}

// head waits for the response.
func (x *exchange) head(ctx context.Context) (*egress.Response, error) {
	select {
	case <-x.headed:
	case <-ctx.Done():
		return nil, errGone()
	}
	if x.err != nil {
		return nil, x.err
	}
	return x.res, x.client.Still(ctx)
}

// inbox is what has come of a body and was not taken yet: at most abi.MaxHTTPChunk bytes, for then the sender waits.
type inbox struct {
	mu   sync.Mutex
	buf  []byte
	err  error         // why nothing more comes; io.EOF when the body is complete
	come chan struct{} // has an entry when buf or err changed
	room chan struct{} // has an entry when buf was taken
}

func newInbox() *inbox {
	return &inbox{come: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// fill reads body to its end or to that of ctx.
func (i *inbox) fill(ctx context.Context, body io.Reader) {
	scratch := make([]byte, 4<<10)
	for {
		i.mu.Lock()
		room := abi.MaxHTTPChunk - len(i.buf)
		over := i.err != nil
		i.mu.Unlock()
		if over {
			return
		}
		if room == 0 {
			select {
			case <-i.room:
				continue
			case <-ctx.Done():
				return
			}
		}
		n, err := body.Read(scratch[:min(len(scratch), room)])
		i.mu.Lock()
		if i.err == nil {
			i.buf = append(i.buf, scratch[:n]...)
		}
		i.mu.Unlock()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				err = bodyError(err)
			}
			i.end(err)
			return
		}
		signal(i.come)
		if n == len(scratch) && n < abi.MaxHTTPChunk {
			scratch = make([]byte, 4*n)
		}
	}
}

// end says why nothing more comes. The first reason counts.
func (i *inbox) end(err error) {
	i.mu.Lock()
	if i.err == nil {
		i.err = err
	}
	i.mu.Unlock()
	signal(i.come)
}

// first returns what comes within a moment, unless the body has ended before, and whether that is all.
func (i *inbox) first(ctx context.Context) (piece []byte, end bool) {
	moment := time.NewTimer(linger)
	defer moment.Stop()
	for {
		i.mu.Lock()
		full := i.err != nil || len(i.buf) == abi.MaxHTTPChunk
		i.mu.Unlock()
		if full {
			piece, end, _ = i.now() // a failure is the next read's
			return piece, end
		}
		select {
		case <-i.come:
		case <-moment.C:
			piece, end, _ = i.now()
			return piece, end
		case <-ctx.Done():
			return nil, false
		}
	}
}

// take waits for bytes or for the end of the body.
func (i *inbox) take(ctx context.Context) (piece []byte, end bool, err error) {
	for {
		if piece, end, err = i.now(); piece != nil || end || err != nil {
			return piece, end, err
		}
		select {
		case <-i.come:
		case <-ctx.Done():
			return nil, false, errGone()
		}
	}
}

// now takes what is there. An error comes when all bytes before it have been taken.
func (i *inbox) now() (piece []byte, end bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	piece, i.buf = i.buf, nil
	if piece != nil {
		signal(i.room)
	}
	switch {
	case i.err == nil:
	case errors.Is(i.err, io.EOF):
		end = true
	case piece == nil:
		err = i.err
	}
	return piece, end, err
}

// bodyError is what becomes of a body that broke off.
func bodyError(err error) error {
	var known *agent.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled):
		return errGone()
	}
	return agent.Wrap(agent.Unavailable, err, "the response's body broke off")
}
