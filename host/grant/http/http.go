// Package http grants outbound requests: the calls "http" for whole bodies and "http.open" and its kin for bodies in pieces.
// It keeps what a cell has open, and ends all of it with the cell. What a request may reach, and how it gets there, is its
// Client's business.
package http

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant"
)

// Client makes one request, which has one Client. Errors are of package agent.
type Client interface {
	// Do judges and makes the request, of which the Owner, the Limits and Observe are for it to set. A body that is an io.Closer
	// streams. It gives up when ctx ends, and so does the response's body, which is the caller's to close.
	Do(ctx context.Context, r *egress.Request) (*egress.Response, error)
	// Still returns why what Do was allowed is allowed no more, or nil. It is called beside Do and beside reads of the body.
	Still(ctx context.Context) error
}

// Options of a Table. A zero field means the default.
type Options struct {
	Open     int   // exchanges at once; 64
	Requests int64 // requests of the cell; 1000
	Whole    int64 // bytes of a response's body that travels whole; 8 MiB
	Held     int64 // bytes of all such bodies that are under way at once; 64 MiB
}

// whole answers abi.CallHTTP.
func (t *Table) whole(ctx context.Context, in abi.HTTPRequest) (abi.HTTPResponse, error) {
	ctx, x, err := t.enter(ctx)
	if err != nil {
		return abi.HTTPResponse{}, err
	}
	defer t.drop(x)
	res, err := x.client.Do(ctx, requestOf(in.Method, in.URL, in.Header, in.Body))
	if err != nil {
		return abi.HTTPResponse{}, err
	}
	defer res.Body.Close()
	var body bytes.Buffer
	var held int64
	defer func() { t.hold(-held) }()
	for {
		n, err := io.CopyN(&body, res.Body, abi.MaxHTTPChunk)
		if !t.hold(n) {
			return abi.HTTPResponse{}, &agent.Error{
				Kind: agent.Exhausted, Limit: agent.LimitHTTP,
				Msg:  fmt.Sprintf("the bodies of responses that are under way have more than %d bytes together", t.opts.Held),
				Hint: "make fewer requests at once, or read the bodies in pieces",
			}
		}
		held += n
		if err := x.client.Still(ctx); err != nil {
			return abi.HTTPResponse{}, err
		}
		if int64(body.Len()) > t.opts.Whole {
			return abi.HTTPResponse{}, &agent.Error{
				Kind: agent.Exhausted, Limit: agent.LimitHTTP,
				Msg:  fmt.Sprintf("the response's body has more than %d bytes, the most that is taken in one piece", t.opts.Whole),
				Hint: "ask for less at a time, or read the body in pieces",
			}
		}
		if errors.Is(err, io.EOF) {
			return abi.HTTPResponse{Status: res.Status, Header: res.Header, Body: body.Bytes()}, nil
		}
		if err != nil {
			return abi.HTTPResponse{}, bodyError(err)
		}
	}
}

// open answers abi.CallHTTPOpen.
func (t *Table) open(ctx context.Context, frame []byte) ([]byte, error) {
	head, body, err := abi.SplitHTTPHead(frame)
	if err != nil {
		return nil, invalid(err)
	}
	var in abi.HTTPOpen
	if err := grant.Decode(head, &in); err != nil {
		return nil, err
	}
	r := requestOf(in.Method, in.URL, in.Header, body)
	if r.Redirect, err = redirectOf(in.Redirect); err != nil {
		return nil, err
	}
	if in.Stream && len(body) > 0 || in.Length != nil && (*in.Length < 0 || !in.Stream) {
		return nil, agent.Errorf(agent.Invalid, "http.open: a body is either whole or follows, and only one that follows has a length of its own")
	}
	exchange, x, err := t.enter(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	if in.Stream {
		var to *io.PipeReader
		to, x.send = io.Pipe()
		r.Body, r.Length = to, -1
		if in.Length != nil {
			r.Length = *in.Length
		}
	} else if r.Body != nil {
		r.Body = bytes.NewReader(bytes.Clone(body)) // Do may read of it when this call has been given up
	}
	t.running.Go(func() { x.run(exchange, r) })
	if in.Stream {
		return abi.AppendHTTPHead(nil, abi.HTTPHead{ID: x.id}, nil)
	}
	return t.answer(ctx, x)
}

// answer waits for the head of a response, and a little for its body.
func (t *Table) answer(ctx context.Context, x *exchange) ([]byte, error) {
	defer context.AfterFunc(ctx, x.cut)()
	res, err := x.head(ctx)
	if err != nil {
		t.drop(x)
		return nil, err
	}
	body, end := x.inbox.first(ctx)
	head := abi.HTTPHead{
		ID: x.id, Status: res.Status, StatusText: cmp.Or(res.StatusText, http.StatusText(res.Status)), Header: res.Header,
		URL: res.URL, Redirected: res.Redirected, End: end,
	}
	if end {
		t.drop(x)
	}
	return abi.AppendHTTPHead(nil, head, body)
}

// write answers abi.CallHTTPWrite.
func (t *Table) write(ctx context.Context, frame []byte) ([]byte, error) {
	id, last, piece, err := abi.SplitHTTPWrite(frame)
	if err != nil {
		return nil, invalid(err)
	}
	x, err := t.find(id)
	if err != nil {
		return nil, err
	}
	if x.send == nil {
		return nil, agent.Errorf(agent.Invalid, "http.write: the request was opened with its whole body")
	}
	defer context.AfterFunc(ctx, x.cut)()
	if err := x.client.Still(ctx); err != nil {
		t.drop(x)
		return nil, err
	}
	if len(piece) > 0 {
		if _, err := x.send.Write(piece); err != nil {
			return nil, agent.Wrap(agent.Unavailable, err, "the server takes no more of the request's body")
		}
	}
	if last {
		return nil, x.send.Close()
	}
	return nil, nil
}

// read answers abi.CallHTTPRead.
func (t *Table) read(ctx context.Context, in []byte) ([]byte, error) {
	x, err := t.named(in)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, x.cut)()
	var piece []byte
	var end bool
	if err = x.client.Still(ctx); err == nil {
		piece, end, err = x.inbox.take(ctx)
	}
	if err == nil { // the wait may have been long
		err = x.client.Still(ctx)
	}
	if err != nil {
		t.drop(x)
		return nil, err
	}
	if end {
		t.drop(x)
	}
	return abi.AppendHTTPRead(make([]byte, 0, 1+len(piece)), end, piece), nil
}

// requestOf returns a request with a whole body.
func requestOf(method, url string, header [][2]string, body []byte) *egress.Request {
	r := &egress.Request{Method: method, URL: url, Header: header, Length: int64(len(body))}
	if len(body) > 0 {
		r.Body = bytes.NewReader(body)
	}
	return r
}

func redirectOf(s string) (egress.Redirect, error) {
	switch s {
	case "", "follow":
		return egress.Follow, nil
	case "error":
		return egress.Fail, nil
	case "manual":
		return egress.Manual, nil
	}
	return 0, agent.Errorf(agent.Invalid, "http.open: redirect is %.40q; it may be follow, error or manual", s)
}

func invalid(err error) error { return agent.Wrap(agent.Invalid, err, err.Error()) }
