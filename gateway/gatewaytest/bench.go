//go:build unix

// Package gatewaytest is what the benchmarks of the gateway, of the API and of the whole server have in common: a provider, httputil.ReverseProxy before it, and
// the requests that are measured.
package gatewaytest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/gateway/upstream"
)

const whole = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Sunny, I think."}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}`

// frames are a streamed answer with 48 pieces of text.
var frames = slices.Concat([]string{
	"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
}, slices.Repeat([]string{
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"I think.\"}}\n\n",
}, 48), []string{
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n",
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
})

// Bench is what a gateway is measured against.
type Bench struct {
	Provider  string              // URL of a provider of the Messages protocol
	Transport *upstream.Transport // to it, as the server has it
	reverse   string              // URL of the proxy
}

// NewBench starts a provider and a proxy, which end with b.
func NewBench(b *testing.B) *Bench {
	up := httptest.NewServer(http.HandlerFunc(Answer))
	b.Cleanup(up.Close)
	to, err := url.Parse(up.URL)
	if err != nil {
		b.Fatal(err)
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	b.Cleanup(tr.CloseIdleConnections)
	reverse := httptest.NewServer(Proxy(to, tr))
	b.Cleanup(reverse.Close)
	own := upstream.New(tr)
	b.Cleanup(own.CloseIdleConnections)
	return &Bench{Provider: up.URL, Transport: own, reverse: reverse.URL}
}

// Proxy is the peer: httputil.ReverseProxy, which reads the body of a request whole before it passes it on.
func Proxy(to *url.URL, tr http.RoundTripper) http.Handler {
	proxy := &httputil.ReverseProxy{Transport: tr, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})
}

// Answer is the provider: it answers Anthropic messages, whole or in 53 events that are sent one by one.
func Answer(w http.ResponseWriter, r *http.Request) {
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
}

// Run measures the CPU time of requests, of which that of the client and the provider alone ("direct") is to be taken away: what is left is compared with
// httputil.ReverseProxy, whose body is buffered. Milliseconds depend on what else the machine does; CPU time does much less. base is the gateway's URL, where
// the provider is called a.
func (x *Bench) Run(b *testing.B, base, key string) {
	const messages, chat = "/v1/messages", "/v1/chat/completions"
	cl := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer cl.CloseIdleConnections()
	for _, stream := range []bool{false, true} {
		for _, c := range []struct{ name, url, model string }{
			{"direct", x.Provider + messages, "m"}, {"reverse", x.reverse + messages, "m"}, {"pass", base + messages, "a/m"}, {"translated", base + chat, "a/m"},
		} {
			if stream {
				c.name += "-stream"
			}
			body := fmt.Sprintf(`{"model":%q,"max_tokens":100,"stream":%v,"messages":[{"role":"user","content":"what is the weather?"}]}`, c.model, stream)
			b.Run(c.name, func(b *testing.B) {
				b.ReportAllocs()
				was := cpu()
				for b.Loop() {
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, c.url, strings.NewReader(body))
					if err != nil {
						b.Fatal(err)
					}
					req.Header.Set("Authorization", "Bearer "+key)
					req.Header.Set("Content-Type", "application/json")
					res, err := cl.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					if res.StatusCode != http.StatusOK {
						b.Fatal(res.Status)
					}
				}
				b.ReportMetric(float64((cpu()-was).Microseconds())/float64(b.N), "cpu-us/op")
			})
		}
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it never fails for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
