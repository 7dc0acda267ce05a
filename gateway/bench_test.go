package gateway_test

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
)

// BenchmarkGateway measures the CPU time of a request, of which that of the client and the upstream alone ("direct") is to be taken away: what is left is
// compared with httputil.ReverseProxy, whose body is buffered. Milliseconds depend on what else the machine does; CPU time does much less.
func BenchmarkGateway(b *testing.B) {
	long := make([]string, 0, 53)
	long = append(long, frames[:2]...)
	for len(long) < 50 {
		long = append(long, frames[3])
	}
	long = append(long, frames[4:]...)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for _, f := range long {
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
	rig := &benchRig{providers: []agent.Provider{
		{Name: "a", URL: up.URL, Protocols: []agent.Protocol{agent.MessageProtocol}, Keys: []agent.ProviderKey{{Secret: "k"}}, Revision: 1},
	}}
	g := gateway.New(&gateway.Options{
		Codecs: codecs, Records: rig, Ledger: rig, Public: tr,
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
	cl := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	for _, c := range []struct{ name, url, path, body string }{
		{"direct", up.URL, messagePath, ask("m", false)},
		{"reverse", reverse.URL, messagePath, ask("m", false)},
		{"pass", gw.URL, messagePath, ask("a/m", false)},
		{"translated", gw.URL, chatPath, strings.Replace(ask("a/m", false), `,"future_field":[1, 2]`, "", 1)},
		{"direct-stream", up.URL, messagePath, ask("m", true)},
		{"reverse-stream", reverse.URL, messagePath, ask("m", true)},
		{"pass-stream", gw.URL, messagePath, ask("a/m", true)},
		{"translated-stream", gw.URL, chatPath, strings.Replace(ask("a/m", true), `,"future_field":[1, 2]`, "", 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			was := cpu()
			for b.Loop() {
				res, err := cl.Post(c.url+c.path, "application/json", strings.NewReader(c.body))
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

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
