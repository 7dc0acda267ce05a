//go:build unix

package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/gatewaytest"
)

// BenchmarkGateway measures the gateway behind net/http.
func BenchmarkGateway(b *testing.B) {
	x := gatewaytest.NewBench(b)
	rig := &benchRig{providers: []agent.Provider{
		{Name: "a", URL: x.Provider, Protocols: []agent.Protocol{agent.MessageProtocol}, Keys: []agent.ProviderKey{{Secret: "k"}}, Revision: 1},
	}}
	g := gateway.New(&gateway.Options{
		Codecs: codecs, Records: rig, Ledger: rig, Public: x.Transport,
		Secret: func(context.Context, agent.App, string, string, string) (string, error) {
			return "sk-0123456789abcdef", nil
		},
		Price: func(*agent.Provider, string, agent.ModelTokens, string, time.Time) (*int64, string) {
			return new(int64(1)), "v"
		},
	})
	gw := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p := agent.MessageProtocol
		if r.URL.Path == chatPath {
			p = agent.ChatProtocol
		}
		req := request(p, string(body))
		req.Header = r.Header
		_ = g.Serve(r.Context(), gateway.Caller{App: "default"}, req, &netSink{w, http.NewResponseController(w)})
	}))
	defer gw.Close()
	x.Run(b, gw.URL, "")
}

type netSink struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

func (s *netSink) Begin(status int, h http.Header) error {
	for name, vs := range h {
		s.w.Header()[name] = vs
	}
	s.w.WriteHeader(status)
	return nil
}

func (s *netSink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.flush.Flush()
	}
	return n, err
}

type benchRig struct{ providers []agent.Provider }

func (r *benchRig) Stamp(context.Context, agent.App) (gateway.Stamp, error) {
	return gateway.Stamp{}, nil
}

func (r *benchRig) Read(context.Context, agent.App) ([]agent.Provider, []agent.ModelRoute, error) {
	return r.providers, nil, nil
}
func (r *benchRig) Begin(agent.UsageEvent) error  { return nil }
func (r *benchRig) Append(agent.UsageEvent) error { return nil }
