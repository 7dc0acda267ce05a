package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
)

func TestPass(t *testing.T) {
	for _, stream := range []bool{false, true} {
		r := newRig(t)
		var sent, key string
		r.provider("a", agent.MessageProtocol, func(w http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			sent, key = string(b), q.Header.Get("X-Api-Key")
			q.Body = io.NopCloser(strings.NewReader(sent))
			good(w, q)
		})
		out := r.message("a/m", stream)
		want, body := whole, strings.Replace(ask("a/m", stream), `"a/m"`, `"m"`, 1)
		if stream {
			want = strings.Join(frames, "")
		}
		switch {
		case out.err != nil || out.status != 200 || out.text() != want:
			t.Errorf("stream %v: got %d %q, %v", stream, out.status, out.text(), out.err)
		case sent != body:
			t.Errorf("stream %v: the provider got %s, not %s", stream, sent, body)
		case key != "value-of-a-key":
			t.Errorf("stream %v: the key was %q", stream, key)
		case out.header.Get("X-Skep-Attempts") != "1" || out.header.Get("X-Skep-Model") != "a/m" || out.header.Get("X-Skep-Call") != r.row().Call:
			t.Errorf("stream %v: the header is %v", stream, out.header)
		}
		u := r.row()
		if u.Source != agent.FromProvider || u.Tokens.Input != 10 || u.Tokens.Output != 5 || u.Micro == nil || *u.Micro != 105 || u.First <= 0 || u.Secret != "a-key" || u.Key != "k1" {
			t.Errorf("stream %v: the ledger has %+v", stream, u)
		}
		if r.settled != 15 {
			t.Errorf("stream %v: %d tokens were counted for limits", stream, r.settled)
		}
	}
}

func TestTranslate(t *testing.T) {
	for _, stream := range []bool{false, true} {
		r := newRig(t)
		r.provider("a", agent.MessageProtocol, good)
		out := r.serve(request(agent.ChatProtocol, strings.Replace(ask("a/m", stream), `,"future_field":[1, 2]`, "", 1)))
		if out.err != nil || out.status != 200 {
			t.Fatalf("stream %v: got %d %s, %v", stream, out.status, out.text(), out.err)
		}
		text := out.text()
		if stream {
			if !strings.HasSuffix(text, "data: [DONE]\n\n") || !strings.Contains(text, `"Sunny, "`) || !strings.Contains(text, `"I think."`) {
				t.Errorf("the stream is %s", text)
			}
		} else {
			var a struct {
				Choices []struct {
					Message struct{ Content string }
					Finish  string `json:"finish_reason"`
				}
				Usage struct {
					Prompt int64 `json:"prompt_tokens"`
					Output int64 `json:"completion_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(text), &a); err != nil || len(a.Choices) != 1 || a.Choices[0].Message.Content != "Sunny, I think." || a.Choices[0].Finish != "stop" {
				t.Errorf("the answer is %s (%v)", text, err)
			}
			if a.Usage.Prompt != 10 || a.Usage.Output != 5 {
				t.Errorf("the client is told %+v", a.Usage)
			}
		}
		if u := r.row(); u.Source != agent.FromProvider || u.Tokens.Input != 10 || u.Tokens.Output != 5 || u.Protocol != agent.MessageProtocol {
			t.Errorf("stream %v: the ledger has %+v", stream, u)
		}
	}
}

// A stream books what the same answer books whole, a price that is not known is null, and zeros that were told stay.
func TestCost(t *testing.T) {
	for _, c := range []struct {
		model, usage string
		source       agent.UseSource
		in, out      int64
		priced       bool
	}{
		{"m", `,"usage":{"input_tokens":100,"cache_creation_input_tokens":700,"cache_read_input_tokens":200,"output_tokens":7}`, agent.FromProvider, 1000, 7, true},
		{"unpriced", `,"usage":{"input_tokens":1,"output_tokens":1}`, agent.FromProvider, 1, 1, false},
		{"m", `,"usage":{"input_tokens":0,"output_tokens":0}`, agent.FromProvider, 0, 0, true},
		{"m", ``, agent.Estimated, 5, 2, true},
	} {
		var seen []agent.ModelUse
		for _, stream := range []bool{false, true} {
			r := newRig(t)
			r.provider("a", agent.MessageProtocol, func(w http.ResponseWriter, _ *http.Request) {
				if !stream {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi there"}],"stop_reason":"end_turn"`+c.usage+`}`)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, `data: {"type":"message_start","message":{"id":"1","type":"message","role":"assistant","model":"m","content":[]`+c.usage+`}}`+"\n\n")
				_, _ = io.WriteString(w, `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`+"\n\n")
				_, _ = io.WriteString(w, `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi there"}}`+"\n\n")
				_, _ = io.WriteString(w, `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}`+c.usage+`}`+"\n\ndata: {\"type\":\"message_stop\"}\n\n")
			})
			if out := r.message("a/"+c.model, stream); out.err != nil || out.status != 200 {
				t.Fatalf("%d %s %v", out.status, out.text(), out.err)
			}
			u := *r.row()
			if u.Source != c.source || u.Tokens.Input != c.in || u.Tokens.Output != c.out || (u.Micro != nil) != c.priced {
				t.Errorf("%q, stream %v: the ledger has %+v, cost %v", c.usage, stream, u, u.Micro)
			}
			seen = append(seen, u)
		}
		if c.priced && *seen[0].Micro != *seen[1].Micro {
			t.Errorf("%q costs %d whole and %d as a stream", c.usage, *seen[0].Micro, *seen[1].Micro)
		}
	}
}

