package api

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	chatcodec "github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/embed"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/httpfront"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/response"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
)

var aiCodecs = []wire.Codec{chatcodec.Codec, response.Codec, message.Codec, gemini.Codec, embed.Codec}

// newModels returns a gateway whose providers have scripts.
func newModels(st *store.Store, usage *ledger.Ledger) *gateway.Gateway {
	return gateway.New(&gateway.Options{
		Codecs: aiCodecs, Records: gateway.FromStore(st), Ledger: usage, Ping: 50 * time.Millisecond,
		Script: func(ctx context.Context, p agent.Provider) (http.RoundTripper, error) {
			b, err := st.Blob(ctx, p.Script)
			if err != nil {
				return nil, err
			}
			return script.New(b, aiCodecs)
		},
	})
}

// model adds a provider with a script, which speaks the protocols given, or all.
func (r *rig) model(name, text string, speaks ...agent.Protocol) {
	r.t.Helper()
	d, err := r.s.st.PutBlob(context.Background(), []byte(text))
	if err != nil {
		r.t.Fatal(err)
	}
	if speaks == nil {
		speaks = agent.Protocols()
	}
	p := agent.Provider{Name: name, App: "default", Protocols: speaks, Script: d, Models: []string{"m"}}
	if _, err := r.s.st.PutDoc(context.Background(), store.Providers, "default", name, 0, p); err != nil {
		r.t.Fatal(err)
	}
}

// key adds a virtual key with that value.
func (r *rig) key(value string, k agent.ModelKey) {
	r.t.Helper()
	k.ID, k.App = string(agent.NewTokenID(time.Now())), "default"
	if err := r.s.st.PutModelKey(context.Background(), k, sha256.Sum256([]byte(value))); err != nil {
		r.t.Fatal(err)
	}
}

const hello = `{"reply":{"text":"Hello there, this is scripted."}}`

