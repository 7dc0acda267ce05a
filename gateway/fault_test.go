package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
)

const spend = `{"type":"error","error":{"type":"rate_limit_error","message":"spend","details":{"error_code":"enforced_spend_limit_reached"}}}`

func quota(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(429)
	_, _ = io.WriteString(w, spend)
}

// errorFrame streams so many frames, then an error as a frame.
func errorFrame(n int) http.HandlerFunc { return errorFrameAfter(n, nil) }

// errorFrameAfter waits for seen before the error.
func errorFrameAfter(n int, seen <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		some(n)(w, r)
		if seen != nil {
			<-seen
		}
		_, _ = io.WriteString(w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n")
	}
}

// What fails at the first candidate: how often it is asked, whether the second one is, and what the client gets when there is none.
var faultTable = []struct {
	name   string
	h      http.HandlerFunc
	stream bool
	over   bool // the second candidate answers
	alone  int64
	status int
	class  agent.FaultClass
}{
	{"429 with Retry-After", fails(429, "rate_limit_error", "Retry-After-Ms", "5"), false, true, 3, 429, agent.RateLimited},
	{"429 with days of Retry-After", fails(429, "rate_limit_error", "Retry-After", "200000"), false, true, 1, 429, agent.RateLimited},
	{"spend limit", quota, false, true, 1, 429, agent.QuotaExhausted},
	{"402", fails(402, "billing_error"), false, true, 1, 402, agent.QuotaExhausted},
	{"529", fails(529, "overloaded_error"), false, true, 3, 529, agent.Overloaded},
	{"503", fails(503, "api_error"), false, true, 3, 503, agent.Overloaded},
	{"500", fails(500, "api_error"), false, true, 2, 500, agent.ServerFault},
	{"502", fails(502, "api_error"), false, true, 2, 502, agent.ServerFault},
	{"500 that is final", fails(500, "api_error", "X-Should-Retry", "false"), false, true, 1, 500, agent.ServerFault},
	{"connection reset", broken, false, true, 2, 502, agent.ServerFault},
	{"401", fails(401, "authentication_error"), false, true, 1, 502, agent.AuthFault},
	{"400", fails(400, "invalid_request_error"), false, false, 1, 400, agent.InvalidRequest},
	{"404", fails(404, "not_found_error"), false, false, 1, 404, agent.InvalidRequest},
	{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, false, true, 2, 502, agent.ServerFault},
	{"stream that ends before content", some(2), true, true, 2, 502, agent.StreamBroken},
	{"stream that is cut before content", cut(2), true, true, 2, 502, agent.StreamBroken},
	{"error frame before content", errorFrame(1), true, true, 3, 529, agent.Overloaded},
	{"stream that is cut at once", cut(0), true, true, 2, 502, agent.ServerFault},
}

func TestFaults(t *testing.T) {
	for _, c := range faultTable {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			a := r.provider("a", agent.MessageProtocol, c.h)
			b := r.provider("b", agent.MessageProtocol, good)
			r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}})
			out := r.message("@r", c.stream)
			if over := b.calls.Load() == 1 && out.status == 200; over != c.over || a.calls.Load() != 1 {
				t.Errorf("%d calls, %d to the other: %d %s", a.calls.Load(), b.calls.Load(), out.status, out.text())
			}
			if c.over && c.stream && out.text() != strings.Join(frames, "") {
				t.Errorf("what the client got is not one whole answer: %s", out.text())
			}
			if row := r.usage()[0]; row.Model.Fault != c.class || row.Outcome == agent.Succeeded {
				t.Errorf("the ledger has %s, %s", row.Model.Fault, row.Outcome)
			}
			r.checkRows(a, b)
		})
		t.Run(c.name+", alone", func(t *testing.T) {
			for _, retry := range []int{0, 1} {
				r := newRig(t)
				a := r.provider("a", agent.MessageProtocol, c.h)
				req := request(agent.MessageProtocol, ask("a/m", c.stream))
				req.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(retry))
				out := r.serve(req)
				want := c.alone
				if retry > 0 {
					want = 1 // the client tries again itself
				}
				if a.calls.Load() != want || out.header.Get("X-Skep-Attempts") != fmt.Sprint(want) {
					t.Errorf("%d calls, not %d; the client is told of %s", a.calls.Load(), want, out.header.Get("X-Skep-Attempts"))
				}
				if out.status != c.status || out.header.Get("X-Should-Retry") != "false" || !strings.Contains(out.text(), `"error"`) {
					t.Errorf("%d %v %s", out.status, out.header, out.text())
				}
				r.checkRows(a)
			}
		})
	}
}

