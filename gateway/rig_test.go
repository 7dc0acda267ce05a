package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/script"
	transport "github.com/skep-dev/skep/gateway/upstream"
	"github.com/skep-dev/skep/gateway/wire"
)

var codecs = []wire.Codec{chat.Codec, message.Codec}

// rig is a gateway with what is around it in memory, and with providers that are HTTP servers on loopback.
type rig struct {
	*testing.T
	g    *gateway.Gateway
	opts gateway.Options

	mu        sync.Mutex
	providers []agent.Provider
	routes    []agent.ModelRoute
	stamp     int64
	begun     map[string]agent.UsageEvent
	rows      []agent.UsageEvent
	twice     []string
	holds     []gateway.Hold
	held      int64
	settled   int64
	refused   []string
	secrets   map[string]string
	scripts   map[agent.Digest]string
}

func newRig(t *testing.T, change ...func(*gateway.Options)) *rig {
	r := &rig{T: t, begun: map[string]agent.UsageEvent{}, secrets: map[string]string{}, scripts: map[agent.Digest]string{}}
	tr := transport.New(&http.Transport{MaxIdleConnsPerHost: 256})
	t.Cleanup(tr.CloseIdleConnections)
	r.opts = gateway.Options{
		Codecs: codecs, Records: r, Public: tr, Ledger: r, Backoff: time.Millisecond,
		Secret: func(_ context.Context, _ agent.App, _, name, _ string) (string, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if v, ok := r.secrets[name]; ok {
				return v, nil
			}
			return "value-of-" + name, nil
		},
		Price: func(_ *agent.Provider, model string, tokens agent.ModelTokens, _ string, _ time.Time) (*int64, string) {
			if model == "unpriced" {
				return nil, "test"
			}
			return new(tokens.Input*3 + tokens.Output*15), "test"
		},
		Hold: func(_ context.Context, h gateway.Hold) (gateway.Held, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.holds = append(r.holds, h)
			r.held += h.Tokens
			return &held{r, h.Tokens}, nil
		},
		Refused: func(_ agent.App, provider, secret string, why agent.FaultClass, _ time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.refused = append(r.refused, fmt.Sprint(provider, " ", secret, " ", why))
		},
		Script: func(_ context.Context, p agent.Provider) (http.RoundTripper, error) {
			return script.New([]byte(r.scripts[p.Script]), codecs)
		},
	}
	for _, f := range change {
		f(&r.opts)
	}
	r.g = gateway.New(&r.opts)
	t.Cleanup(func() {
		_ = r.g.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.begun) > 0 {
			t.Errorf("%d calls have no end in the ledger", len(r.begun))
		}
		if len(r.twice) > 0 {
			t.Errorf("calls ended twice or without a beginning: %v", r.twice)
		}
		if r.held != 0 {
			t.Errorf("%d tokens are still held", r.held)
		}
	})
	return r
}

type held struct {
	r *rig
	n int64
}

func (h *held) Settle(tokens int64, _ *int64) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.r.held, h.r.settled, h.n = h.r.held-h.n, h.r.settled+tokens, 0
}

func (h *held) Release() { h.Settle(0, nil) }

func (r *rig) Stamp(context.Context, agent.App) (gateway.Stamp, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return gateway.Stamp{Providers: r.stamp}, nil
}

func (r *rig) Read(context.Context, agent.App) ([]agent.Provider, []agent.ModelRoute, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]agent.Provider(nil), r.providers...), append([]agent.ModelRoute(nil), r.routes...), nil
}

func (r *rig) Begin(e agent.UsageEvent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun[e.Model.Call] = e
	return nil
}

func (r *rig) Append(e agent.UsageEvent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.begun[e.Model.Call]; !ok {
		r.twice = append(r.twice, e.Model.Call)
	}
	delete(r.begun, e.Model.Call)
	r.rows = append(r.rows, e)
	return nil
}

func (r *rig) usage() []agent.UsageEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]agent.UsageEvent(nil), r.rows...)
}

