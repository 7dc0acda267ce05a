package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/embed"
	"github.com/skep-dev/skep/gateway/limit"
	"github.com/skep-dev/skep/gateway/price"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/store/memkv"
)

// The faults that docs/design/gateway-faults.md lists, from the client's bytes to the provider's and back, with the limits and prices of a server.

// talk are the protocols that talk, and so all that a client and a provider may differ in.
var talk = []agent.Protocol{agent.ChatProtocol, agent.ResponseProtocol, agent.MessageProtocol, agent.GeminiProtocol}

// stack is a rig with true limits and prices.
type stack struct {
	*rig
	led     *ledger.Ledger
	limiter atomic.Pointer[limit.Limiter]
}

func newStack(t *testing.T) *stack {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), memkv.New(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{}
	if s.led, err = ledger.Open(t.Context(), st, dir, &ledger.Options{MinFree: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.led.Close(); st.Close() })
	s.limits()
	cost := func(p *agent.Provider, model string, tokens agent.ModelTokens, tier string, at time.Time) (*int64, string) {
		q := price.Query{Vendor: p.Vendor, URL: p.URL, Name: p.Name, Model: model, Tokens: tokens, Time: at, Tier: tier, Overrides: p.Prices}
		micro, err := price.Shipped().Cost(q)
		if err != nil {
			return nil, ""
		}
		return micro, price.Shipped().VersionOf(q)
	}
	s.rig = newRig(t, func(o *gateway.Options) {
		o.Codecs, o.Price = append(slices.Clip(allCodecs), embed.Codec), cost
		o.Hold = func(ctx context.Context, h gateway.Hold) (gateway.Held, error) {
			micro, _ := cost(h.Provider, h.Model, agent.ModelTokens{Input: h.Input, Output: h.Tokens - h.Input}, "", time.Now())
			held, err := s.limiter.Load().Hold(ctx, limit.Ask{
				App: h.App, Agent: h.Agent, Key: h.Key, User: h.User, Model: h.Provider.Name + "/" + h.Model, Route: h.Route, Tokens: h.Tokens, Micro: micro,
			})
			if other, ok := errors.AsType[*limit.Instead](err); ok {
				return nil, &gateway.Instead{Route: other.Route}
			}
			if err != nil {
				return nil, err
			}
			return held, nil
		}
	})
	return s
}

// limits makes these the limits, with nothing used yet.
func (s *stack) limits(list ...agent.ModelLimit) {
	s.limiter.Store(limit.New(s.led, func(context.Context, agent.App) ([]agent.ModelLimit, error) { return list, nil }, nil))
}

// prices makes the prices of a provider, in millionths of a dollar for a million tokens.
func (s *stack) prices(name string, list ...agent.ModelPrice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.providers {
		if s.providers[i].Name == name {
			s.providers[i].Prices = list
			s.providers[i].Revision++
		}
	}
	s.stamp++
}

// flat is a price of one millionth of a dollar for each token.
var flat = agent.ModelPrice{Model: "*", Input: 1_000_000, Output: 1_000_000}

// as asks on behalf of somebody.
func (s *stack) as(who gateway.Caller, req *gateway.Request) *got {
	out := &got{}
	out.err = s.g.Serve(s.Context(), who, req, out)
	return out
}

// embedding answers with a vector, and says that it took so many tokens.
func embedding(tokens int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":%d,"total_tokens":%d}}`, tokens, tokens)
	}
}

func embedRequest(model string) *gateway.Request {
	return &gateway.Request{Protocol: agent.EmbedProtocol, Op: wire.Embed, Path: "/v1/embeddings", Header: http.Header{}, Body: fmt.Appendf(nil, `{"model":%q,"input":"hi"}`, model)}
}

// endpoints are all that cost something, for a provider of each protocol that can answer them.
func endpoints() (list []endpoint) {
	for _, c := range talk {
		for _, p := range talk {
			for _, stream := range []bool{false, true} {
				list = append(list, endpoint{fmt.Sprintf("%s to %s, stream %v", c, p, stream), c, p, prompt(c, p.String()+"/m", "hi", stream)})
			}
		}
	}
	return append(list, endpoint{"embeddings", agent.EmbedProtocol, agent.EmbedProtocol, embedRequest(agent.EmbedProtocol.String() + "/m")})
}

type endpoint struct {
	name             string
	client, provider agent.Protocol
	req              *gateway.Request
}

