package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
)

const spelledKey = "sk-very-secret-0123456789"

// said is all that a client reads in an answer, put together as clients do.
func said(a *wire.Answer) string {
	var text, thought, args strings.Builder
	for _, p := range a.Parts {
		switch {
		case p.Call != nil:
			args.WriteString(p.Call.Args + "\n")
		case p.Kind == wire.ThoughtPart:
			thought.WriteString(p.Text)
		default:
			text.WriteString(p.Text)
		}
	}
	return text.String() + "\n" + thought.String() + "\n" + args.String()
}

// A provider that repeats the key it was called with, in pieces of any size, tells the client nothing: in texts, thoughts and arguments, of every pair of
// protocols, streamed or whole.
func TestAKeyThatIsSpelledInPiecesIsTakenOut(t *testing.T) {
	escaped := strings.NewReplacer("s", `\u0073`, "k", `\u006b`).Replace(spelledKey)
	pairs(func(name string, c, p agent.Protocol) {
		for _, chunk := range []int{1, 3, 7} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %d bytes, stream %v", name, chunk, stream), func(t *testing.T) {
					r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
					r.secrets["a-key"] = spelledKey
					text, _ := json.Marshal("I was called with " + spelledKey + ", as skeps are. And with " + escaped + ".")
					r.scripted("a", fmt.Sprintf(`{"reply":{"reasoning":%[1]s,"text":%[1]s,"calls":[{"name":"f","args":{"a":%[1]s,"b":"sk-very"}},{"name":"g","args":{"c":%[1]s}}],"chunk":%[2]d}}`, text, chunk), p)
					out := r.serve(prompt(c, "a/m", "hi", stream))
					if out.err != nil {
						t.Fatalf("%v: %s", out.err, out.text())
					}
					a, broken := read(t, c, stream, out.text())
					if broken != nil {
						t.Fatalf("it broke: %+v", broken)
					}
					got := said(a)
					if strings.Contains(got, "very-secret") || strings.Contains(out.text(), spelledKey) || strings.Contains(out.text(), escaped) {
						t.Errorf("the client is told the key: %s", got)
					}
					if !strings.Contains(got, "I was called with [secret], as skeps are. And with [secret].") || !strings.Contains(got, "sk-very") {
						t.Errorf("the client is told %s", got)
					}
					for _, p := range a.Parts {
						if p.Call != nil && !json.Valid([]byte(p.Call.Args)) {
							t.Errorf("the arguments are no JSON any more: %s", p.Call.Args)
						}
					}
				})
			}
		}
	})
}

// In an array of JSON, as Gemini streams without alt=sse, and in what is recorded, the key is no more to be found.
func TestASpelledKeyIsTakenOutOfArraysAndRecordings(t *testing.T) {
	text := "I was called with " + spelledKey + ", as skeps are."
	turn := fmt.Sprintf(`{"match":{"nth":1},"reply":{"text":%q,"chunk":2}}`, text)
	for _, p := range talk {
		r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
		r.secrets["a-key"] = spelledKey
		r.scripted("a", turn, p)
		tap := r.g.Tap("default", "a")
		req := prompt(p, "a/m", "hi", true)
		req.Query = ""
		out := r.serve(req)
		var all string
		if p == agent.GeminiProtocol {
			var list []struct {
				Candidates []struct {
					Content struct{ Parts []struct{ Text string } }
				}
			}
			if err := json.Unmarshal([]byte(out.text()), &list); err != nil || len(list) < 10 {
				t.Fatalf("%v: %s", err, out.text())
			}
			for _, e := range list {
				for _, p := range e.Candidates[0].Content.Parts {
					all += p.Text
				}
			}
		} else {
			a, _ := read(t, p, true, out.text())
			all = a.Parts[0].Text
		}
		if want := strings.Replace(text, spelledKey, "[secret]", 1); all != want || out.err != nil {
			t.Errorf("%s: the client is told %q, not %q, %v", p, all, want, out.err)
		}
		e, err := tap.Next(t.Context())
		tap.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(e.Body), "0123") || !strings.Contains(string(e.Body), "[secret]") || strings.Contains(string(e.Body), "cret-") {
			t.Errorf("%s: recorded is %s", p, e.Body)
		}
	}
}

// A provider's own error behind what was held back is told, and so is what was held.
func TestAnErrorBehindHeldTextIsTold(t *testing.T) {
	r := newRig(t)
	r.secrets["a-key"] = spelledKey
	out := &got{wrote: make(chan struct{}, 1)}
	r.provider("a", agent.MessageProtocol, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(frames[:3], ""))
		_ = http.NewResponseController(w).Flush()
		<-out.wrote // before content has gone, another would be asked
		_, _ = io.WriteString(w, strings.Replace(frames[3], "I think.", "so s", 1)+
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no more\"}}\n\n")
	})
	out.err = r.g.Serve(t.Context(), gateway.Caller{App: "default", Key: "k1"}, request(agent.MessageProtocol, ask("a/m", true)), out)
	if text := out.text(); !strings.Contains(text, `"so s"`) || strings.Count(text, "no more") != 1 || out.err == nil {
		t.Errorf("%v: %s", out.err, text)
	}
}
