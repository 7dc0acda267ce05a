package chat

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/tidwall/gjson"
)

// FuzzRequest gives any bytes to what reads a client's request. What can be decoded can be encoded or is refused with a word, and means the same again.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"model":"m","messages":[{"role":"tool","tool_call_id":"a"}],"input":[{"type":"function_call","call_id":"a","name":"f"}],"tool_choice":{"type":"allowed_tools"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Codec.Peek(wire.Generate, path, b); err != nil && agent.AsError(err).Kind != agent.Invalid {
			t.Fatal(err)
		}
		if c, err := Codec.Patch(wire.Generate, path, "", nil, b, wire.Target{Model: "other"}); err == nil {
			if gjson.GetBytes(c.Body, "model").Str != "other" {
				t.Fatalf("patched to %s", c.Body)
			}
		}
		r, err := Codec.Decode(wire.Generate, path, nil, b)
		if err != nil {
			if agent.AsError(err).Kind != agent.Invalid {
				t.Fatal(err)
			}
			return
		}
		c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "gpt-5", Origin: origin})
		if err != nil {
			if agent.AsError(err).Kind != agent.Invalid {
				t.Fatal(err)
			}
			return
		}
		if _, err := Codec.Decode(wire.Generate, path, nil, c.Body); err != nil {
			t.Fatalf("%v: %s became %s", err, b, c.Body)
		}
	})
}

// FuzzStream gives any bytes to what reads a provider's stream: the events keep their rules, and what our encoder makes of them means the same.
func FuzzStream(f *testing.F) {
	f.Add([]byte(stream(`"delta":{"content":"a"}`, `"delta":{"reasoning_details":[{"type":"reasoning.text","text":"a","signature":"s","index":0}],"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}},{"index":1,"custom":{"name":"g","input":"x"}}]}`, `"delta":{"function_call":{"name":"f"}},"finish_reason":"stop"`, usageChunk, "[DONE]")))
	f.Add([]byte("data: {\"error\":{\"message\":\"x\"}}\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		m := Codec.Meter(true)
		m.Write(b)
		m.State()
		if x, ok := m.(wire.Breaker); ok {
			x.Broken(&wire.Fault{Message: "cut"})
		}
		list := decode(t, string(b))
		a, fault := collect(list)
		out := encoded(&wire.Request{StreamUse: true}, list)
		if fault != nil {
			return
		}
		again, fault := collect(decode(t, out))
		if fault != nil {
			t.Fatalf("%v: %s", fault, out)
		}
		said := func(a *wire.Answer) string {
			var s strings.Builder
			for _, p := range a.Parts {
				s.WriteString(p.Text)
				if p.Call != nil {
					s.WriteString(p.Call.ID + p.Call.Name + p.Call.Args)
				}
			}
			return strings.ToValidUTF8(s.String(), "?")
		}
		if x, y := said(a), said(again); len(x) != len(y) {
			t.Fatalf("%q became %q in %s", x, y, out)
		}
	})
}

// FuzzAnswer gives any bytes to what reads a provider's answer.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"choices":[{"message":{"content":"x","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]},"finish_reason":"stop"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := Codec.Meter(false)
		m.Write(b)
		m.State()
		a, err := Codec.DecodeAnswer(b, origin)
		if err != nil {
			return
		}
		out, err := Codec.EncodeAnswer(a, &wire.Request{})
		if err != nil {
			return
		}
		if _, err := Codec.DecodeAnswer(out, origin); err != nil {
			t.Fatalf("%v: %s became %s", err, b, out)
		}
	})
}