// A limit of any kind, counted by anybody, stops the next call at every endpoint before it leaves, and no one else's.
func TestALimitHoldsAtEveryEndpoint(t *testing.T) {
	s := newStack(t)
	var calls atomic.Int64
	for _, p := range talk {
		s.scripted(p.String(), `{"match":{"nth":1},"reply":{"text":"Sunny.","usage":{"input":4900,"output":100}}}`, p)
		s.prices(p.String(), flat)
	}
	s.provider(agent.EmbedProtocol.String(), agent.EmbedProtocol, func(w http.ResponseWriter, q *http.Request) { calls.Add(1); embedding(5000)(w, q) })
	s.prices(agent.EmbedProtocol.String(), flat)
	me := gateway.Caller{App: "default", Agent: "a1", Key: "k1", User: "u1"}
	others := map[agent.LimitEach]gateway.Caller{
		agent.EachApp: {App: "other", Agent: "a1", Key: "k1", User: "u1"}, agent.EachAgent: {App: "default", Agent: "a2", Key: "k1", User: "u1"},
		agent.EachKey: {App: "default", Agent: "a1", Key: "k2", User: "u1"}, agent.EachUser: {App: "default", Agent: "a1", Key: "k1", User: "u2"},
	}
	for kind, bound := range map[string]agent.ModelLimit{"requests": {Requests: 1}, "tokens": {Tokens: 5000}, "spend": {Spend: 5000}} {
		for each, other := range others {
			for _, e := range endpoints() {
				t.Run(fmt.Sprintf("%s by %s/%s", kind, each, e.name), func(t *testing.T) {
					l := bound
					l.Name, l.App, l.Each, l.Window = "l", "default", each, time.Hour
					s.limits(l)
					before := len(s.usage())
					if out := s.as(me, e.req); out.status != 200 || out.err != nil {
						t.Fatalf("the first call: %d %s %v", out.status, out.text(), out.err)
					}
					out := s.as(me, e.req)
					if out.status != 429 || out.header.Get("Retry-After") == "" || !strings.Contains(out.text(), `limit \"l\"`) || !gjson.Valid(out.text()) {
						t.Errorf("the second call: %d %v %s", out.status, out.header, out.text())
					}
					if dialect := gjson.Get(out.text(), map[agent.Protocol]string{
						agent.MessageProtocol: `error.type`, agent.GeminiProtocol: `error.status`,
					}[e.client]).Str; e.client == agent.MessageProtocol && dialect != "rate_limit_error" || e.client == agent.GeminiProtocol && dialect != "RESOURCE_EXHAUSTED" {
						t.Errorf("the refusal is in another dialect: %s", out.text())
					}
					if n := len(s.usage()) - before; n != 1 {
						t.Errorf("%d calls left, and not one", n)
					}
					if out := s.as(other, e.req); out.status != 200 {
						t.Errorf("somebody else is refused: %d %s", out.status, out.text())
					}
				})
			}
		}
	}
}

// Where spending is bounded and a price is not known, nothing leaves: no endpoint takes "not known" for "nothing".
func TestAnUnknownPriceIsNotFreeAtAnyEndpoint(t *testing.T) {
	s := newStack(t)
	for _, p := range talk {
		s.scripted(p.String(), `{"match":{"nth":1},"reply":{"text":"Sunny."}}`, p)
	}
	s.provider(agent.EmbedProtocol.String(), agent.EmbedProtocol, embedding(5))
	for _, e := range endpoints() {
		s.limits()
		before := len(s.usage())
		out := s.serve(e.req)
		rows := s.usage()[before:]
		if out.status != 200 || len(rows) != 1 || rows[0].Model.Micro != nil || rows[0].Model.Tokens.Input == 0 {
			t.Errorf("%s: %d, and the ledger has %+v", e.name, out.status, rows)
		}
		s.limits(agent.ModelLimit{Name: "l", App: "default", Window: time.Hour, Spend: 1 << 40})
		if out = s.serve(e.req); out.status != 403 || !strings.Contains(out.text(), "is not known") || len(s.usage()) != before+1 {
			t.Errorf("%s with a bound on spending: %d %s", e.name, out.status, out.text())
		}
	}
}

