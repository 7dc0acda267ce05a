package backendtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/httpfront"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/response"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/gateway/wire"
)

// modelKey is what the gateway lets in.
const modelKey = "skm_the-key-of-one-run"

// Call is a call of a tool that the model makes, for scripts.
func Call(name string, args any) script.Call {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return script.Call{Name: name, Args: b}
}

// Request is one that came to the gateway.
type Request struct {
	Method string
	Path   string // with /ai
	Body   []byte
	Status int  // 0 while it is not answered
	Gone   bool // the CLI hung up before the answer was whole
}

// models is the gateway with one provider, which answers from a script.
type models struct {
	g     *gateway.Gateway
	front http.Handler

	mu   sync.Mutex
	list []*Request
}

var (
	codecs    = []wire.Codec{chat.Codec, response.Codec, message.Codec, gemini.Codec}
	protocols = []agent.Protocol{agent.ChatProtocol, agent.ResponseProtocol, agent.MessageProtocol, agent.GeminiProtocol}
)

func newModels(t testing.TB, text string) *models {
	t.Helper()
	play, err := script.New([]byte(text), codecs)
	if err != nil {
		t.Fatal(err)
	}
	m := &models{}
	m.g = gateway.New(&gateway.Options{
		Codecs: codecs, Records: m,
		Script: func(context.Context, agent.Provider) (http.RoundTripper, error) { return play, nil },
	})
	m.front = httpfront.New(&httpfront.Options{Gateway: m.g, Prefix: driver.ModelPath, Admit: admit})
	t.Cleanup(func() { _ = m.g.Close() })
	return m
}

// Stamp and Read are gateway.Records: a provider test, and a route main to it.
func (m *models) Stamp(context.Context, agent.App) (gateway.Stamp, error) {
	return gateway.Stamp{Providers: 1}, nil
}

func (m *models) Read(context.Context, agent.App) ([]agent.Provider, []agent.ModelRoute, error) {
	p := agent.Provider{Name: "test", Protocols: protocols, Script: "script", Revision: 1}
	r := agent.ModelRoute{Name: "main", Attempts: 1, Candidates: []agent.Candidate{{Provider: "test", Model: "scripted"}}}
	return []agent.Provider{p}, []agent.ModelRoute{r}, nil
}

// admit lets in who has the key of the box.
func admit(_ context.Context, key string) (gateway.Caller, error) {
	if key != modelKey {
		return gateway.Caller{}, agent.Errorf(agent.Unauthenticated, "the key is not that of this box")
	}
	return gateway.Caller{App: agent.DefaultApp}, nil
}

// ServeHTTP remembers a request, and lets the gateway answer it.
func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	seen := &Request{Method: r.Method, Path: r.URL.Path, Body: body}
	m.mu.Lock()
	m.list = append(m.list, seen)
	m.mu.Unlock()
	a := &answered{ResponseWriter: w}
	defer func() {
		m.mu.Lock()
		seen.Status, seen.Gone = a.status, r.Context().Err() != nil
		m.mu.Unlock()
	}()
	m.front.ServeHTTP(a, r)
}

// answered remembers the status of an answer.
type answered struct {
	http.ResponseWriter
	status int
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (m *models) requests() (out []Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.list {
		out = append(out, *r)
	}
	return out
}
