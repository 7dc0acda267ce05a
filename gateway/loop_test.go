package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
)

// object is a request or answer as a client has it.
type object = map[string]any

func parse(t *testing.T, text string) (o object) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

func list(v any) []any { l, _ := v.([]any); return l }

// loopRequest is the first request of a loop with a tool.
func loopRequest(p agent.Protocol) (path, body string) {
	const schema = `{"type":"object","properties":{"city":{"type":"string"}}}`
	switch p {
	case agent.ChatProtocol:
		return chatPath, `{"model":"@r","messages":[{"role":"user","content":"weather?"}],"tools":[{"type":"function","function":{"name":"w","parameters":` + schema + `}}]}`
	case agent.ResponseProtocol:
		return "/v1/responses", `{"model":"@r","store":false,"include":["reasoning.encrypted_content"],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"weather?"}]}],"tools":[{"type":"function","name":"w","parameters":` + schema + `}]}`
	case agent.MessageProtocol:
		return messagePath, `{"model":"@r","max_tokens":100,"messages":[{"role":"user","content":"weather?"}],"tools":[{"name":"w","input_schema":` + schema + `}]}`
	default:
		return "/v1beta/models/@r:generateContent", `{"contents":[{"role":"user","parts":[{"text":"weather?"}]}],"tools":[{"functionDeclarations":[{"name":"w","parameters":` + schema + `}]}]}`
	}
}

// goOn adds an answer and the results of its calls to a request, as a client of the protocol does. A plain one keeps nothing of the model's thoughts. It
// returns how many calls there were.
func goOn(p agent.Protocol, plain bool, req, answer object) (calls int) {
	without := func(items []any, drop func(object) bool) (out []any) {
		for _, i := range items {
			if o := i.(object); !plain || !drop(o) {
				out = append(out, o)
			}
		}
		return out
	}
	switch p {
	case agent.ChatProtocol:
		m := list(answer["choices"])[0].(object)["message"].(object)
		if plain {
			m = object{"role": "assistant", "content": m["content"], "tool_calls": m["tool_calls"]}
		}
		msgs := append(list(req["messages"]), m)
		for _, c := range list(m["tool_calls"]) {
			calls++
			msgs = append(msgs, object{"role": "tool", "tool_call_id": c.(object)["id"], "content": "rain"})
		}
		req["messages"] = msgs
	case agent.ResponseProtocol:
		items := without(list(answer["output"]), func(o object) bool { return o["type"] == "reasoning" })
		in := append(list(req["input"]), items...)
		for _, i := range items {
			if o := i.(object); o["type"] == "function_call" {
				calls++
				in = append(in, object{"type": "function_call_output", "call_id": o["call_id"], "output": "rain"})
			}
		}
		req["input"] = in
	case agent.MessageProtocol:
		blocks := without(list(answer["content"]), func(o object) bool { return o["type"] == "thinking" || o["type"] == "redacted_thinking" })
		var results []any
		for _, b := range blocks {
			if o := b.(object); o["type"] == "tool_use" {
				calls++
				results = append(results, object{"type": "tool_result", "tool_use_id": o["id"], "content": "rain"})
			}
		}
		req["messages"] = append(list(req["messages"]), object{"role": "assistant", "content": blocks}, object{"role": "user", "content": results})
	default:
		content := list(answer["candidates"])[0].(object)["content"].(object)
		parts := without(list(content["parts"]), func(o object) bool { return o["thought"] == true })
		var results []any
		for _, q := range parts {
			o := q.(object)
			if plain {
				delete(o, "thoughtSignature")
			}
			if f, ok := o["functionCall"].(object); ok {
				calls++
				results = append(results, object{"functionResponse": object{"id": f["id"], "name": f["name"], "response": object{"output": "rain"}}})
			}
		}
		content["parts"] = parts
		req["contents"] = append(list(req["contents"]), content, object{"role": "user", "parts": results})
	}
	return calls
}