// checkRows wants as many rows in the ledger as calls that reached providers.
func (r *rig) checkRows(all ...*upstream) {
	r.Helper()
	var n int64
	for _, u := range all {
		n += u.calls.Load()
	}
	if rows := r.usage(); int64(len(rows)) != n {
		r.Errorf("%d rows in the ledger, and %d calls", len(rows), n)
	}
}

func TestRetrySucceeds(t *testing.T) {
	r := newRig(t)
	a := r.provider("a", agent.MessageProtocol, inTurn(fails(529, "overloaded_error"), broken, good))
	if out := r.message("a/m", false); out.status != 200 || out.header.Get("X-Skep-Attempts") != "3" {
		t.Errorf("%d %s", out.status, out.text())
	}
	rows := r.usage()
	for i, u := range rows {
		if u.Model.Attempt != i+1 {
			t.Errorf("row %d is of attempt %d", i, u.Model.Attempt)
		}
	}
	r.checkRows(a)
}

func TestRetryAfterIsWaitedFor(t *testing.T) {
	r := newRig(t)
	var times []time.Time
	note := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) { times = append(times, time.Now()); h(w, q) }
	}
	r.provider("a", agent.MessageProtocol, inTurn(note(fails(429, "rate_limit_error", "Retry-After-Ms", "150")), note(good)))
	if out := r.message("a/m", false); out.status != 200 || len(times) != 2 || times[1].Sub(times[0]) < 150*time.Millisecond {
		t.Errorf("%d %s: asked at %v", out.status, out.text(), times)
	}
}

func TestAttemptsAndDeadline(t *testing.T) {
	r := newRig(t)
	a := r.provider("a", agent.MessageProtocol, fails(529, "overloaded_error"))
	b := r.provider("b", agent.MessageProtocol, fails(529, "overloaded_error"))
	r.route(agent.ModelRoute{Name: "two", Attempts: 2, Candidates: []agent.Candidate{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}})
	r.route(agent.ModelRoute{Name: "soon", Deadline: 50 * time.Millisecond, Candidates: []agent.Candidate{{Provider: "slow", Model: "m"}, {Provider: "b", Model: "m"}}})
	if r.message("@two", false); a.calls.Load() != 1 || b.calls.Load() != 1 {
		t.Errorf("%d and %d calls with two attempts", a.calls.Load(), b.calls.Load())
	}
	slow := r.provider("slow", agent.MessageProtocol, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
	if out := r.message("@soon", false); out.status != 504 && out.status != 529 || slow.calls.Load() != 1 {
		t.Errorf("%d %s", out.status, out.text())
	}
	r.checkRows(a, b, slow)
}

// A stream that fails after its first content is told to be broken, and nothing is asked elsewhere.
func TestBrokenAfterContent(t *testing.T) {
	seen := make(chan struct{}, 1)
	waits := func(h http.HandlerFunc) http.HandlerFunc { // until the client has got something
		return func(w http.ResponseWriter, r *http.Request) {
			some(4)(w, r)
			<-seen
			h(w, r)
		}
	}
	for name, h := range map[string]http.HandlerFunc{"cut": waits(broken), "clean end": waits(func(http.ResponseWriter, *http.Request) {}), "stall": stall(4), "error frame": errorFrameAfter(4, seen)} {
		for _, p := range []agent.Protocol{agent.MessageProtocol, agent.ChatProtocol} {
			t.Run(fmt.Sprint(name, " for ", p), func(t *testing.T) {
				r := newRig(t)
				a := r.provider("a", agent.MessageProtocol, h, func(p *agent.Provider) { p.Idle = time.Second })
				b := r.provider("b", agent.MessageProtocol, good)
				r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}})
				body := ask("@r", true)
				if p == agent.ChatProtocol {
					body = strings.Replace(body, `,"future_field":[1, 2]`, "", 1)
				}
				select {
				case <-seen:
				default:
				}
				out := &got{wrote: seen}
				out.err = r.g.Serve(t.Context(), gateway.Caller{App: "default"}, request(p, body), out)
				text := out.text()
				if out.err == nil || out.status != 200 || b.calls.Load() != 0 {
					t.Errorf("it ended with %v, and %d calls went elsewhere", out.err, b.calls.Load())
				}
				if strings.Count(text, `"error"`) == 0 || strings.Contains(text, "[DONE]") || strings.Contains(text, "message_stop") || !strings.Contains(text, "I think.") {
					t.Errorf("the client got %s", text)
				}
				if p == agent.MessageProtocol && strings.Count(text, "event: error") != 1 {
					t.Errorf("not one error frame: %s", text)
				}
				u := r.row()
				if u.Source != agent.Partial || u.Fault == agent.NoFault || u.Tokens.Input != 10 || u.Tokens.Output != 4 {
					t.Errorf("the ledger has %+v", u)
				}
				r.checkRows(a, b)
			})
		}
	}
}

