//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/gateway/gatewaytest"
)

// proxyVerb makes this program the peer of figures P14 and P15.
const proxyVerb = "proxy"

func serveProxy(listen, upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	s := &http.Server{Addr: listen, ReadHeaderTimeout: time.Minute, Handler: gatewaytest.Proxy(to, tr)}
	return s.ListenAndServe()
}

// asked is a way to the provider.
type asked struct {
	s               *server
	path, model     string
	end             string // of a stream
	cpu, firstBytes []float64
	cut             int // streams that ended too soon
}

// proxies starts the peer and makes our server know the provider. The caller stops both.
func (b *bench) proxies(ctx context.Context) (ours, peer *server, stop func(), err error) {
	up := httptest.NewServer(http.HandlerFunc(gatewaytest.Answer))
	defer func() {
		if err != nil {
			up.Close()
		}
	}()
	if ours, err = b.ourServer(ctx); err != nil {
		return nil, nil, nil, err
	}
	p := agent.Provider{Name: "bench", URL: up.URL, Private: true, Protocols: []agent.Protocol{agent.MessageProtocol}}
	c := client.New("http://"+ours.addr, ours.token, nil)
	if _, err = c.PutProvider(ctx, client.NewProvider{Provider: p}); err != nil {
		return nil, nil, nil, fmt.Errorf("store the provider: %w", err)
	}
	key, err := c.CreateModelKey(ctx, client.NewModelKey{Name: fmt.Sprint("bench-", time.Now().UnixNano())})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a key: %w", err)
	}
	ours = &server{cmd: ours.cmd, addr: ours.addr, token: key.Value}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, nil, nil, err
	}
	peer = &server{cmd: exec.Command(self, proxyVerb, addr, up.URL), addr: addr}
	if err = peer.cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	if err = awaitAnswer(ctx, addr); err != nil {
		peer.stop()
		return nil, nil, nil, err
	}
	return ours, peer, func() { peer.stop(); up.Close() }, nil
}

// ask makes one request, and returns how long its first byte took.
func (s *asked) ask(ctx context.Context, c *http.Client, stream bool) (time.Duration, error) {
	body := `{"model":"` + s.model + `","max_tokens":100,"messages":[{"role":"user","content":"what is the weather?"}]}`
	if stream {
		body = `{"stream":true,` + body[1:]
	}
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.s.addr+s.path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+s.s.token)
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var text bytes.Buffer
	one := make([]byte, 4<<10)
	n, err := res.Body.Read(one)
	first := time.Since(began)
	text.Write(one[:n])
	if err == nil {
		_, err = text.ReadFrom(res.Body)
	}
	switch {
	case res.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("POST %s: %s: %s", s.path, res.Status, text.Bytes())
	case stream && (err != nil && !errors.Is(err, io.EOF) || !strings.HasSuffix(strings.TrimSpace(text.String()), s.end)):
		s.cut++
	case err != nil && !errors.Is(err, io.EOF):
		return 0, err
	}
	return first, nil
}

// round makes requests by one side and notes the CPU time of its process for each.
func (s *asked) round(ctx context.Context, c *http.Client, n int, stream bool) error {
	before, err := s.s.cpu()
	if err != nil {
		return err
	}
	var took []float64
	for range n {
		first, err := s.ask(ctx, c, stream)
		if err != nil {
			return err
		}
		took = append(took, first.Seconds())
	}
	after, err := s.s.cpu()
	if err != nil {
		return err
	}
	s.cpu = append(s.cpu, (after-before)/float64(n))
	s.firstBytes = append(s.firstBytes, median(took))
	return nil
}

// throughModels measures requests or streams by three ways: passed and translated by us, and the peer.
func throughModels(ctx context.Context, b *bench, stream bool) (pass, translated, peer *asked, err error) {
	us, them, stop, err := b.proxies(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer stop()
	pass = &asked{s: us, path: "/ai/v1/messages", model: "bench/m", end: `data: {"type":"message_stop"}`}
	translated = &asked{s: us, path: "/ai/v1/chat/completions", model: "bench/m", end: "data: [DONE]"}
	peer = &asked{s: them, path: "/v1/messages", model: "m", end: pass.end}
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	defer c.CloseIdleConnections()
	all := []*asked{pass, translated, peer}
	for i := range b.count(11, 3) + 1 {
		for _, s := range all {
			if err := s.round(ctx, c, b.count(500, 200), stream); err != nil {
				return nil, nil, nil, err
			}
		}
		if i == 0 { // everything was done for the first time
			for _, s := range all {
				s.cpu, s.firstBytes = nil, nil
			}
		}
	}
	return pass, translated, peer, nil
}

const proxyName = "httputil.ReverseProxy"

// models is figure P14: the CPU time of the server for a request of a model, beside a proxy that reads the body and passes it on.
func models(ctx context.Context, b *bench) ([]Figure, error) {
	pass, translated, peer, err := throughModels(ctx, b, false)
	if err != nil {
		return nil, err
	}
	return []Figure{
		compare("P14", "request of a model, passed, CPU", Seconds, pass.cpu, peer.cpu, proxyName, Target{Bound: 0.75}),
		compare("P14", "request of a model, translated, CPU", Seconds, translated.cpu, peer.cpu, proxyName, Target{Bound: 1.5}),
	}, nil
}

// modelStreams is figure P15: the same for streams of 53 events, the time until their first byte, and those that were cut.
func modelStreams(ctx context.Context, b *bench) ([]Figure, error) {
	pass, translated, peer, err := throughModels(ctx, b, true)
	if err != nil {
		return nil, err
	}
	n := 2 * (b.count(11, 3) + 1) * b.count(500, 200)
	return []Figure{
		compare("P15", "stream of 53 events, passed, CPU", Seconds, pass.cpu, peer.cpu, proxyName, Target{}),
		compare("P15", "stream of 53 events, translated, CPU", Seconds, translated.cpu, peer.cpu, proxyName, Target{Bound: 3}),
		compare("P15", "stream of 53 events, passed, first byte", Seconds, pass.firstBytes, peer.firstBytes, proxyName, Target{Bound: 1.25}),
		compare("P15", "stream of 53 events, translated, first byte", Seconds, translated.firstBytes, peer.firstBytes, proxyName, Target{Bound: 1.25}),
		alone("P15", fmt.Sprintf("streams that were cut, of %d", n), NoUnit, float64(pass.cut+translated.cut), Target{Value: true, Bound: 0.5}),
	}, nil
}