// ofStream is the whole answer that a plain client makes of a chat's stream.
func ofStream(t *testing.T, text string) object {
	t.Helper()
	content := ""
	var calls []any
	parser := sse.Parser{Max: wire.MaxFrame}
	if err := parser.Write([]byte(text), func(_ string, data []byte) {
		d := gjson.GetBytes(data, "choices.0.delta")
		content += d.Get("content").Str
		d.Get("tool_calls").ForEach(func(_, c gjson.Result) bool {
			if n := int(c.Get("index").Int()); n == len(calls) {
				calls = append(calls, object{"id": c.Get("id").Str, "type": "function", "function": object{"name": c.Get("function.name").Str, "arguments": ""}})
			}
			f := calls[c.Get("index").Int()].(object)["function"].(object)
			f["arguments"] = f["arguments"].(string) + c.Get("function.arguments").Str
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	m := object{"role": "assistant", "content": content}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return object{"choices": []any{object{"message": m}}}
}

// Three turns of a signed loop with tools: what a provider signed comes back to it byte for byte, whatever the client speaks, also when the client keeps
// nothing of it, and though the route would go elsewhere by now. What another provider signed goes to nobody else.
func TestASignedLoopGoesOnWhereItBegan(t *testing.T) {
	const script = `{"match":{"nth":1},"reply":{"reasoning":"hm one","signature":"U0lHTkVELTE=","calls":[{"id":"call_1","name":"w","args":{"city":"Oslo"}}]}}
{"match":{"nth":2},"reply":{"reasoning":"hm two","signature":"U0lHTkVELTI=","calls":[{"id":"call_2","name":"w","args":{"city":"Rome"}}]}}
{"match":{"nth":3},"reply":{"text":"Done."}}
{"match":{"nth":4},"reply":{"reasoning":"hm three","signature":"U0lHTkVELTM=","calls":[{"id":"call_3","name":"w","args":{"city":"Bonn"}}]}}
{"match":{"nth":5},"reply":{"text":"Done again."}}`
	pairs(func(name string, c, p agent.Protocol) {
		one, two, three := "U0lHTkVELTE=", "U0lHTkVELTI=", "U0lHTkVELTM="
		if p == agent.ResponseProtocol { // a script seals what it signs there
			one, two, three = sealed(p, one), sealed(p, two), sealed(p, three)
		}
		for _, mode := range []string{"", "plain", "plain streams"} {
			plain := mode != ""
			if p == agent.ChatProtocol || plain && c == p || mode == "plain streams" && c != agent.ChatProtocol {
				continue // has no signatures of its own; what passes is the client's affair
			}
			t.Run(name+" "+mode, func(t *testing.T) {
				r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
				a := r.scripted("a", script, p)
				b := r.scripted("b", script, p)
				to := func(names ...string) {
					m := agent.ModelRoute{Name: "r"}
					for _, n := range names {
						m.Candidates = append(m.Candidates, agent.Candidate{Provider: n, Model: "claude-opus-4-8"})
					}
					r.mu.Lock()
					defer r.mu.Unlock()
					r.routes = []agent.ModelRoute{m}
					r.stamp++
				}
				to("a")
				path, body := loopRequest(c)
				req := parse(t, body)
				for turn := 1; turn <= 3; turn++ {
					if mode == "plain streams" {
						req["stream"] = true
					}
					raw, err := json.Marshal(req)
					if err != nil {
						t.Fatal(err)
					}
					out := r.serve(&gateway.Request{Protocol: c, Op: wire.Generate, Path: path, Header: loopHeader(), Body: raw})
					if out.status != 200 || out.err != nil || int(a.calls.Load()) != turn || b.calls.Load() != 0 {
						t.Fatalf("turn %d: %d %s %v, %d calls to where it began and %d elsewhere", turn, out.status, out.text(), out.err, a.calls.Load(), b.calls.Load())
					}
					sent := a.text()
					if has := strings.Contains(sent, one); has != (turn > 1) {
						t.Errorf("turn %d: the first signature is there: %v, in %s", turn, has, sent)
					}
					if has := strings.Contains(sent, two); has != (turn > 2) {
						t.Errorf("turn %d: the second signature is there: %v, in %s", turn, has, sent)
					}
					answer := object{}
					if mode == "plain streams" {
						answer = ofStream(t, out.text())
					} else {
						answer = parse(t, out.text())
					}
					if calls := goOn(c, plain, req, answer); (calls == 1) != (turn < 3) {
						t.Fatalf("turn %d has %d calls: %s", turn, calls, out.text())
					}
					to("b", "a")
				}
				again(c, req)
				for turn := 4; turn <= 5; turn++ { // a new question goes where the route says by now
					raw, _ := json.Marshal(req)
					out := r.serve(&gateway.Request{Protocol: c, Op: wire.Generate, Path: path, Header: loopHeader(), Body: raw})
					if out.status != 200 || out.err != nil || int(b.calls.Load()) != turn-3 || a.calls.Load() != 3 {
						t.Fatalf("turn %d: %d %s, %v, %d calls to the other", turn, out.status, out.text(), out.err, b.calls.Load())
					}
					sent := b.text()
					if strings.Contains(sent, one) || strings.Contains(sent, two) {
						t.Errorf("turn %d: another provider gets the signatures: %s", turn, sent)
					}
					if has := strings.Contains(sent, three); has != (turn == 5) {
						t.Errorf("turn %d: its own signature is there: %v, in %s", turn, has, sent)
					}
					if turn == 4 {
						answer := object{}
						if mode == "plain streams" {
							answer = ofStream(t, out.text())
						} else {
							answer = parse(t, out.text())
						}
						goOn(c, plain, req, answer)
					}
				}
			})
		}
	})
}

func loopHeader() map[string][]string {
	return map[string][]string{"Anthropic-Version": {"2023-06-01"}}
}

// again asks something new.
func again(p agent.Protocol, req object) {
	const text = "and tomorrow?"
	switch p {
	case agent.ChatProtocol:
		req["messages"] = append(list(req["messages"]), object{"role": "user", "content": text})
	case agent.ResponseProtocol:
		req["input"] = append(list(req["input"]), object{"type": "message", "role": "user", "content": []any{object{"type": "input_text", "text": text}}})
	case agent.MessageProtocol:
		m := list(req["messages"])
		m[len(m)-1] = object{"role": "user", "content": text} // in place of no results
		req["messages"] = m
	default:
		m := list(req["contents"])
		m[len(m)-1] = object{"role": "user", "parts": []any{object{"text": text}}}
		req["contents"] = m
	}
}

// The key that a signed turn began with goes on with it, too: what one account signed is worth nothing to another.
func TestASignedTurnKeepsItsKey(t *testing.T) {
	const script = `{"match":{"nth":1},"reply":{"reasoning":"hm","signature":"U0lH","calls":[{"id":"call_%d","name":"w","args":{}}]}}
{"match":{"nth":2},"reply":{"text":"Done."}}`
	for n := range 8 { // the keys have one weight: by chance each would be drawn
		r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
		r.scripted("a", fmt.Sprintf(script, n), agent.MessageProtocol)
		r.mu.Lock()
		r.providers[0].Keys = []agent.ProviderKey{{Secret: "one"}, {Secret: "two"}, {Secret: "three"}}
		r.mu.Unlock()
		r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}}})
		path, body := loopRequest(agent.ChatProtocol)
		req := parse(t, body)
		for range 2 {
			raw, _ := json.Marshal(req)
			out := r.serve(&gateway.Request{Protocol: agent.ChatProtocol, Op: wire.Generate, Path: path, Header: loopHeader(), Body: raw})
			if out.status != 200 {
				t.Fatalf("%d %s", out.status, out.text())
			}
			goOn(agent.ChatProtocol, true, req, parse(t, out.text()))
		}
		if rows := r.usage(); len(rows) != 2 || rows[0].Model.Secret != rows[1].Model.Secret {
			t.Errorf("the turn began with the key %q and went on with %q", rows[0].Model.Secret, rows[1].Model.Secret)
		}
	}
}

// sealed is opaque data as a script of that protocol tells it.
func sealed(p agent.Protocol, opaque string) string {
	return wire.Seal(&wire.Thinking{Opaque: opaque, Origin: wire.Origin{Protocol: p.String()}})
}