func TestResolve(t *testing.T) {
	r := newRig(t)
	r.provider("a", agent.MessageProtocol, good, func(p *agent.Provider) { p.Models = []string{"opus-*", "both"} })
	r.provider("b", agent.MessageProtocol, good, func(p *agent.Provider) { p.Models = []string{"both"} })
	r.provider("open", agent.MessageProtocol, good)
	r.provider("off", agent.MessageProtocol, good, func(p *agent.Provider) { p.Models, p.Disabled = []string{"gone"}, true })
	yes := true
	r.route(agent.ModelRoute{Name: "cheap", Candidates: []agent.Candidate{{Provider: "b", Model: "b1"}}, Models: []string{"gpt-*"}})
	r.route(agent.ModelRoute{Name: "tools", Candidates: []agent.Candidate{
		{Provider: "a", Model: "x", When: &agent.Condition{Tools: &yes}}, {Provider: "b", Model: "y", When: &agent.Condition{MaxInput: 1000, Users: []string{"u*"}}},
	}})
	r.route(agent.ModelRoute{Name: "same", Candidates: []agent.Candidate{{Provider: "open"}}, Models: []string{"claude-*"}})
	for _, c := range []struct {
		model  string
		who    gateway.Caller
		status int
		from   string
	}{
		{"@cheap", gateway.Caller{}, 200, "b/b1"},
		{"gpt-7", gateway.Caller{}, 200, "b/b1"},
		{"claude-9", gateway.Caller{}, 200, "open/claude-9"},
		{"a/opus-1", gateway.Caller{}, 200, "a/opus-1"},
		{"a/other", gateway.Caller{}, 404, ""},
		{"opus-3", gateway.Caller{}, 200, "a/opus-3"},
		{"both", gateway.Caller{}, 404, ""},
		{"whatever", gateway.Caller{}, 200, "open/whatever"},
		{"off/gone", gateway.Caller{}, 503, ""},
		{"@none", gateway.Caller{}, 404, ""},
		{"@tools", gateway.Caller{User: "ursula"}, 200, "b/y"},
		{"@tools", gateway.Caller{User: "paul"}, 400, ""},
		{"@same", gateway.Caller{}, 400, ""},
		{"@cheap", gateway.Caller{Models: []string{"@ch*"}}, 200, "b/b1"},
		{"gpt-7", gateway.Caller{Models: []string{"a/*"}}, 403, ""},
		{"a/opus-1", gateway.Caller{Models: []string{"@cheap"}}, 403, ""},
		{"a/opus-1", gateway.Caller{Models: []string{}}, 403, ""},
	} {
		c.who.App = "default"
		out := &got{}
		_ = r.g.Serve(t.Context(), c.who, request(agent.MessageProtocol, ask(c.model, false)), out)
		if out.status != c.status || out.header.Get("X-Skep-Model") != c.from {
			t.Errorf("%s as %+v: %d from %q, not %d from %q: %s", c.model, c.who, out.status, out.header.Get("X-Skep-Model"), c.status, c.from, out.text())
		}
		if c.status == 404 && !strings.Contains(out.text(), "@cheap") && !strings.Contains(out.text(), "serve") {
			t.Errorf("%s: the error does not say what there is: %s", c.model, out.text())
		}
	}
}