// Many streams that fall silent leave connections for others.
func TestStallsLeaveRoom(t *testing.T) {
	r := newRig(t)
	r.provider("a", agent.MessageProtocol, stall(4), func(p *agent.Provider) { p.Idle = 50 * time.Millisecond })
	r.provider("b", agent.MessageProtocol, good)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() { r.message("a/m", true) })
	}
	all.Wait()
	if out := r.message("b/m", true); out.status != 200 || out.err != nil {
		t.Errorf("%d %v", out.status, out.err)
	}
}

func TestAborts(t *testing.T) {
	r := newRig(t)
	a := r.provider("a", agent.MessageProtocol, stall(4))
	const n = 100
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &got{wrote: make(chan struct{}, 1)}
			done := make(chan error, 1)
			go func() {
				done <- r.g.Serve(ctx, gateway.Caller{App: "default"}, request(agent.MessageProtocol, ask("a/m", true)), out)
			}()
			<-out.wrote
			cancel()
			if err := <-done; err == nil {
				t.Errorf("abort %d ended well", i)
			}
		})
	}
	all.Wait()
	for _, e := range r.usage() {
		if e.Model.Fault != agent.ClientAbort || e.Model.Source != agent.Partial || e.Model.Tokens.Input != 10 || e.Model.Tokens.Output < 2 || e.Outcome != agent.OutcomeOf(agent.Errorf(agent.Cancelled, "")) {
			t.Fatalf("the ledger has %s %+v", e.Outcome, e.Model)
		}
	}
	r.checkRows(a)
	a.is(good)
	if out := r.message("a/m", false); out.status != 200 {
		t.Errorf("after %d aborts: %d %s", n, out.status, out.text())
	}
	if tot := r.g.Totals(); len(tot) != 1 || tot[0].Open || tot[0].Faults[agent.ClientAbort] != n {
		t.Errorf("the totals are %+v", tot)
	}
}

// A client that cannot be written to any more ends the call, also while nothing comes.
func TestGoneClientIsNoticed(t *testing.T) {
	r := newRig(t, func(o *gateway.Options) { o.Ping = 20 * time.Millisecond })
	r.provider("a", agent.MessageProtocol, stall(4))
	out := &got{after: 3}
	if err := r.g.Serve(t.Context(), gateway.Caller{App: "default"}, request(agent.MessageProtocol, ask("a/m", true)), out); err == nil {
		t.Error("it ended well")
	}
	if u := r.row(); u.Fault != agent.ClientAbort || u.Source != agent.Partial {
		t.Errorf("the ledger has %+v", u)
	}
}

