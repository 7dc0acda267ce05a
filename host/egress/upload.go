package egress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
)

// maxReplay is how much of a request's body is kept for a redirect that wants it again.
const maxReplay = 1 << 20

// upload is the body of a request on its way out. It counts, and keeps a short one for redirects.
type upload struct {
	call   *call
	length int64 // -1 means unknown
	whole  []byte
	known  bool // whole is the body: it was in memory to begin with, or has been read to its end

	mu     sync.Mutex
	from   io.Reader
	n      int64
	kept   bool // whole is what was read until now
	closed atomic.Bool
}

// newUpload returns nil if there is no body.
func newUpload(c *call, r *Request) (*upload, error) {
	length := r.Length
	inMemory, _ := r.Body.(interface{ Len() int })
	if inMemory != nil && length <= 0 {
		length = int64(inMemory.Len())
	}
	if r.Body == nil || length == 0 {
		return nil, nil
	}
	if length > c.limits.RequestBytes {
		return nil, c.uploadTooLarge()
	}
	u := &upload{call: c, length: max(length, -1), from: r.Body, kept: r.Redirect == Follow && length <= maxReplay}
	if inMemory != nil && length <= maxReplay {
		b, err := io.ReadAll(io.LimitReader(r.Body, length+1))
		if err == nil && int64(len(b)) != length {
			err = wrongLength(length)
		}
		if err != nil {
			return nil, agent.AsError(err)
		}
		u.whole, u.known = b, true
	}
	return u, nil
}

func (c *call) uploadTooLarge() error {
	return agent.Exceeded(agent.LimitHTTP, "the request's body has more than %d bytes", c.limits.RequestBytes)
}

func wrongLength(length int64) error {
	return agent.Errorf(agent.Invalid, "the request's body has not the %d bytes that were announced", length)
}

// attach puts the body into a request, as often as there are hops that send it.
func (u *upload) attach(req *http.Request) {
	switch {
	case u == nil:
	case u.known:
		req.ContentLength, req.Body = int64(len(u.whole)), u.replay()
	default:
		req.ContentLength, req.Body = u.length, u
	}
}

// again lets the transport send the body once more, on a new connection when an idle one turns out to be closed.
func (u *upload) again(req *http.Request) {
	if u != nil && u.known {
		req.GetBody = func() (io.ReadCloser, error) { return u.replay(), nil }
	}
}

func (u *upload) replay() io.ReadCloser {
	u.call.hop.unsent()
	return &replay{call: u.call, r: bytes.NewReader(u.whole)}
}

// replayable makes sure that the body can be sent once more.
func (u *upload) replayable(host string) error {
	if u == nil {
		return nil
	}
	if u.mu.TryLock() { // else it is being read
		defer u.mu.Unlock()
		if u.known {
			return nil
		}
	}
	return &agent.Error{
		Kind: agent.Invalid, Msg: host + " redirects the request with its body, which is a stream that was sent in part, or too long to be kept",
		Hint: "send a body of at most 1 MiB whole, or send the request to where it is redirected",
	}
}

// Read is called by the transport. Between two calls the other side takes what the first one returned.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	u.call.watch.uploading()
	n, err := u.from.Read(p)
	u.n += int64(n)
	u.call.hop.count(n, 0)
	switch {
	case u.n > u.call.limits.RequestBytes:
		return 0, u.call.fail(u.call.uploadTooLarge())
	case u.length >= 0 && (u.n > u.length || errors.Is(err, io.EOF) && u.n < u.length):
		return 0, u.call.fail(wrongLength(u.length))
	}
	if u.kept = u.kept && u.n <= maxReplay; u.kept {
		u.whole = append(u.whole, p[:n]...)
	} else {
		u.whole = nil
	}
	switch {
	case errors.Is(err, io.EOF):
		u.known = u.kept
	case err != nil:
		return n, u.call.fail(bodyReadError(err))
	default:
		u.call.watch.await(waitSent, u.call.limits.Idle)
	}
	return n, err
}

// Close is called by the transport, when it wants no more. A Read that waits for the guest may end later.
func (u *upload) Close() error {
	u.closed.Store(true)
	return nil
}

// fail ends the call with an error, rather than with what the transport makes of it.
func (c *call) fail(err error) error {
	c.cut(err)
	return err
}

func bodyReadError(err error) error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return agent.Wrap(agent.Cancelled, err, "the request's body ended with an error")
}

// replay is a body in memory on its way out.
type replay struct {
	call *call
	r    *bytes.Reader
}

func (p *replay) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.call.hop.count(n, 0)
	if n > 0 {
		p.call.watch.await(waitSent, p.call.limits.Idle)
	}
	return n, err
}

func (p *replay) Close() error { return nil }