// row is the only row of the ledger.
func (r *rig) row() *agent.ModelUse {
	r.Helper()
	rows := r.usage()
	if len(rows) != 1 {
		r.Fatalf("the ledger has %d rows, not one: %+v", len(rows), rows[0].Model)
	}
	return rows[0].Model
}

// provider adds a provider that is the server h.
func (r *rig) provider(name string, speaks agent.Protocol, h http.HandlerFunc, change ...func(*agent.Provider)) *upstream {
	u := &upstream{}
	u.h.Store(&h)
	u.srv = httptest.NewServer(u)
	r.Cleanup(u.srv.Close)
	p := agent.Provider{
		Name: name, URL: u.srv.URL, Protocols: []agent.Protocol{speaks}, Keys: []agent.ProviderKey{{Secret: name + "-key"}}, Revision: 1,
	}
	for _, f := range change {
		f(&p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.providers = append(r.providers, p)
	r.stamp++
	return u
}

func (r *rig) route(m agent.ModelRoute) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.routes = append(r.routes, m)
	r.stamp++
}

// upstream counts what reaches it.
type upstream struct {
	h     atomic.Pointer[http.HandlerFunc]
	srv   *httptest.Server
	calls atomic.Int64
}

// is makes h what answers from now on.
func (u *upstream) is(h http.HandlerFunc) { u.h.Store(&h) }

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(b)))
	u.calls.Add(1)
	(*u.h.Load())(w, r)
}

// got is what a client got.
type got struct {
	mu     sync.Mutex
	status int
	header http.Header
	body   strings.Builder
	err    error
	wrote  chan struct{} // has one when something was written
	after  int           // writes fail from this one on, from 1
	writes int
}

func (g *got) Begin(status int, h http.Header) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.status != 0 {
		panic("begun twice")
	}
	g.status, g.header = status, h
	return nil
}

func (g *got) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writes++; g.after > 0 && g.writes >= g.after {
		return 0, errors.New("nobody is there")
	}
	if g.wrote != nil {
		select {
		case g.wrote <- struct{}{}:
		default:
		}
	}
	return g.body.Write(p)
}

func (g *got) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.body.String()
}

const (
	messagePath = "/v1/messages"
	chatPath    = "/v1/chat/completions"
)

func ask(model string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":100,"stream":%v,"messages":[{"role":"user","content":"what is the weather?"}],"future_field":[1, 2]}`, model, stream)
}

func request(p agent.Protocol, body string) *gateway.Request {
	path := messagePath
	if p == agent.ChatProtocol {
		path = chatPath
	}
	return &gateway.Request{Protocol: p, Op: wire.Generate, Path: path, Header: http.Header{"Anthropic-Version": {"2023-06-01"}}, Body: []byte(body)}
}

func (r *rig) serve(req *gateway.Request) *got {
	out := &got{}
	out.err = r.g.Serve(r.Context(), gateway.Caller{App: "default", Key: "k1"}, req, out)
	return out
}

func (r *rig) message(model string, stream bool) *got {
	return r.serve(request(agent.MessageProtocol, ask(model, stream)))
}

const whole = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Sunny, I think."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":5,"new_field":1}}`

var frames = []string{
	"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Sunny, \"}}\n\n",
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"I think.\"}}\n\n",
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":5}}\n\n",
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
}

// good answers as a model does.
func good(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(b), `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req_up")
		_, _ = io.WriteString(w, whole)
		return
	}
	some(len(frames))(w, r)
}

// some streams so many frames, and then the clean end of the connection.
func some(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, f := range frames[:n] {
			_, _ = io.WriteString(w, f)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// cut streams so many frames and then breaks the connection.
func cut(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		some(n)(w, r)
		panic(http.ErrAbortHandler)
	}
}

// stall streams so many frames and then says nothing.
func stall(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		some(n)(w, r)
		<-r.Context().Done()
	}
}

// fails answers with an error.
func fails(status int, typ string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":"no"},"request_id":"req_up"}`, typ)
	}
}

// inTurn answers by one handler after the other, the last one from then on.
func inTurn(list ...http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) { list[min(int(n.Add(1)), len(list))-1](w, r) }
}

func broken(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
