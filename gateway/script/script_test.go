package script

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/response"
	"github.com/skep-dev/skep/gateway/wire"
)

var codecs = []wire.Codec{chat.Codec, response.Codec, message.Codec, gemini.Codec}

func open(t *testing.T, text string) *Script {
	t.Helper()
	s, err := New([]byte(text), codecs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask asks in the words of one protocol, and returns the status and the answer in canonical form.
func ask(t *testing.T, s *Script, c wire.Codec, stream bool, msgs ...wire.Message) (int, *wire.Answer, *wire.Fault) {
	t.Helper()
	n := int64(100)
	r := &wire.Request{Model: "m", Messages: msgs, MaxTokens: &n, Stream: stream, Tools: []wire.Tool{{Name: "look", Schema: json.RawMessage(`{"type":"object"}`)}}}
	call, err := c.Encode(wire.Generate, r, wire.Target{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://script.invalid"+call.Path+"?"+call.Query, strings.NewReader(string(call.Body)))
	if call.Header != nil {
		req.Header = call.Header
	}
	res, err := s.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if res.StatusCode >= 400 {
		return res.StatusCode, nil, c.DecodeFault(res.StatusCode, res.Header, b)
	}
	if !stream {
		a, err := c.DecodeAnswer(b, wire.Origin{})
		if err != nil {
			t.Fatalf("%s: %v in %s", c.Protocol(), err, b)
		}
		return 200, a, nil
	}
	dec, all := c.Decoder(wire.Origin{}), wire.Collector{}
	for _, e := range append(decoded(dec, b), dec.Close()...) {
		if e.Kind == wire.Broken {
			return 200, all.Answer(), e.Fault
		}
		all.Add(e)
	}
	if err != nil {
		return 200, all.Answer(), &wire.Fault{Class: agent.StreamBroken, Message: err.Error()}
	}
	return 200, all.Answer(), nil
}

func decoded(dec wire.Decoder, b []byte) (list []wire.Event) {
	for frame := range strings.SplitSeq(string(b), "\n\n") {
		name, data := "", ""
		for line := range strings.SplitSeq(frame, "\n") {
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				name = v
			} else if v, ok := strings.CutPrefix(line, "data: "); ok {
				data = v
			}
		}
		if data != "" {
			list = append(list, dec.Frame(name, []byte(data))...)
		}
	}
	return list
}

func user(text string) wire.Message { return wire.Message{Parts: []wire.Part{{Text: text}}} }

// said is what an answer says, and its calls.
func said(a *wire.Answer) (text string, calls []*wire.ToolCall) {
	for _, p := range a.Parts {
		if p.Kind == wire.TextPart {
			text += p.Text
		}
		if p.Call != nil {
			calls = append(calls, p.Call)
		}
	}
	return text, calls
}

// A loop of tools goes through its turns, in each protocol, whole and streamed.
func TestToolLoop(t *testing.T) {
	const text = `{"turns": [
		{"reply": {"text": "Let me look.", "calls": [{"name": "look", "args": {"at": "door"}}, {"name": "look"}]}},
		{"reply": {"text": "I saw: {{last}}", "usage": {"input": 7, "output": 3}}}
	]}`
	for _, c := range codecs {
		for _, stream := range []bool{false, true} {
			s := open(t, text)
			status, a, f := ask(t, s, c, stream, user("look around"))
			if f != nil {
				t.Fatalf("%s: %d %v", c.Protocol(), status, f)
			}
			got, calls := said(a)
			if got != "Let me look." || len(calls) != 2 || calls[0].Args != `{"at":"door"}` && calls[0].Args != `{"at": "door"}` || calls[1].Args != "{}" || a.Stop != wire.StopTool {
				t.Fatalf("%s, stream %v: %q %+v stop %d", c.Protocol(), stream, got, calls, a.Stop)
			}
			results := wire.Message{}
			for _, call := range calls {
				results.Parts = append(results.Parts, wire.Part{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: call.ID, Name: call.Name, Parts: []wire.Part{{Text: "a cat"}}}})
			}
			_, a, f = ask(t, s, c, stream, user("look around"), wire.Message{Role: wire.Assistant, Parts: a.Parts}, results)
			if f != nil {
				t.Fatalf("%s: %v", c.Protocol(), f)
			}
			if got, _ := said(a); !strings.Contains(got, "I saw: ") || !strings.Contains(got, "a cat") || a.Usage.Tokens.Input != 7 || a.Usage.Tokens.Output != 3 {
				t.Errorf("%s, stream %v: %q %+v", c.Protocol(), stream, got, a.Usage)
			}
			_, _, f = ask(t, s, c, stream, user("look around"), wire.Message{Role: wire.Assistant, Parts: []wire.Part{{Text: "x"}}}, user("more"), wire.Message{Role: wire.Assistant, Parts: []wire.Part{{Text: "y"}}}, user("even more"))
			if f == nil || !strings.Contains(f.Message, "no turn for answer 3") || !strings.Contains(f.Message, "even more") {
				t.Errorf("%s: a turn that is missing: %+v", c.Protocol(), f)
			}
		}
	}
}

func TestMatch(t *testing.T) {
	s := open(t, `
{"match":{"contains":"weather"},"reply":{"text":"sunny"}}
{"match":{"model":"big-*"},"reply":{"text":"big"}}
{"match":{"tool":"look","contains":"cat"},"reply":{"text":"meow"}}
{"match":{"nth":2},"reply":{"text":"second"}}
{"reply":{"text":"first"}}`)
	for _, c := range []struct {
		want string
		msgs []wire.Message
	}{
		{"sunny", []wire.Message{user("the weather?")}},
		{"first", []wire.Message{user("hi")}},
		{"second", []wire.Message{user("hi"), {Role: wire.Assistant, Parts: []wire.Part{{Text: "first"}}}, user("and?")}},
		{"meow", []wire.Message{user("hi"), {Role: wire.Assistant, Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "1", Name: "look", Args: "{}"}}}},
			{Parts: []wire.Part{{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "1", Parts: []wire.Part{{Text: "a cat"}}}}}}}},
	} {
		_, a, f := ask(t, s, message.Codec, false, c.msgs...)
		if f != nil {
			t.Fatal(f)
		}
		if got, _ := said(a); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

// Faults come before the reply that follows them, once for each conversation, also when many talk at once.
func TestFaults(t *testing.T) {
	s := open(t, `
{"fault":{"status":429,"retry_after":7,"message":"slow down"}}
{"fault":{"status":529},"times":2}
{"reply":{"text":"at last"}}`)
	var all sync.WaitGroup
	for _, who := range []string{"ann", "bob", "cid"} {
		all.Go(func() {
			want := []int{429, 529, 529, 200, 200}
			for i, status := range want {
				got, _, f := ask(t, s, message.Codec, false, user(who))
				if got != status {
					t.Errorf("%s %d: %d, not %d", who, i, got, status)
				}
				if i == 0 && (f == nil || f.Class != agent.RateLimited || f.After.Seconds() != 7 || !strings.Contains(f.Message, "slow down")) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
	all.Wait()
}

func TestBroken(t *testing.T) {
	for name, text := range map[string]string{
		"cut":   `{"reply":{"text":"one two three four five six","chunk":4},"cut":4}`,
		"eof":   `{"reply":{"text":"one two three four five six","chunk":4},"eof":4}`,
		"fault": `{"reply":{"text":"one two three four five six","chunk":4},"fault":{"after":4,"status":529}}`,
	} {
		for _, c := range codecs {
			if _, a, f := ask(t, open(t, text), c, true, user("hi")); f == nil || a == nil {
				t.Errorf("%s of %s ends well", name, c.Protocol())
			}
		}
	}
}

func TestRaw(t *testing.T) {
	s := open(t, `{"raw":{"protocol":"anthropic","header":{"x-mark":"1"},"body":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"recorded"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}}}`)
	_, a, f := ask(t, s, message.Codec, false, user("hi"))
	if f != nil {
		t.Fatal(f)
	}
	if got, _ := said(a); got != "recorded" {
		t.Errorf("%q", got)
	}
	for _, stream := range []bool{false, true} {
		_, a, f := ask(t, s, chat.Codec, stream, user("hi"))
		if f != nil {
			t.Fatal(f)
		}
		if got, _ := said(a); got != "recorded" {
			t.Errorf("another protocol, stream %v: %q", stream, got)
		}
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "no turns",
		"{":                       "turn 1 of the script is not JSON",
		`{"turns":[]}`:            "no turns",
		`{"reply":{"txt":"x"}}`:   "txt",
		`{"match":{"nth":1}}`:     "neither reply",
		`{"reply":{"stop":"no"}}`: "reply.stop",
		`{"reply":{"text":"a"}}` + "\n" + `{"reply":{"calls":[{"args":{}}]}}`: "turn 2",
		`{"reply":{"calls":[{"name":"x","args":[1]}]}}`:                       "no object",
		`{"fault":{"status":200}}`:                                            "400 to 599",
		`{"reply":{"text":"a"},"fault":{"status":500}}`:                       "in after",
	} {
		if err := Check([]byte(text)); err == nil || agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzScript(f *testing.F) {
	f.Add([]byte(`{"reply":{"text":"x"}}`))
	f.Add([]byte(`{"turns":[{"fault":{"status":429}},{"raw":{"body":"x"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := New(text, codecs)
		if err != nil {
			return
		}
		for i := range s.turns {
			if r := s.turns[i].Reply; r != nil && (r.Delay > 0 || r.Pace > 0) || s.turns[i].Stall != nil {
				return
			}
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/messages", strings.NewReader(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`))
		if res, err := s.RoundTrip(req); err == nil {
			_, _ = io.ReadAll(res.Body)
		}
	})
}
