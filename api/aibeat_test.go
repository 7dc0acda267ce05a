package api

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/store"
)

// While the provider is silent the client gets signs of life, between the chunks of what the provider sends.
func TestAISignsOfLife(t *testing.T) {
	on := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"model\":\"m\",\"usage\":{\"input_tokens\":1}}}\n\n"+
			"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"+
			"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"one\"}}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-on:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"+
			"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\ndata: {\"type\":\"message_stop\"}\n\n")
	}))
	defer up.Close()
	r := start(t, nil)
	if _, err := r.s.st.PutDoc(context.Background(), store.Providers, "default", "a", 0, agent.Provider{
		Name: "a", App: "default", URL: up.URL, Protocols: []agent.Protocol{agent.MessageProtocol},
	}); err != nil {
		t.Fatal(err)
	}
	r.s.o.Models = gateway.New(&gateway.Options{
		Codecs: aiCodecs, Records: gateway.FromStore(r.s.st), Ledger: r.s.rt.Ledger(), Public: http.DefaultTransport, Ping: 20 * time.Millisecond,
	})
	req, _ := http.NewRequestWithContext(t.Context(), "POST", r.url+"/ai/v1/messages", strings.NewReader(`{"model":"a/m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	req.Header.Set("Authorization", "Bearer "+r.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got []byte
	for part := make([]byte, 512); strings.Count(string(got), "event: ping") < 2; {
		n, err := res.Body.Read(part)
		if got = append(got, part[:n]...); err != nil {
			t.Fatalf("%v after %s", err, got)
		}
	}
	close(on)
	rest, err := io.ReadAll(res.Body)
	if got = append(got, rest...); err != nil || !strings.Contains(string(got), `"one"`) || !strings.HasSuffix(string(got), "data: {\"type\":\"message_stop\"}\n\n") {
		t.Errorf("%v: %s", err, got)
	}
}