// told is what a client was told of usage: inclusive, whatever its protocol says.
func told(t *testing.T, p agent.Protocol, text string, stream bool) (u agent.ModelTokens) {
	t.Helper()
	docs := []string{text}
	if stream {
		docs = nil
		parser := sse.Parser{Max: wire.MaxFrame}
		if err := parser.Write([]byte(text), func(_ string, data []byte) { docs = append(docs, string(data)) }); err != nil {
			t.Fatal(err)
		}
	}
	set := func(to *int64, v gjson.Result) {
		if v.Exists() {
			*to = v.Int()
		}
	}
	var write, thoughts, in int64
	for _, d := range docs {
		switch p {
		case agent.ChatProtocol:
			v := gjson.Get(d, "usage")
			set(&u.Input, v.Get("prompt_tokens"))
			set(&u.CacheRead, v.Get("prompt_tokens_details.cached_tokens"))
			set(&u.Output, v.Get("completion_tokens"))
		case agent.ResponseProtocol:
			v := gjson.Get(d, "usage")
			if stream {
				v = gjson.Get(d, "response.usage")
			}
			set(&u.Input, v.Get("input_tokens"))
			set(&u.CacheRead, v.Get("input_tokens_details.cached_tokens"))
			set(&u.Output, v.Get("output_tokens"))
		case agent.MessageProtocol:
			for _, v := range []gjson.Result{gjson.Get(d, "message.usage"), gjson.Get(d, "usage")} {
				set(&in, v.Get("input_tokens"))
				set(&u.CacheRead, v.Get("cache_read_input_tokens"))
				set(&write, v.Get("cache_creation_input_tokens"))
				set(&u.Output, v.Get("output_tokens"))
			}
			u.Input = in + u.CacheRead + write
		default:
			v := gjson.Get(d, "usageMetadata")
			set(&u.Input, v.Get("promptTokenCount"))
			set(&u.CacheRead, v.Get("cachedContentTokenCount"))
			set(&in, v.Get("candidatesTokenCount"))
			set(&thoughts, v.Get("thoughtsTokenCount"))
			u.Output = in + thoughts
		}
	}
	return u
}