func TestPings(t *testing.T) {
	for p, want := range map[agent.Protocol]string{agent.MessageProtocol: "event: ping\n", agent.ChatProtocol: ": still there\n\n"} {
		r := newRig(t, func(o *gateway.Options) { o.Ping = 20 * time.Millisecond })
		r.provider("a", agent.MessageProtocol, stall(3), func(p *agent.Provider) { p.Idle = 300 * time.Millisecond })
		body := strings.Replace(ask("a/m", true), `,"future_field":[1, 2]`, "", 1)
		if out := r.serve(request(p, body)); strings.Count(out.text(), want) < 3 {
			t.Errorf("%s: the client got %s", p, out.text())
		}
	}
}

func TestBreaker(t *testing.T) {
	r := newRig(t)
	a := r.provider("a", agent.MessageProtocol, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, func(p *agent.Provider) { p.Headers = 20 * time.Millisecond })
	for range 3 {
		if out := r.message("a/m", false); out.status != 504 {
			t.Fatalf("%d %s", out.status, out.text())
		}
	}
	was := a.calls.Load()
	out := r.message("a/m", false)
	if was != 5 || a.calls.Load() != was || out.status != 503 || out.header.Get("Retry-After") == "" {
		t.Errorf("%d calls and then %d: %d %v %s", was, a.calls.Load(), out.status, out.header, out.text())
	}
	if !r.g.Totals()[0].Open {
		t.Error("the breaker is not shown as open")
	}
	r.g.Reset("default", "a")
	a.is(good)
	if out := r.message("a/m", false); out.status != 200 {
		t.Errorf("after a reset: %d %s", out.status, out.text())
	}
}

func TestKeys(t *testing.T) {
	two := func(p *agent.Provider) { p.Keys = []agent.ProviderKey{{Secret: "one"}, {Secret: "two"}} }
	byKey := func(one, two http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			if strings.HasPrefix(q.Header.Get("X-Api-Key"), "value-of-one") {
				one(w, q)
				return
			}
			two(w, q)
		}
	}
	for name, c := range map[string]struct {
		h       http.HandlerFunc
		refused int
	}{
		"limited": {fails(429, "rate_limit_error", "Retry-After", "30"), 0},
		"quota":   {quota, 1},
		"auth":    {fails(401, "authentication_error"), 1},
	} {
		r := newRig(t)
		var n int
		var mu sync.Mutex
		r.provider("a", agent.MessageProtocol, byKey(func(w http.ResponseWriter, q *http.Request) {
			mu.Lock()
			n++
			mu.Unlock()
			c.h(w, q)
		}, good), two)
		for range 20 {
			if out := r.message("a/m", false); out.status != 200 {
				t.Fatalf("%s: %d %s", name, out.status, out.text())
			}
		}
		if n != 1 || len(r.refused) != c.refused {
			t.Errorf("%s: the key was used %d times, and refused %v", name, n, r.refused)
		}
		if got := r.g.Totals()[0].Refused; got != c.refused {
			t.Errorf("%s: %d keys are shown as refused", name, got)
		}
	}
	r := newRig(t) // another value of the secret is tried at once
	r.provider("a", agent.MessageProtocol, func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("X-Api-Key") == "new" {
			good(w, q)
			return
		}
		fails(401, "authentication_error")(w, q)
	})
	if out := r.message("a/m", false); out.status != 502 {
		t.Errorf("%d %s", out.status, out.text())
	}
	r.mu.Lock()
	r.secrets["a-key"] = "new"
	r.mu.Unlock()
	if out := r.message("a/m", false); out.status != 200 {
		t.Errorf("with the new key: %d %s", out.status, out.text())
	}
}

