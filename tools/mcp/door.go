package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/vault/scrub"
)

// maxComplaint is how much is read of a response that is no success, in bytes.
const maxComplaint = 1 << 20

// door is the http.RoundTripper of one connection: the way out, with the record's headers and authorization put in, for the record's origin alone.
// All that comes back is bounded here, message by message.
type door struct {
	s      *source
	user   string
	header http.Header // of the record, with its secrets
	clean  *scrub.Scrubber
	out    http.RoundTripper
	ctx    context.Context
	stop   context.CancelFunc

	mu      sync.Mutex
	bad     error // the last that went wrong below the SDK
	refused error // that the server wants authorization: nothing more is sent
}

func (s *source) newDoor(ctx context.Context, l *link) (*door, error) {
	d := &door{s: s, user: l.k.user, header: http.Header{}}
	d.ctx, d.stop = context.WithCancel(context.Background())
	var secrets []string
	for name, text := range s.rec.Header {
		value, values, err := s.expand(ctx, text, s.rec.URL)
		if err != nil {
			d.stop()
			return nil, err
		}
		d.header.Set(name, value)
		secrets = append(secrets, values...)
	}
	d.clean = scrubber(secrets)
	d.out = s.way().RoundTripper(d, egress.Owner{App: s.rec.App, Agent: "tools/" + s.rec.Name})
	return d, nil
}

// cause is what last went wrong, or nil.
func (d *door) cause() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bad
}

// refusal is that the server wants authorization, or nil.
func (d *door) refusal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}

func (d *door) note(req *http.Request, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() == nil && req.Context().Err() == nil {
		d.bad = err
	}
	return err
}

// Allow is egress.Guard's: requests go to the origin of the record's URL alone, wherever a redirect or the server's own words lead.
func (d *door) Allow(_ context.Context, r agent.Request) error {
	_, own, err := egress.Parse(http.MethodGet, d.s.rec.URL)
	if err != nil {
		return err
	}
	if own.Origin() != r.Origin() {
		return &agent.Error{
			Kind: agent.Denied, Msg: "server " + d.s.rec.Name + " leads to another host, " + kept(r.Origin(), 200) + ", which was not agreed to",
			Hint: "if that is where it has moved, change its URL",
		}
	}
	return nil
}

// Sign is egress.Guard's.
func (d *door) Sign(ctx context.Context, req *http.Request, _ agent.Request) (egress.Cleaner, error) {
	for name, values := range d.header {
		req.Header[name] = values
	}
	clean := d.clean
	if token, _ := ctx.Value(bearerKey{}).(string); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
		clean = scrub.Merge(clean, scrub.New([]byte(token)))
	}
	if clean == nil {
		return nil, nil
	}
	return clean, nil
}

type bearerKey struct{}

// redirect is http.Client's CheckRedirect.
func (d *door) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > 3 {
		return agent.Errorf(agent.Unavailable, "server %s redirects more than 3 times", d.s.rec.Name)
	}
	return nil // where it may lead Allow says
}

// RoundTrip is http.RoundTripper's.
func (d *door) RoundTrip(req *http.Request) (*http.Response, error) {
	if refused := d.refusal(); refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(d.ctx, cancel)
	done := func() { stop(); cancel() }
	res, err := d.authorized(ctx, req)
	if err != nil {
		done()
		return nil, d.note(req, err)
	}
	_ = d.note(req, nil)
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	name, most := d.s.rec.Name, d.s.o.Bounds.Message
	switch {
	case res.StatusCode < 200 || res.StatusCode >= 300:
		if res.StatusCode == http.StatusUnauthorized {
			err = d.unauthorized(res)
			done()
			return nil, d.note(req, err)
		}
		res.Body = &body{io.LimitReader(res.Body, maxComplaint), res.Body, done}
	case kind == "text/event-stream":
		f := &frames{server: name, most: most, in: res.Body}
		if req.Method == http.MethodPost {
			f.tap, f.call = tapOf(req.Context()), deliveryOf(req.Context())
		}
		res.Body = &body{f, res.Body, done}
	default: // read here, so that what is wrong with it ends this request and not the connection
		whole, err := io.ReadAll(io.LimitReader(res.Body, most+1))
		_ = res.Body.Close()
		done()
		if err == nil && int64(len(whole)) > most {
			err = tooLarge(name, most)
		}
		if err != nil {
			return nil, d.note(req, err)
		}
		if t := tapOf(req.Context()); t != nil {
			t.message(whole)
		}
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(whole)), int64(len(whole))
	}
	return res, nil
}

// authorized sends the request with what authorization there is, and once more when a refresh brings a better one.
func (d *door) authorized(ctx context.Context, req *http.Request) (*http.Response, error) {
	whole, err := requestBody(req)
	if err != nil {
		return nil, err
	}
	oauth := d.s.o.OAuth
	if d.s.rec.OAuth == nil || oauth == nil {
		return d.send(ctx, req, whole, "")
	}
	token, err := oauth.token(ctx, d.s, d.user, "")
	if err != nil {
		return nil, err
	}
	res, err := d.send(ctx, req, whole, token)
	if err != nil || token == "" || res.StatusCode != http.StatusUnauthorized {
		return d.judged(res, err, token)
	}
	better, err := oauth.token(ctx, d.s, d.user, token)
	if err != nil || better == "" || better == token {
		return d.judged(res, err, token)
	}
	_ = res.Body.Close()
	res, err = d.send(ctx, req, whole, better)
	return d.judged(res, err, better)
}

// judged turns a response that wants authorization, or more of it, into the error that says so.
func (d *door) judged(res *http.Response, err error, token string) (*http.Response, error) {
	if err != nil {
		return res, err
	}
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden && insufficient(res.Header) {
		defer res.Body.Close()
		more := res.StatusCode == http.StatusForbidden
		err := d.s.o.OAuth.wanted(d.s.rec, d.user, res.Header, token != "", more)
		if !more {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.refused = err
		}
		return nil, err
	}
	return res, nil
}

// unauthorized is a 401 from a server whose record has no OAuth.
func (d *door) unauthorized(res *http.Response) error {
	defer res.Body.Close()
	e := &agent.Error{Kind: agent.Unavailable, Msg: "server " + d.s.rec.Name + " wants authorization", Hint: `set its header "authorization", such as to Bearer ${secret:NAME}`}
	if strings.Contains(strings.ToLower(res.Header.Get("Www-Authenticate")), "resource_metadata") {
		e.Hint = "skep tools authorize " + d.s.rec.Name
	}
	return e
}

func (d *door) send(ctx context.Context, req *http.Request, whole []byte, token string) (*http.Response, error) {
	call := deliveryOf(req.Context())
	if req.Method == http.MethodPost && call != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: call.leave})
	}
	ctx = context.WithValue(ctx, bearerKey{}, token)
	next := req.Clone(ctx)
	if whole != nil {
		next.Body, next.ContentLength = sent{bytes.NewReader(whole)}, int64(len(whole))
	}
	return d.out.RoundTrip(next)
}

// requestBody returns what a request sends, which the SDK has in memory.
func requestBody(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// sent is a body whose length is known to who sends it.
type sent struct{ *bytes.Reader }

func (sent) Close() error { return nil }

// body is the response's, whose end ends the request.
type body struct {
	io.Reader
	in   io.Closer
	done func()
}

func (b *body) Close() error {
	defer b.done()
	return b.in.Close()
}

// message takes the result of a message.
func (t *tap) message(data []byte) {
	var m struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal(data, &m) == nil {
		t.take(m.Result)
	}
}
