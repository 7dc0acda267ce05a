// Package httpfront puts the gateway of models behind net/http: the paths of all protocols, keys where each has them, errors in each one's own form, and
// streams that are flushed piece by piece. Package api does the same behind its own server, with Find and HeaderKey.
package httpfront

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
)

const (
	stall    = 30 * time.Second       // for a client to take what it is sent, and to send more of its request
	cutAfter = 100 * time.Millisecond // lets a client read the frame that says why, before its connection ends
)

// Options of a Front. All but Prefix have to be there.
type Options struct {
	Gateway *gateway.Gateway
	Prefix  string // before the paths of the protocols, such as /ai
	// Admit finds out by its key on whose behalf a request is made. key is "" when there is none. An Unauthenticated error is told as each protocol has it.
	Admit func(ctx context.Context, key string) (gateway.Caller, error)
}

// Front is the handler of requests to models. It is safe for concurrent use.
type Front struct{ o Options }

// New returns one.
func New(o *Options) *Front { return &Front{*o} }

// Key is the key of a request, wherever one of the protocols has it; "" when there is none.
func Key(r *http.Request) string {
	if v := HeaderKey(r.Header.Get); v != "" {
		return v
	}
	return r.URL.Query().Get("key")
}

// HeaderKey is Key of the header alone, whose fields get returns.
func HeaderKey(get func(name string) string) string {
	if scheme, v, _ := strings.Cut(get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") && v != "" {
		return strings.TrimSpace(v)
	}
	return cmp.Or(get("X-Api-Key"), get("X-Goog-Api-Key"))
}

// ServeHTTP answers one request. It panics with http.ErrAbortHandler when the answer could not be brought to its end, so that nobody takes what came for
// the whole.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), f.o.Prefix)
	to := &sink{w: w, control: http.NewResponseController(w)}
	defer to.rest()
	if r.Method == http.MethodHead && (path == "" || path == "/") { // clients probe
		return
	}
	p, op := Find(r.Method, path, r.Header)
	if op == wire.NoOp {
		f.refuse(p, agent.Errorf(agent.NotFound, "there is no %s %.200s among the paths of models", r.Method, path), to)
		return
	}
	who, err := f.o.Admit(r.Context(), Key(r))
	if err != nil {
		f.refuse(p, err, to)
		return
	}
	body, err := to.body(r)
	if err != nil {
		f.refuse(p, err, to)
		return
	}
	f.end(f.o.Gateway.Serve(r.Context(), who, &gateway.Request{
		Protocol: p, Op: op, Path: path, Query: r.URL.RawQuery, Header: r.Header, Body: body,
	}, to), to)
}

// refuse answers with an error.
func (f *Front) refuse(p agent.Protocol, err error, to *sink) {
	f.end(f.o.Gateway.Refuse(p, err, to), to)
}

// end deals with an answer that did not come to its end.
func (f *Front) end(err error, to *sink) {
	switch {
	case err == nil:
	case to.begun:
		time.Sleep(cutAfter)
		panic(http.ErrAbortHandler)
	case agent.KindOf(err) == agent.Cancelled:
		panic(http.ErrAbortHandler)
	default: // the gateway speaks no such protocol
		http.Error(to.w, agent.AsError(err).Msg, http.StatusNotFound)
	}
}

// sink is the gateway.Sink of a request.
type sink struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	streams bool
	until   time.Time // the deadline of writes
}

// Begin is gateway.Sink's. The head goes out with what follows.
func (s *sink) Begin(status int, header http.Header) error {
	s.begun = true
	s.streams = header["Content-Length"] == nil
	for name, vs := range header {
		s.w.Header()[name] = vs
	}
	s.w.WriteHeader(status)
	return nil
}

// Write is gateway.Sink's.
func (s *sink) Write(p []byte) (int, error) {
	if now := time.Now(); s.until.Sub(now) < stall-time.Second {
		s.until = now.Add(stall)
		if err := s.control.SetWriteDeadline(s.until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return 0, err
		}
	}
	n, err := s.w.Write(p)
	if err == nil && s.streams {
		err = s.control.Flush()
	}
	return n, err
}

// body reads a request's, of which each part has to come in time.
func (s *sink) body(r *http.Request) ([]byte, error) {
	if r.ContentLength > gateway.MaxBody {
		return nil, tooLarge()
	}
	var b []byte
	if r.ContentLength > 0 {
		b = make([]byte, 0, min(r.ContentLength, 1<<20)+1)
	}
	for {
		if len(b) == cap(b) {
			b = append(b, make([]byte, max(4<<10, len(b)))...)[:len(b)]
		}
		_ = s.control.SetReadDeadline(time.Now().Add(stall))
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > gateway.MaxBody:
			return nil, tooLarge()
		case errors.Is(err, io.EOF):
			_ = s.control.SetReadDeadline(time.Time{}) // that the client goes away is noticed by a read
			return b, nil
		case err != nil:
			return nil, agent.Wrap(agent.Cancelled, err, "the request did not come to its end")
		}
	}
}

func tooLarge() error {
	return agent.Exceeded(agent.LimitInput, "the request is larger than %d bytes", gateway.MaxBody)
}

// rest lets the connection go on without deadlines.
func (s *sink) rest() {
	_ = s.control.SetReadDeadline(time.Time{})
	_ = s.control.SetWriteDeadline(time.Time{})
}