// Every operation and protocol holds from the limits, and a limit may lead elsewhere or refuse.
func TestLimits(t *testing.T) {
	r := newRig(t)
	hold := r.opts.Hold
	var refusal error
	r.opts.Hold = func(ctx context.Context, h gateway.Hold) (gateway.Held, error) {
		if refusal != nil && h.Route != "@other" {
			return nil, refusal
		}
		return hold(ctx, h)
	}
	r.g = gateway.New(&r.opts)
	a := r.provider("a", agent.MessageProtocol, good)
	r.route(agent.ModelRoute{Name: "other", Candidates: []agent.Candidate{{Provider: "a", Model: "cheap"}}})
	plain := strings.Replace(ask("a/m", false), `,"future_field":[1, 2]`, "", 1)
	for _, req := range []*gateway.Request{
		request(agent.MessageProtocol, plain), request(agent.ChatProtocol, plain), request(agent.MessageProtocol, ask("a/m", true)),
	} {
		was := len(r.holds)
		if out := r.serve(req); out.status != 200 || len(r.holds) != was+1 || r.holds[was].Tokens != 105 || r.holds[was].Key != "k1" {
			t.Errorf("%s: %d, held %+v", req.Protocol, out.status, r.holds[was:])
		}
	}
	refusal = &agent.Error{Kind: agent.Exhausted, Msg: "the limit day is reached", After: 20 * time.Second}
	before := a.calls.Load()
	out := r.message("a/m", false)
	if out.status != 429 || out.header.Get("Retry-After") != "20" || a.calls.Load() != before || !strings.Contains(out.text(), "the limit day") {
		t.Errorf("%d %v %s", out.status, out.header, out.text())
	}
	refusal = &gateway.Instead{Route: "@other"}
	if out := r.message("a/m", false); out.status != 200 || out.header.Get("X-Skep-Model") != "a/cheap" {
		t.Errorf("%d %v %s", out.status, out.header, out.text())
	}
}

// The rows of the ledger are the calls that reached providers, whatever happens to them, and each has one end.
func TestLedgerUnderFaults(t *testing.T) {
	r := newRig(t)
	a := r.provider("a", agent.MessageProtocol, inTurn(
		good, cut(2), fails(500, "api_error"), good, fails(429, "rate_limit_error", "Retry-After-Ms", "1"), broken, some(3), good, cut(5), fails(400, "x"), errorFrame(4), good,
		cut(3), good, good, fails(529, "overloaded_error"), good, cut(0), good, good, good), func(p *agent.Provider) { p.Idle = time.Second })
	b := r.provider("b", agent.MessageProtocol, good)
	r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 25 {
				out := &got{}
				if (i+j)%5 == 0 {
					out.after = 2
				}
				func() {
					defer func() { _ = recover() }()
					var to gateway.Sink = out
					if (i+j)%7 == 0 {
						to = panics{out}
					}
					_ = r.g.Serve(t.Context(), gateway.Caller{App: "default"}, request(agent.MessageProtocol, ask("@r", j%2 == 0)), to)
				}()
			}
		})
	}
	all.Wait()
	r.checkRows(a, b)
}

// panics is a sink that fails in the worst way.
type panics struct{ *got }

func (panics) Write([]byte) (int, error) { panic("the sink broke") }

// No stream is cut short: bodies are read whole before they are sent on.
func TestNoStreamIsCut(t *testing.T) {
	r := newRig(t)
	r.provider("a", agent.MessageProtocol, good)
	want := strings.Join(frames, "")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 60 {
				if out := r.message("a/m", true); out.text() != want || out.err != nil {
					t.Errorf("%v: %s", out.err, out.text())
				}
			}
		})
	}
	all.Wait()
}

func TestFailOverByRule(t *testing.T) {
	long := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`)
	}
	for _, rule := range []bool{false, true} {
		r := newRig(t)
		r.provider("a", agent.MessageProtocol, long)
		r.provider("b", agent.MessageProtocol, good)
		m := agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}}
		if rule {
			m.FailOver = []agent.FaultClass{agent.ContextLength}
		}
		r.route(m)
		if out := r.message("@r", false); (out.status == 200) != rule {
			t.Errorf("with the rule %v: %d %s", rule, out.status, out.text())
		}
	}
}