// asks are the requests of each protocol.
var asks = []struct {
	name, path, body, stream, text, end string
}{
	{"chat", "/ai/v1/chat/completions", `{"model":"p/m","messages":[{"role":"user","content":"hi"}]}`, `"stream":true,`, "choices", "data: [DONE]"},
	{"chat short", "/ai/chat/completions", `{"model":"p/m","messages":[{"role":"user","content":"hi"}]}`, `"stream":true,`, "choices", "data: [DONE]"},
	{"responses", "/ai/v1/responses", `{"model":"p/m","input":"hi"}`, `"stream":true,`, "output", "response.completed"},
	{"messages", "/ai/v1/messages", `{"model":"p/m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`, `"stream":true,`, "content", "message_stop"},
	{"gemini", "/ai/v1beta/models/p/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, "", "candidates", "STOP"},
}

func TestAI(t *testing.T) {
	for _, speaks := range []agent.Protocol{agent.ChatProtocol, agent.ResponseProtocol, agent.MessageProtocol, agent.GeminiProtocol} {
		r := start(t, nil)
		r.model("p", hello, speaks)
		for _, c := range asks {
			for _, stream := range []bool{false, true} {
				path, body := c.path, c.body
				if stream {
					body = strings.Replace(body, "{", "{"+c.stream, 1)
					path = strings.Replace(path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
				}
				res := r.do("POST", path, body)
				got := string(res.body)
				if res.StatusCode != 200 || !strings.Contains(got, c.text) || stream != strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
					t.Errorf("%s of a provider of %s, stream %v: %s %s", c.name, speaks, stream, res.Status, got)
				}
				if stream && !strings.Contains(got, c.end) || !stream && !strings.Contains(got, "Hello there, this is scripted.") {
					t.Errorf("%s of a provider of %s, stream %v: %s", c.name, speaks, stream, got)
				}
				if res.Header.Get("X-Skep-Model") != "p/m" || res.Header.Get("X-Skep-Attempts") != "1" || res.Header.Get("X-Skep-Call") == "" {
					t.Errorf("%s: the header is %v", c.name, res.Header)
				}
			}
		}
	}
}

// What a route is there for is known by its path.
func TestAIRoutesAreFound(t *testing.T) {
	for _, r := range new(Server).aiRoutes() {
		path := strings.TrimPrefix(strings.ReplaceAll(r.path, "{path}", "p/m"), aiPrefix)
		if p, op := httpfront.Find(r.method, path, http.Header{}); r.ai && (p == agent.NoProtocol || op == wire.NoOp) {
			t.Errorf("%s %s: %s, %v", r.method, r.path, p, op)
		}
	}
}

func TestAIEmbeddingsAndModels(t *testing.T) {
	r := start(t, nil)
	r.model("p", hello)
	if res := r.do("POST", "/ai/v1/embeddings", `{"model":"p/m","input":["a","b"]}`); res.StatusCode != 200 || strings.Count(string(res.body), `"index"`) != 2 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	for target, want := range map[string]string{
		"/ai/v1/models": `"object":"list"`, "/ai/models/p/m": `"object":"model"`, "/ai/v1beta/models": `"models":`, "/ai/v1beta/models/p/m": `models/p/m`,
	} {
		if res := r.do("GET", target, ""); res.StatusCode != 200 || !strings.Contains(strings.ReplaceAll(string(res.body), " ", ""), want) {
			t.Errorf("%s: %s %s", target, res.Status, res.body)
		}
	}
	if res := r.do("GET", "/ai/v1/models", "", "anthropic-version", "2023-06-01"); !strings.Contains(string(res.body), "has_more") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if res := r.do("HEAD", "/ai", ""); res.StatusCode != 200 {
		t.Errorf("%s", res.Status)
	}
	if res := r.do("POST", "/ai/v1/messages/count_tokens", `{"model":"p/m","messages":[{"role":"user","content":"count this, please"}]}`); res.StatusCode != 200 || !strings.Contains(string(res.body), "input_tokens") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	for _, path := range []string{"/ai/v1/responses/input_tokens", "/ai/responses/input_tokens"} {
		if res := r.do("POST", path, `{"model":"p/m","input":"count this, please"}`); res.StatusCode != 200 || !strings.Contains(string(res.body), `"input_tokens":`) {
			t.Errorf("%s %s", res.Status, res.body)
		}
	}
}

// A client that would rather have a WebSocket is told at once that there is none, so that it asks by HTTP.
func TestAIHasNoWebSocketOfItsOwn(t *testing.T) {
	r := start(t, nil)
	r.model("p", hello)
	res := r.do("GET", "/ai/v1/responses", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	if res.StatusCode != 404 && res.StatusCode != 405 {
		t.Errorf("%s %s", res.Status, res.body)
	}
}

func TestAIKeys(t *testing.T) {
	r := start(t, nil)
	r.model("p", hello)
	r.key("my-anthropic-api-key", agent.ModelKey{Name: "all"})
	r.key("narrow", agent.ModelKey{Name: "narrow", Models: []string{"@none"}})
	for _, c := range []struct {
		name   string
		header []string
		query  string
		status int
	}{
		{"bearer", []string{"Authorization", "Bearer my-anthropic-api-key"}, "", 200},
		{"x-api-key", []string{"Authorization", "", "X-Api-Key", "my-anthropic-api-key"}, "", 200},
		{"x-goog-api-key", []string{"Authorization", "", "X-Goog-Api-Key", "my-anthropic-api-key"}, "", 200},
		{"query", []string{"Authorization", ""}, "?key=my-anthropic-api-key", 200},
		{"a token as x-api-key", []string{"Authorization", "", "X-Api-Key", r.token}, "", 200},
		{"a token in the URL", []string{"Authorization", ""}, "?key=" + r.token, 401},
		{"wrong", []string{"Authorization", "Bearer wrong"}, "", 401},
		{"none", []string{"Authorization", ""}, "", 401},
		{"another model", []string{"Authorization", "Bearer narrow"}, "", 403},
		{"another app", []string{"Authorization", "Bearer narrow", headerApp, "x"}, "", 403},
	} {
		for _, a := range asks {
			res := r.do("POST", a.path+c.query, a.body, c.header...)
			if res.StatusCode != c.status {
				t.Errorf("%s, %s: %s %s", c.name, a.name, res.Status, res.body)
			}
			var e struct {
				Error struct{ Message string } `json:"error"`
			}
			if c.status != 200 && (json.Unmarshal(res.body, &e) != nil || e.Error.Message == "" || res.Header.Get("Content-Type") == typeProblem) {
				t.Errorf("%s, %s: the error is not in its dialect: %s", c.name, a.name, res.body)
			}
		}
	}
	if res := r.do("GET", "/v1/agents", "", "Authorization", "Bearer my-anthropic-api-key"); res.StatusCode != 401 {
		t.Errorf("a virtual key is good for more than models: %s", res.Status)
	}
}

func TestAIMetrics(t *testing.T) {
	r := start(t, nil)
	r.model("p", hello)
	r.model("q", `{"fault":{"status":400,"message":"not so"}}`)
	for _, model := range []string{"p/m", "p/m", "q/m"} {
		r.do("POST", "/ai/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"hi"}]}`)
	}
	res := r.do("GET", "/metrics", "")
	for _, want := range []string{
		`skep_model_calls_total{app="default",provider="p"} 2`, `skep_model_calls_total{app="default",provider="q"} 1`,
		`skep_model_faults_total{app="default",class="invalid",provider="q"} 1`, `skep_model_tokens_total{app="default",direction="input",provider="p"} `,
		`skep_model_provider_open{app="default",provider="p"} 0`, `skep_model_seconds_total{app="default",provider="p"} `,
	} {
		if !strings.Contains(string(res.body), want) {
			t.Errorf("no %s in\n%s", want, res.body)
		}
	}
	if strings.Contains(string(res.body), `skep_model_faults_total{app="default",class="invalid",provider="p"}`) {
		t.Errorf("faults of p in\n%s", res.body)
	}
}

// A stream that breaks ends with an error and without the end of the chunked body.
func TestAIBrokenStream(t *testing.T) {
	r := start(t, nil)
	r.model("p", `{"reply":{"text":"one two three four five six seven eight nine ten","chunk":4,"pace_ms":5},"cut":6}`, agent.MessageProtocol)
	for _, c := range asks[:4] {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", r.url+c.path, strings.NewReader(strings.Replace(c.body, "{", "{"+c.stream, 1)))
		req.Header.Set("Authorization", "Bearer "+r.token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 200 || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(b), "error") || strings.Contains(string(b), c.end) {
			t.Errorf("%s: %s %v %s", c.name, res.Status, err, b)
		}
	}
}

// A client that goes away ends the call, before the answer begins and after.
func TestAIClientGone(t *testing.T) {
	for name, text := range map[string]string{
		"before": `{"reply":{"text":"x","delay_ms":600000}}`, "after": `{"reply":{"text":"one two three four five","chunk":4},"stall":4}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			r.model("p", text)
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			body := `{"model":"p/m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
			_, _ = fmt.Fprintf(conn, "POST /ai/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", r.token, len(body), body)
			if name == "after" {
				if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			deadline := time.After(20 * time.Second)
			wait := time.NewTicker(10 * time.Millisecond)
			defer wait.Stop()
			for closed := false; ; {
				tot := r.s.o.Models.Totals()
				if len(tot) == 1 && tot[0].Faults[agent.ClientAbort] == 1 && !tot[0].Open {
					return
				}
				select {
				case <-wait.C:
					if !closed {
						closed = true
						_ = conn.Close()
					}
				case <-deadline:
					t.Fatalf("the call goes on: %+v", tot)
				}
			}
		})
	}
}
