package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/store"
)

// BenchmarkAI measures the CPU time of requests of models through the server, ledger and all, against httputil.ReverseProxy with a buffered body. That of
// the client and the upstream alone ("direct") is to be taken away from both.
func BenchmarkAI(b *testing.B) {
	const whole = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Sunny, I think."}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}`
	frames := []string{"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"}
	for range 48 {
		frames = append(frames, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"I think.\"}}\n\n")
	}
	frames = append(frames, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n",
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for _, f := range frames {
			_, _ = io.WriteString(w, f)
			_ = flush.Flush()
		}
	}))
	defer up.Close()
	to, _ := url.Parse(up.URL)
	tr := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	proxy := &httputil.ReverseProxy{Transport: tr, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	reverse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	defer reverse.Close()

	r := start(b, nil)
	if _, err := r.s.st.PutDoc(context.Background(), store.Providers, "default", "a", 0, agent.Provider{
		Name: "a", App: "default", URL: up.URL, Protocols: []agent.Protocol{agent.MessageProtocol}, Keys: []agent.ProviderKey{{Secret: "k"}},
	}); err != nil {
		b.Fatal(err)
	}
	r.s.o.Models = gateway.New(&gateway.Options{
		Codecs: aiCodecs, Records: gateway.FromStore(r.s.st), Ledger: r.s.rt.Ledger(), Public: tr,
		Secret: func(context.Context, agent.App, string, string, string) (string, error) {
			return "sk-0123456789abcdef", nil
		},
	})
	r.key("bench-key", agent.ModelKey{Name: "bench"})
	ask := func(model, more string) string {
		return `{"model":"` + model + `","max_tokens":100,` + more + `"messages":[{"role":"user","content":"what is the weather?"}]}`
	}
	cl := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	for _, c := range []struct{ name, url, body string }{
		{"direct", up.URL + "/v1/messages", ask("m", "")},
		{"reverse", reverse.URL + "/v1/messages", ask("m", "")},
		{"pass", r.url + "/ai/v1/messages", ask("a/m", "")},
		{"translated", r.url + "/ai/v1/chat/completions", ask("a/m", "")},
		{"direct-stream", up.URL + "/v1/messages", ask("m", `"stream":true,`)},
		{"reverse-stream", reverse.URL + "/v1/messages", ask("m", `"stream":true,`)},
		{"pass-stream", r.url + "/ai/v1/messages", ask("a/m", `"stream":true,`)},
		{"translated-stream", r.url + "/ai/v1/chat/completions", ask("a/m", `"stream":true,`)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := func() time.Duration {
				var u syscall.Rusage
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
				return time.Duration(u.Utime.Nano() + u.Stime.Nano())
			}
			was := cpu()
			for b.Loop() {
				req, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, c.url, strings.NewReader(c.body))
				req.Header.Set("Authorization", "Bearer bench-key")
				res, err := cl.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != 200 {
					b.Fatal(res.Status)
				}
			}
			b.ReportMetric(float64((cpu()-was).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}
