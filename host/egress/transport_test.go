package egress

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestTransport(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer srv.Close()
	for _, c := range []struct {
		name  string
		allow []netip.Prefix
		kind  agent.Kind
		ok    bool
	}{
		{"a loopback address is refused", nil, agent.Denied, false},
		{"one that was allowed is not", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := New(&Options{Allow: c.allow})
			defer e.Close()
			tr := e.Transport(4)
			defer tr.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := tr.RoundTrip(req)
			if err == nil {
				_ = res.Body.Close()
			}
			if c.ok && err != nil || !c.ok && (err == nil || agent.KindOf(err) != c.kind) {
				t.Errorf("the request ended with %v", err)
			}
		})
	}
}
