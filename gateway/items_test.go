package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/response"
	"github.com/skep-dev/skep/gateway/wire"
)

// What a client of responses got from a provider of another protocol may be named by its id later on, by the same agent, unless it said store: false.
func TestItemsOfTranslatedAnswersMayBeNamed(t *testing.T) {
	for _, stream := range []bool{false, true} {
		r := newRig(t, func(o *gateway.Options) { o.Codecs = append([]wire.Codec{response.Codec}, codecs...) })
		var asked string
		u := r.provider("a", agent.MessageProtocol, good)
		u.is(func(w http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			asked = string(b)
			q.Body = io.NopCloser(strings.NewReader(asked))
			good(w, q)
		})
		ask := func(who, input, more string) *got {
			out := &got{}
			body := fmt.Sprintf(`{"model":"a/m","stream":%v,"input":[{"role":"user","content":"hi"},%s]%s}`, stream, input, more)
			out.err = r.g.Serve(r.Context(), gateway.Caller{App: "default", Agent: who}, &gateway.Request{
				Protocol: agent.ResponseProtocol, Op: wire.Generate, Path: "/v1/responses", Header: http.Header{}, Body: []byte(body),
			}, out)
			return out
		}
		id := func(out *got) string {
			s := out.text()
			if stream {
				s = s[strings.LastIndex(s, `data: {"type":"response.completed"`)+6:]
				s = gjson.Get(s, "response").Raw
			}
			return gjson.Get(s, `output.#(type="message").id`).Str
		}
		const hi = `{"role":"user","content":"and then?"}`
		kept := id(ask("one", hi, ""))
		if !strings.HasPrefix(kept, "msg_") {
			t.Fatalf("the item has the id %q", kept)
		}
		name := func(id string) string { return fmt.Sprintf(`{"type":"item_reference","id":%q},%s`, id, hi) }
		if out := ask("one", name(kept), ""); out.status != 200 || gjson.Get(asked, "messages.1.content.0.text").Str != "Sunny, I think." || gjson.Get(asked, "messages.1.role").Str != "assistant" {
			t.Errorf("%d %s; the provider got %s", out.status, out.text(), asked)
		}
		loose := id(ask("one", hi, `,"store":false`))
		n := u.calls.Load()
		for what, out := range map[string]*got{
			"another agent": ask("two", name(kept), ""), "made up": ask("one", name("msg_x"), ""), "not stored": ask("one", name(loose), ""),
		} {
			if out.status != 400 || !strings.Contains(out.text(), "the item") {
				t.Errorf("%s: %d %s", what, out.status, out.text())
			}
		}
		if u.calls.Load() != n {
			t.Error("what cannot be filled in went to the provider")
		}
	}
}

// A client that asked for no usage gets no chunk with nothing else in it; the ledger knows it all the same.
func TestUsageThatNobodyAskedForIsLeftOut(t *testing.T) {
	const chunk = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[%s]%s}\n\n"
	stream := fmt.Sprintf(chunk, `{"index":0,"delta":{"role":"assistant","content":"Sunny"},"finish_reason":null}`, "") +
		fmt.Sprintf(chunk, `{"index":0,"delta":{},"finish_reason":"stop"}`, "")
	usage := fmt.Sprintf(chunk, "", `,"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}`)
	const done = "data: [DONE]\n\n"
	for _, wants := range []bool{false, true} {
		r := newRig(t)
		r.provider("a", agent.ChatProtocol, func(w http.ResponseWriter, q *http.Request) {
			if b, _ := io.ReadAll(q.Body); !strings.Contains(string(b), `"include_usage":true`) {
				t.Errorf("no usage is asked for: %s", b)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, stream+usage+done)
		})
		body, want := `{"model":"a/m","stream":true,"messages":[{"role":"user","content":"hi"}]`, stream+done
		if wants {
			body, want = body+`,"stream_options":{"include_usage":true}`, stream+usage+done
		}
		if out := r.serve(request(agent.ChatProtocol, body+"}")); out.text() != want {
			t.Errorf("the client got %s", out.text())
		}
		if u := r.row(); u.Tokens.Input != 7 || u.Tokens.Output != 3 || u.Source != agent.FromProvider {
			t.Errorf("the ledger has %+v", u)
		}
	}
}

// A provider whose account is empty is not asked again, and clients that try again are told the same as at first.
func TestEmptyAccountIsToldAgain(t *testing.T) {
	r := newRig(t)
	u := r.provider("a", agent.MessageProtocol, quota)
	for range 3 {
		if out := r.message("a/m", false); out.status != 429 || out.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%d %v %s", out.status, out.header, out.text())
		}
	}
	if n := u.calls.Load(); n != 1 {
		t.Errorf("%d calls to the provider", n)
	}
}
