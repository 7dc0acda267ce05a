// Package client calls a Skep server over HTTP. The CLI is made of it. Every error it returns is an *agent.Error, rebuilt
// from what the server answered; a server that cannot be reached is Unavailable.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Options tune a Client. The zero value works.
type Options struct {
	App      agent.App     // what the requests are about; empty means the token's app, else the default one
	HTTP     *http.Client  // nil means http.DefaultClient; it must have no timeout of its own, or streams end with it
	Silence  time.Duration // a stream that says nothing for so long is opened anew; 0 means a minute
	Patience time.Duration // how long a broken stream is tried to be opened again; 0 means a minute
}

// Client is safe for concurrent use.
type Client struct {
	base, token string
	o           Options
}

// New returns a client of the server at base, such as "http://127.0.0.1:4747". token may be empty for calls that need none.
func New(base, token string, o *Options) *Client {
	c := &Client{base: strings.TrimRight(base, "/"), token: token}
	if o != nil {
		c.o = *o
	}
	if c.o.HTTP == nil {
		c.o.HTTP = http.DefaultClient
	}
	if c.o.Silence == 0 {
		c.o.Silence = time.Minute
	}
	if c.o.Patience == 0 {
		c.o.Patience = time.Minute
	}
	return c
}

const (
	typeJSON    = "application/json"
	typeNDJSON  = "application/x-ndjson"
	typeProblem = "application/problem+json"
)

// query collects query parameters, of which empty ones are left out.
type query map[string]string

func (q query) encode() string {
	v := url.Values{}
	for name, s := range q {
		if s != "" {
			v.Set(name, s)
		}
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

func pageQuery(p agent.Page) query {
	q := query{"after": p.After}
	if p.Limit != 0 {
		q["limit"] = strconv.Itoa(p.Limit)
	}
	return q
}

// path joins segments under /v1, escaping each.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// header is what a request carries beside the token.
type header map[string]string

// once is a fresh Idempotency-Key: net/http may then send the request again when a kept connection turns out to be closed.
func once() header { return header{"Idempotency-Key": rand.Text()} }

// send returns the response of a request that succeeded. The caller closes its body.
func (c *Client) send(ctx context.Context, method, target string, h header, body []byte) (*http.Response, error) {
	return c.sendBody(ctx, method, target, h, bytes.NewReader(body), int64(len(body)))
}

// sendBody is send of a body that need not be in memory.
func (c *Client) sendBody(ctx context.Context, method, target string, h header, body io.ReadSeeker, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+target, io.NopCloser(body))
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the server's address is not valid")
	}
	if req.ContentLength = size; size == 0 {
		req.Body = http.NoBody
	}
	req.GetBody = func() (io.ReadCloser, error) { // for a kept connection that turns out to be closed
		_, err := body.Seek(0, io.SeekStart)
		return io.NopCloser(body), err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.o.App != "" {
		req.Header.Set("Skep-App", string(c.o.App))
	}
	for name, v := range h {
		req.Header.Set(name, v)
	}
	res, err := c.o.HTTP.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if res.StatusCode >= 300 {
		defer res.Body.Close()
		return nil, errorOf(res)
	}
	return res, nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return agent.Wrap(agent.Cancelled, ctx.Err(), "the request was given up")
	}
	return &agent.Error{
		Kind: agent.Unavailable, Err: err, Msg: "the server at " + c.base + " cannot be reached",
		Hint: "start one with: skep serve",
	}
}

// do sends in as JSON, when it is not nil, and decodes the answer into out, when that is not nil.
func (c *Client) do(ctx context.Context, method, target string, h header, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return agent.Wrap(agent.Invalid, err, "the request has no JSON form")
		}
		if h == nil {
			h = header{}
		}
		h["Content-Type"] = typeJSON
	}
	res, err := c.send(ctx, method, target, h, body)
	if err != nil {
		return err
	}
	return c.decode(ctx, res, out)
}

// decode decodes an answer into out, when that is not nil, and closes it.
func (c *Client) decode(ctx context.Context, res *http.Response, out any) error {
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return agent.Wrap(agent.Internal, err, "the server's answer is not understood")
	}
	return nil
}

// problem is application/problem+json as the server sends it.
type problem struct {
	Status   int         `json:"status"`
	Title    string      `json:"title"`
	Detail   string      `json:"detail"`
	Kind     *agent.Kind `json:"kind"`
	Hint     string      `json:"hint"`
	Limit    agent.Limit `json:"limit"`
	Position agent.Pos   `json:"position"`
	Stack    string      `json:"stack"`
}

// maxProblem bounds what is read of an error's body.
const maxProblem = 1 << 20

func errorOf(res *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	var p problem
	if t, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); t == typeProblem {
		if err := json.Unmarshal(b, &p); err == nil && p.Kind != nil {
			seconds, _ := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 32)
			return p.error(time.Duration(seconds) * time.Second)
		}
	}
	// Something between us and the server answered.
	kind := agent.Internal
	switch {
	case res.StatusCode == http.StatusNotFound:
		kind = agent.NotFound
	case res.StatusCode == http.StatusTooManyRequests:
		kind = agent.Exhausted
	case res.StatusCode >= 502 && res.StatusCode <= 504:
		kind = agent.Unavailable
	case res.StatusCode == http.StatusUnauthorized:
		kind = agent.Unauthenticated
	case res.StatusCode == http.StatusForbidden:
		kind = agent.Denied
	case res.StatusCode < 500:
		kind = agent.Invalid
	}
	var models struct { // of the model gateway, as OpenAI has it
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &models) == nil && models.Error.Message != "" {
		seconds, _ := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 32)
		return &agent.Error{Kind: kind, Msg: models.Error.Message, After: time.Duration(seconds) * time.Second}
	}
	return agent.Wrap(kind, errors.New(string(b[:min(len(b), 200)])), "the server answered "+res.Status)
}

func (p *problem) error(after time.Duration) error {
	return &agent.Error{Kind: *p.Kind, Msg: p.Detail, Hint: p.Hint, After: after, Limit: p.Limit, Pos: p.Position, Stack: p.Stack}
}
