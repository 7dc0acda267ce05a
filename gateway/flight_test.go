package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
)

// heldWay answers each call when it is told to, with a status.
type heldWay struct {
	calls atomic.Int64
	next  chan int
}

func (h *heldWay) RoundTrip(r *http.Request) (*http.Response, error) {
	h.calls.Add(1)
	select {
	case status := <-h.next:
		text := whole
		if status != http.StatusOK {
			text = `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// Those who ask the same at once make one call. Whoever cannot have its answer makes one of their own.
func TestOneCallForThoseWhoAskAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		first   func(gone context.CancelFunc, way *heldWay) // how the first call ends
		control string                                      // Cache-Control of the others
		waiting int64                                       // calls while the first is under way
		calls   int64                                       // in all
		hits    int
	}{
		"answered":     {first: func(_ context.CancelFunc, way *heldWay) { way.next <- 200 }, waiting: 1, calls: 1, hits: 2},
		"gone":         {first: func(gone context.CancelFunc, _ *heldWay) { gone() }, waiting: 1, calls: 3},
		"failed":       {first: func(_ context.CancelFunc, way *heldWay) { way.next <- 400 }, waiting: 1, calls: 3},
		"a new answer": {first: func(_ context.CancelFunc, way *heldWay) { way.next <- 200 }, control: "no-cache", waiting: 3, calls: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				way := &heldWay{next: make(chan int)}
				r := newRig(t, func(o *gateway.Options) { o.Public = way })
				r.providers = []agent.Provider{{Name: "a", URL: "http://a.test", Protocols: []agent.Protocol{agent.MessageProtocol}, Revision: 1}}
				r.routes = []agent.ModelRoute{{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}}, Cache: time.Minute}}
				ctx, gone := context.WithCancel(t.Context())
				defer gone()
				var outs []*got
				serve := func(ctx context.Context, control string) {
					out := &got{}
					outs = append(outs, out)
					q := request(agent.MessageProtocol, ask("@r", false))
					if control != "" {
						q.Header.Set("Cache-Control", control)
					}
					go func() { out.err = r.g.Serve(ctx, gateway.Caller{App: "default"}, q, out) }()
					synctest.Wait()
				}
				serve(ctx, "")
				serve(t.Context(), c.control)
				serve(t.Context(), c.control)
				if n := way.calls.Load(); n != c.waiting {
					t.Errorf("%d calls while the first is under way", n)
				}
				c.first(gone, way)
				synctest.Wait()
				for range c.calls - 1 {
					way.next <- 200
				}
				synctest.Wait()
				hits := 0
				for i, out := range outs {
					if i > 0 && (out.err != nil || out.status != 200 || !strings.Contains(out.text(), "Sunny")) {
						t.Errorf("%d: %d %v %s", i, out.status, out.err, out.text())
					}
					if out.header.Get("X-Skep-Cache") == "hit" {
						hits++
					}
				}
				if n := way.calls.Load(); n != c.calls || hits != c.hits {
					t.Errorf("%d calls, %d hits", n, hits)
				}
			})
		})
	}
}
