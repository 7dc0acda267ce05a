package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
)

// An answer that is nothing but a call of a tool that cannot be read is asked for once more. What comes then is told as it is.
func TestBrokenCallIsAskedForAgain(t *testing.T) {
	const (
		bad  = `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}}`
		good = `{"candidates":[{"content":{"role":"model","parts":[{"text":"Sunny, I think."}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15}}`
	)
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "stream") {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: "+text+"\n\n")
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		}
	}
	own := func(stream bool) *gateway.Request {
		q := &gateway.Request{
			Protocol: agent.GeminiProtocol, Op: wire.Generate, Path: "/v1beta/models/a/m:generateContent", Header: http.Header{},
			Body: []byte(`{"contents":[{"role":"user","parts":[{"text":"what is the weather?"}]}]}`),
		}
		if stream {
			q.Path, q.Query = "/v1beta/models/a/m:streamGenerateContent", "alt=sse"
		}
		return q
	}
	for name, q := range map[string]func() *gateway.Request{
		"passed":            func() *gateway.Request { return own(false) },
		"passed stream":     func() *gateway.Request { return own(true) },
		"translated":        func() *gateway.Request { return request(agent.ChatProtocol, ask("a/m", false)) },
		"translated stream": func() *gateway.Request { return request(agent.ChatProtocol, ask("a/m", true)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
			up := r.provider("a", agent.GeminiProtocol, inTurn(says(bad), says(good)))
			if out := r.serve(q()); out.err != nil || out.status != 200 || !strings.Contains(out.text(), "Sunny, I think.") || strings.Contains(out.text(), "MALFORMED") {
				t.Errorf("%d %v %s", out.status, out.err, out.text())
			}
			if n := up.calls.Load(); n != 2 || len(r.rows) != 2 || r.rows[0].Model.Fault != agent.StreamBroken || r.rows[0].Model.Tokens.Input != 10 {
				t.Errorf("%d calls: %+v", n, r.rows)
			}
			up.is(says(bad))
			if out := r.serve(q()); out.err != nil || out.status != 200 {
				t.Errorf("%d %v %s", out.status, out.err, out.text())
			}
			if n := up.calls.Load(); n != 4 {
				t.Errorf("%d calls", n)
			}
		})
	}
}
