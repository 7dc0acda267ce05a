package httpfront_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/embed"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/httpfront"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/response"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/gateway/wire"
)

var codecs = []wire.Codec{chat.Codec, response.Codec, message.Codec, gemini.Codec, embed.Codec}

const goodKey = "good-key"

// records are those of an app that has one provider.
type records struct{ provider agent.Provider }

func (r records) Stamp(context.Context, agent.App) (gateway.Stamp, error) {
	return gateway.Stamp{Providers: 1}, nil
}

func (r records) Read(context.Context, agent.App) ([]agent.Provider, []agent.ModelRoute, error) {
	route := agent.ModelRoute{Name: "main", Candidates: []agent.Candidate{{Provider: "p", Model: "m"}}, Revision: 1}
	return []agent.Provider{r.provider}, []agent.ModelRoute{route}, nil
}

// front serves a gateway whose provider answers as text says, a script; or is upstream, which speaks Anthropic's.
func front(t *testing.T, text string, upstream http.HandlerFunc, models ...string) *httptest.Server {
	t.Helper()
	p := agent.Provider{Name: "p", Protocols: agent.Protocols(), Script: "s", Models: []string{"m"}, Revision: 1}
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	if upstream != nil {
		s := httptest.NewServer(upstream)
		t.Cleanup(s.Close)
		p.Script, p.URL, p.Protocols = "", s.URL, []agent.Protocol{agent.MessageProtocol}
	}
	g := gateway.New(&gateway.Options{
		Codecs: codecs, Records: records{p}, Public: tr, Backoff: time.Millisecond,
		Script: func(context.Context, agent.Provider) (http.RoundTripper, error) {
			return script.New([]byte(text), codecs)
		},
	})
	t.Cleanup(func() { _ = g.Close() })
	f := httpfront.New(&httpfront.Options{Gateway: g, Prefix: "/ai", Admit: func(_ context.Context, key string) (gateway.Caller, error) {
		if key != goodKey {
			return gateway.Caller{}, agent.Errorf(agent.Unauthenticated, "this is not the key")
		}
		return gateway.Caller{App: agent.DefaultApp, Models: append([]string{"@main", "p/m"}, models...)}, nil
	}})
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func ask(t *testing.T, s *httptest.Server, method, path, body string, header ...string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

const (
	chatBody    = `{"model":"@main","messages":[{"role":"user","content":"hi"}]%s}`
	messageBody = `{"model":"@main","max_tokens":9,"messages":[{"role":"user","content":"hi"}]%s}`
	respBody    = `{"model":"@main","input":"hi"%s}`
	geminiBody  = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	stream      = `,"stream":true`
)

// TestProtocols asks in each protocol, with the key where its clients send it, whole and as a stream.
func TestProtocols(t *testing.T) {
	s := front(t, `{"turns":[{"reply":{"text":"Hello from the script"}}]}`, nil)
	for _, tt := range []struct {
		path, body string
		key        [2]string
		typ, want  string
	}{
		{"/ai/v1/chat/completions", fmt.Sprintf(chatBody, ""), [2]string{"Authorization", "Bearer " + goodKey}, "application/json", `"Hello from the script"`},
		{"/ai/chat/completions", fmt.Sprintf(chatBody, stream), [2]string{"Authorization", "bearer " + goodKey}, "text/event-stream", "data: [DONE]"},
		{"/ai/v1/messages", fmt.Sprintf(messageBody, ""), [2]string{"X-Api-Key", goodKey}, "application/json", `"Hello from the script"`},
		{"/ai/v1/messages?beta=true", fmt.Sprintf(messageBody, stream), [2]string{"Authorization", "Bearer " + goodKey}, "text/event-stream", "message_stop"},
		{"/ai/v1/messages/count_tokens", fmt.Sprintf(messageBody, ""), [2]string{"X-Api-Key", goodKey}, "application/json", `"input_tokens"`},
		{"/ai/v1/responses", fmt.Sprintf(respBody, ""), [2]string{"Authorization", "Bearer " + goodKey}, "application/json", `"Hello from the script"`},
		{"/ai/responses", fmt.Sprintf(respBody, stream), [2]string{"Authorization", "Bearer " + goodKey}, "text/event-stream", "response.completed"},
		{"/ai/v1beta/models/p%2Fm:generateContent", geminiBody, [2]string{"X-Goog-Api-Key", goodKey}, "application/json", `"Hello from the script"`},
		{"/ai/v1beta/models/@main:streamGenerateContent?alt=sse&key=" + goodKey, geminiBody, [2]string{"X", "y"}, "text/event-stream", `"finishReason"`},
		{"/ai/v1beta/models/@main:countTokens?key=" + goodKey, geminiBody, [2]string{"X", "y"}, "application/json", `"totalTokens"`},
	} {
		res, got, err := ask(t, s, "POST", tt.path, tt.body, tt.key[0], tt.key[1], "Content-Type", "application/json")
		if err != nil || res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), tt.typ) || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %v %d %s\n%s", tt.path, err, res.StatusCode, res.Header.Get("Content-Type"), got)
		}
	}
	for _, tt := range []struct{ path, header, value, want string }{
		{"/ai/v1/models", "", "", `"object":"list"`}, {"/ai/models", "", "", `"@main"`}, {"/ai/v1/models", "Anthropic-Version", "2023-06-01", `"has_more"`},
		{"/ai/v1/models/@main", "", "", `"id":"@main"`}, {"/ai/v1beta/models", "", "", `"models/`}, {"/ai/v1beta/models/@main", "", "", `"name":"models/@main"`},
	} {
		header := []string{"X-Api-Key", goodKey}
		if tt.header != "" {
			header = append(header, tt.header, tt.value)
		}
		res, got, err := ask(t, s, "GET", tt.path, "", header...)
		if err != nil || res.StatusCode != 200 || !strings.Contains(strings.ReplaceAll(got, " ", ""), tt.want) {
			t.Errorf("%s: %v %d %s", tt.path, err, res.StatusCode, got)
		}
	}
	for _, path := range []string{"/ai", "/ai/"} {
		if res, _, _ := ask(t, s, "HEAD", path, ""); res.StatusCode != 200 {
			t.Errorf("HEAD %s: %d", path, res.StatusCode)
		}
	}
}

