//go:build unix

package api

import (
	"context"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/gatewaytest"
	"github.com/skep-dev/skep/store"
)

// BenchmarkAI measures the gateway through the server, ledger and all.
func BenchmarkAI(b *testing.B) {
	x := gatewaytest.NewBench(b)
	r := start(b, nil)
	if _, err := r.s.st.PutDoc(context.Background(), store.Providers, "default", "a", 0, agent.Provider{
		Name: "a", App: "default", URL: x.Provider, Protocols: []agent.Protocol{agent.MessageProtocol}, Keys: []agent.ProviderKey{{Secret: "k"}},
	}); err != nil {
		b.Fatal(err)
	}
	r.s.o.Models = gateway.New(&gateway.Options{
		Codecs: aiCodecs, Records: gateway.FromStore(r.s.st), Ledger: r.s.rt.Ledger(), Public: x.Transport,
		Secret: func(context.Context, agent.App, string, string, string) (string, error) {
			return "sk-0123456789abcdef", nil
		},
	})
	r.key("bench-key", agent.ModelKey{Name: "bench"})
	x.Run(b, r.url+"/ai", "bench-key")
}