// Whatever a client and a provider speak, the same answer costs the same, whole and as a stream, cached tokens are paid once and thoughts too, and the
// client is told what the ledger has.
func TestAStreamCostsWhatTheSameAnswerCostsWhole(t *testing.T) {
	for _, c := range []struct {
		name, usage string
		tokens      agent.ModelTokens
		micro       int64
	}{
		{"cached", `"input":1000,"cache_read":200,"cache_write":700,"output":77,"reasoning":30`, agent.ModelTokens{Input: 1000, CacheRead: 200, CacheWrite: 700, Output: 77, Reasoning: 30}, 100*3 + 60 + 2625 + 77*15},
		{"zeros", `"input":0,"output":0`, agent.ModelTokens{}, 0},
	} {
		for _, p := range talk {
			s := newStack(t)
			s.scripted("a", `{"match":{"nth":1},"reply":{"reasoning":"Hm.","text":"Sunny.","usage":{`+c.usage+`}}}`, p)
			s.prices("a", agent.ModelPrice{Model: "m", Input: 3_000_000, CacheRead: new(int64(300_000)), CacheWrite: new(int64(3_750_000)), Output: 15_000_000})
			want, micro := c.tokens, c.micro
			if p == agent.GeminiProtocol && want.CacheWrite > 0 { // it has no word for what is written to a cache
				want.CacheWrite, micro = 0, 800*3+60+77*15
			}
			for _, client := range talk {
				for _, stream := range []bool{false, true} {
					before := len(s.usage())
					req := prompt(client, "a/m", "hi", stream)
					if stream && client == agent.ChatProtocol {
						req.Body = []byte(strings.Replace(string(req.Body), `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1))
					}
					out := s.serve(req)
					name := fmt.Sprintf("%s, %s to %s, stream %v", c.name, client, p, stream)
					rows := s.usage()[before:]
					if out.status != 200 || out.err != nil || len(rows) != 1 {
						t.Fatalf("%s: %d %s %v, %d rows", name, out.status, out.text(), out.err, len(rows))
					}
					u := rows[0].Model
					if u.Tokens != want || u.Source != agent.FromProvider || u.Micro == nil || *u.Micro != micro {
						t.Errorf("%s: the ledger has %+v, %s, and cost %v", name, u.Tokens, u.Source, u.Micro)
					}
					if got := told(t, client, out.text(), stream); got.Input != want.Input || got.CacheRead != want.CacheRead || got.Output != want.Output {
						t.Errorf("%s: the client is told %+v, and not %+v: %s", name, got, want, out.text())
					}
				}
			}
		}
	}
}

// Marks for a provider's cache go to the protocol that has them, at most four, and to no other.
func TestCacheMarksGoWhereTheyAreKnown(t *testing.T) {
	s := newStack(t)
	const mark = `"cache_control":{"type":"ephemeral"}`
	const body = `{"model":"@MODEL@","max_tokens":100,"system":[{"type":"text","text":"s1",` + mark + `},{"type":"text","text":"s2",` + mark + `}],
		"tools":[{"name":"w","input_schema":{"type":"object"},` + mark + `}],
		"messages":[{"role":"user","content":[{"type":"text","text":"q",` + mark + `}]},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"w","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"rain",` + mark + `}]}]}`
	for _, p := range talk {
		up := s.scripted(p.String(), `{"match":{"nth":2},"reply":{"text":"Wet."}}`, p)
		s.route(agent.ModelRoute{Name: p.String(), Candidates: []agent.Candidate{{Provider: p.String(), Model: "m", Effort: "low"}}}) // through the canonical form
		out := s.serve(request(agent.MessageProtocol, strings.Replace(body, "@MODEL@", "@"+p.String(), 1)))
		if out.status != 200 {
			t.Fatalf("%s: %d %s", p, out.status, out.text())
		}
		n := strings.Count(up.text(), "cache_control")
		if p != agent.MessageProtocol {
			if n != 0 {
				t.Errorf("%s gets marks that it does not know: %s", p, up.text())
			}
			continue
		}
		if n == 0 || n > 4 {
			t.Errorf("the provider gets %d marks: %s", n, up.text())
		}
		if last := gjson.Get(up.text(), "messages.2.content.0"); last.Get("type").Str != "tool_result" || !last.Get("cache_control").Exists() {
			t.Errorf("the mark of the tool's result is lost: %s", last.Raw)
		}
	}
	var sent string // what passes keeps every mark, and the provider's word on it is final
	s.provider("own", agent.MessageProtocol, func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		sent = string(b)
		fails(400, "invalid_request_error")(w, q)
	})
	out := s.serve(request(agent.MessageProtocol, strings.Replace(body, "@MODEL@", "own/m", 1)))
	if out.status != 400 || out.header.Get("X-Skep-Attempts") != "1" || out.header.Get("X-Should-Retry") != "false" || strings.Count(sent, "cache_control") != 5 {
		t.Errorf("%d %v, and the provider got %s", out.status, out.header, sent)
	}
}

// After each call a client is told that less is left: by what the call used, and not by what it might have used.
func TestWhatIsLeftGoesDownWithEachCall(t *testing.T) {
	s := newStack(t)
	for _, p := range talk {
		s.scripted(p.String(), `{"match":{"nth":1},"reply":{"text":"Sunny.","usage":{"input":900,"output":100}}}`, p)
	}
	s.provider(agent.EmbedProtocol.String(), agent.EmbedProtocol, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Ratelimit-Remaining-Requests", "77777") // what the account has is not the client's
		w.Header().Set("X-Ratelimit-Reset-Requests", "7s")
		embedding(1000)(w, q)
	})
	for _, e := range endpoints() {
		s.limits(
			agent.ModelLimit{Name: "many", App: "default", Window: time.Hour, Requests: 50, Tokens: 100_000},
			agent.ModelLimit{Name: "few", App: "default", Each: agent.EachKey, Window: time.Hour, Requests: 10},
		)
		for n := 1; n <= 3; n++ {
			h := s.serve(e.req).header
			requests, of := h.Get("X-Ratelimit-Remaining-Requests"), h.Get("X-Ratelimit-Limit-Requests")
			if requests != fmt.Sprint(10-n) || of != "10" || h.Get("X-Ratelimit-Limit-Tokens") != "100000" || h.Get("X-Ratelimit-Reset-Requests") != "" {
				t.Errorf("%s, call %d: %v", e.name, n, h)
			}
			tokens, after := h.Get("X-Ratelimit-Remaining-Tokens"), 100_000-1000*n
			if strings.HasSuffix(e.name, "stream true") { // told while the call holds what it may use
				var left int
				if _, err := fmt.Sscan(tokens, &left); err != nil || left >= after+1000 {
					t.Errorf("%s, call %d: %s tokens are left", e.name, n, tokens)
				}
			} else if tokens != fmt.Sprint(after) {
				t.Errorf("%s, call %d: %s tokens are left, and not %d", e.name, n, tokens, after)
			}
		}
	}
	s.limits()
	if h := s.serve(endpoints()[0].req).header; h.Get("X-Ratelimit-Remaining-Requests")+h.Get("X-Ratelimit-Limit-Tokens") != "" {
		t.Errorf("without limits: %v", h)
	}
}