func TestWeights(t *testing.T) {
	r := newRig(t)
	a := r.provider("a", agent.MessageProtocol, good)
	b := r.provider("b", agent.MessageProtocol, good)
	r.route(agent.ModelRoute{Name: "w", Weighted: true, Candidates: []agent.Candidate{{Provider: "a", Model: "m", Weight: 3}, {Provider: "b", Model: "m"}}})
	for range 400 {
		if out := r.message("@w", false); out.status != 200 {
			t.Fatal(out.text())
		}
	}
	if n := a.calls.Load(); n < 240 || n > 360 || n+b.calls.Load() != 400 {
		t.Errorf("of 400 calls %d went to the candidate with three quarters of the weight", n)
	}
}

func TestCountAndModels(t *testing.T) {
	r := newRig(t)
	r.provider("counts", agent.MessageProtocol, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/v1/messages/count_tokens" {
			t.Errorf("it was asked at %s", q.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"input_tokens":77}`)
	})
	r.provider("foreign", agent.ChatProtocol, good, func(p *agent.Provider) { p.Models = []string{"f1"} })
	for _, c := range []struct{ model, want, estimate string }{{"counts/m", `{"input_tokens":77}`, ""}, {"foreign/f1", `{"input_tokens":5}`, "true"}} {
		req := request(agent.MessageProtocol, ask(c.model, false))
		req.Op, req.Path = wire.Count, "/v1/messages/count_tokens"
		if out := r.serve(req); out.status != 200 || strings.ReplaceAll(out.text(), " ", "") != c.want || out.header.Get("X-Skep-Estimate") != c.estimate {
			t.Errorf("%s: %d %s %v", c.model, out.status, out.text(), out.header)
		}
	}
	for p, want := range map[agent.Protocol]string{agent.ChatProtocol: `"object":"list"`, agent.MessageProtocol: `"has_more":false`} {
		out := r.serve(&gateway.Request{Protocol: p, Op: wire.List, Path: "/v1/models"})
		if out.status != 200 || !strings.Contains(strings.ReplaceAll(out.text(), " ", ""), want) || !strings.Contains(out.text(), "foreign/f1") {
			t.Errorf("%s: %d %s", p, out.status, out.text())
		}
	}
}

func TestAsk(t *testing.T) {
	r := newRig(t)
	r.provider("a", agent.MessageProtocol, inTurn(good, good, fails(400, "invalid_request_error"), cut(3)))
	req := &wire.Request{Model: "a/m", Messages: []wire.Message{{Parts: []wire.Part{{Text: "hi"}}}}}
	a, err := r.g.Ask(t.Context(), gateway.Caller{App: "default"}, req, nil)
	if err != nil || len(a.Parts) != 1 || a.Parts[0].Text != "Sunny, I think." {
		t.Fatalf("%+v, %v", a, err)
	}
	var text strings.Builder
	a, err = r.g.Ask(t.Context(), gateway.Caller{App: "default"}, req, func(e wire.Event) error { text.WriteString(e.Text); return nil })
	if err != nil || text.String() != "Sunny, I think." || a.Parts[0].Text != "Sunny, I think." || a.Usage.Tokens.Output != 5 {
		t.Errorf("%q %+v, %v", text.String(), a, err)
	}
	if _, err = r.g.Ask(t.Context(), gateway.Caller{App: "default"}, req, nil); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a request that is wrong: %v", err)
	}
	if _, err = r.g.Ask(t.Context(), gateway.Caller{App: "default"}, req, func(wire.Event) error { return nil }); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("a stream that breaks: %v", err)
	}
	if _, err = r.g.Ask(t.Context(), gateway.Caller{App: "default"}, &wire.Request{Model: "@none"}, nil); agent.KindOf(err) != agent.NotFound {
		t.Errorf("a route that is not there: %v", err)
	}
}

// A signed turn goes where it came from, and a client without a place for the signature gets it back to the provider all the same.
func TestSignedTurn(t *testing.T) {
	r := newRig(t)
	const signed = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"hm","signature":"SIG=="},{"type":"tool_use","id":"toolu_1","name":"w","input":{}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1}}`
	var second string
	one := r.provider("one", agent.MessageProtocol, inTurn(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, signed)
	}, func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		second = string(b)
		q.Body = io.NopCloser(strings.NewReader(second))
		good(w, q)
	}))
	two := r.provider("two", agent.MessageProtocol, good)
	r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "one", Model: "m"}}})
	out := r.serve(request(agent.ChatProtocol, `{"model":"@r","messages":[{"role":"user","content":"w?"}],"tools":[{"type":"function","function":{"name":"w","parameters":{"type":"object"}}}]}`))
	if out.status != 200 || !strings.Contains(out.text(), "toolu_1") {
		t.Fatal(out.text())
	}
	r.mu.Lock()
	r.routes = []agent.ModelRoute{{Name: "r", Candidates: []agent.Candidate{{Provider: "two", Model: "m"}, {Provider: "one", Model: "m"}}}}
	r.stamp++
	r.mu.Unlock()
	out = r.serve(request(agent.ChatProtocol, `{"model":"@r","messages":[{"role":"user","content":"w?"},{"role":"assistant","content":null,"tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"w","arguments":"{}"}}]},{"role":"tool","tool_call_id":"toolu_1","content":"rain"}],"tools":[{"type":"function","function":{"name":"w","parameters":{"type":"object"}}}]}`))
	if out.status != 200 || one.calls.Load() != 2 || two.calls.Load() != 0 {
		t.Fatalf("%d %s: %d calls to where it came from, %d elsewhere", out.status, out.text(), one.calls.Load(), two.calls.Load())
	}
	if !strings.Contains(second, `"SIG=="`) || !strings.Contains(second, `"hm"`) {
		t.Errorf("the signature did not come back: %s", second)
	}
}

