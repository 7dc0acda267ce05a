package egress

import (
	"io"
	"net/http"
	"strconv"

	"github.com/skep-dev/skep/agent"
)

// RoundTripper puts the door under an http.Client, for requests that code of ours makes for an owner. The client follows
// redirects itself, and asks the guard for each. Errors come back inside a *url.Error, whose text holds the URL: what is shown
// or logged is agent.AsError's.
func (e *Egress) RoundTripper(g Guard, o Owner) http.RoundTripper { return &roundTripper{e, g, o} }

type roundTripper struct {
	egress *Egress
	guard  Guard
	owner  Owner
}

// RoundTrip is http.RoundTripper's.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		return nil, agent.Errorf(agent.Invalid, "the request has no URL")
	}
	r := &Request{Owner: t.owner, Method: req.Method, URL: req.URL.String(), Body: req.Body, Length: req.ContentLength, Redirect: Manual}
	if req.Body == http.NoBody {
		r.Body = nil
	}
	if r.Body != nil && r.Length == 0 {
		r.Length = -1
	}
	for name, values := range req.Header {
		for _, v := range values {
			r.Header = append(r.Header, [2]string{name, v})
		}
	}
	if req.Host != "" && req.Host != req.URL.Host {
		r.Header = append(r.Header, [2]string{"Host", req.Host})
	}
	res, err := t.egress.Do(req.Context(), t.guard, r)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	out := &http.Response{
		Status: strconv.Itoa(res.Status) + " " + res.StatusText, StatusCode: res.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: res.Body, ContentLength: -1, Request: req,
	}
	for _, h := range res.Header {
		out.Header.Add(h[0], h[1])
	}
	if n, err := strconv.ParseInt(res.Get("content-length"), 10, 64); err == nil {
		out.ContentLength = n
	}
	if req.Body != nil {
		out.Body = bodies{res.Body, req.Body}
	}
	return out, nil
}

// bodies closes a request's body with its response's.
type bodies struct {
	io.ReadCloser
	sent io.Closer
}

func (b bodies) Close() error {
	err := b.ReadCloser.Close()
	_ = b.sent.Close()
	return err
}