// TestErrors wants each protocol's own form for errors that the front finds.
func TestErrors(t *testing.T) {
	s := front(t, `{"turns":[{"reply":{"text":"never"}}]}`, nil)
	for _, tt := range []struct {
		method, path, body, key string
		status                  int
		field                   string // of the answer
	}{
		{"POST", "/ai/v1/chat/completions", "{}", "", 401, "error.message"},
		{"POST", "/ai/v1/chat/completions", "{}", "bad", 401, "error.message"},
		{"POST", "/ai/v1/messages", "{}", "bad", 401, "error.type"},
		{"POST", "/ai/v1beta/models/m:generateContent", "{}", "bad", 401, "error.status"},
		{"GET", "/ai/v1/models", "", "bad", 401, "error.message"},
		{"POST", "/ai/v1/messages/batches", "{}", goodKey, 404, "error.type"},
		{"GET", "/ai/v1/messages", "", goodKey, 404, "error.type"},
		{"PUT", "/ai/v1beta/models", "", goodKey, 404, "error.status"},
		{"POST", "/ai/v1beta/models/", geminiBody, goodKey, 400, "error.status"},
		{"POST", "/ai/v1/v1/chat/completions", "{}", goodKey, 404, "error.message"},
		{"POST", "/ai/v2/x", "{}", goodKey, 404, "error.message"},
		{"POST", "/ai/v1/chat/completions", `{"model":"p/other","messages":[{"role":"user","content":"hi"}]}`, goodKey, 403, "error.message"},
		{"POST", "/ai/v1/chat/completions", `{"model":`, goodKey, 400, "error.message"},
	} {
		res, got, _ := ask(t, s, tt.method, tt.path, tt.body, "Authorization", "Bearer "+tt.key)
		var form map[string]map[string]any
		_ = json.Unmarshal([]byte(got), &form)
		outer, inner, _ := strings.Cut(tt.field, ".")
		if v, ok := form[outer][inner]; res.StatusCode != tt.status || !ok || v == "" {
			t.Errorf("%s %s %.40s: %d %s; want %d with %s", tt.method, tt.path, tt.body, res.StatusCode, got, tt.status, tt.field)
		}
	}
}

// TestTooLarge announces more than is taken, and sends nothing of it.
func TestTooLarge(t *testing.T) {
	s := front(t, `{"turns":[{"reply":{"text":"never"}}]}`, nil)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /ai/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n", goodKey, gateway.MaxBody+1)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
		t.Errorf("%q, %v", line, err)
	}
}

// TestFlushed wants each piece of a stream while the next one is not there yet, and the provider to learn when the client has gone.
func TestFlushed(t *testing.T) {
	gone := make(chan struct{})
	s := front(t, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, messageStart)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/ai/v1/messages", strings.NewReader(fmt.Sprintf(messageBody, stream)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", goodKey)
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(res.Body)
	for in.Scan() && !strings.Contains(in.Text(), "early") {
	}
	if in.Err() != nil || !strings.Contains(in.Text(), "early") {
		t.Errorf("%q, %v", in.Text(), in.Err())
	}
	_ = res.Body.Close()
	<-gone
}

const messageStart = `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"early"}}

`

// TestBroken has a provider break off in a stream: the client is told, and must not take what came for the whole.
func TestBroken(t *testing.T) {
	s := front(t, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, messageStart)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, got, err := ask(t, s, "POST", "/ai/v1/messages", fmt.Sprintf(messageBody, stream), "X-Api-Key", goodKey)
	if err == nil || !strings.Contains(got, "early") || !strings.Contains(got, "event: error") {
		t.Errorf("%v\n%s", err, got)
	}
}