func TestKeyIsScrubbed(t *testing.T) {
	r := newRig(t)
	tap := r.g.Tap("default", "a")
	defer tap.Close()
	r.secrets["a-key"] = "sk-very-secret-0123456789"
	leak := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if status == 200 {
				_, _ = io.WriteString(w, strings.Replace(whole, "Sunny", q.Header.Get("X-Api-Key"), 1))
				return
			}
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"bad key `+q.Header.Get("X-Api-Key")+`"}}`)
		}
	}
	r.provider("a", agent.MessageProtocol, inTurn(leak(200), leak(400), leak(401)))
	for range 3 {
		out := r.message("a/m", false)
		if strings.Contains(out.text(), "very-secret") || !strings.Contains(out.text(), "[secret]") && out.status != 502 {
			t.Errorf("%d %s", out.status, out.text())
		}
		if out.status == 401 {
			t.Error("the client is told that its own key is wrong")
		}
	}
	for range 3 {
		e, err := tap.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := json.Marshal(e); strings.Contains(string(b), "very-secret") || strings.Contains(string(e.Body)+string(e.Request), "very-secret") {
			t.Errorf("%s is recorded, with %s", b, e.Body)
		}
	}
}

func TestGone(t *testing.T) {
	r := newRig(t)
	r.provider("a", agent.MessageProtocol, good)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := &got{}
	start := time.Now()
	if err := r.g.Serve(ctx, gateway.Caller{App: "default"}, request(agent.MessageProtocol, ask("a/m", false)), out); err == nil || out.status != 0 {
		t.Errorf("%v, %d after %s", err, out.status, time.Since(start))
	}
}
