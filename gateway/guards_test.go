package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/embed"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/response"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
)

var allCodecs = []wire.Codec{chat.Codec, response.Codec, message.Codec, gemini.Codec}

// guarded are the records of a rig with guardrails.
type guarded struct {
	gateway.Records
	list []agent.Guardrail
}

func (g guarded) Guardrails(context.Context, agent.App) ([]agent.Guardrail, error) {
	return g.list, nil
}

func newGuarded(t *testing.T, list ...agent.Guardrail) *rig {
	r := newRig(t, func(o *gateway.Options) {
		o.Codecs, o.Records = allCodecs, guarded{o.Records, list}
	})
	return r
}

// scripted adds a provider with a script, and returns what it was asked.
func (r *rig) scripted(name, text string, speaks ...agent.Protocol) *asked {
	a := &asked{}
	way, err := script.New([]byte(text), allCodecs)
	if err != nil {
		r.Fatal(err)
	}
	r.provider(name, speaks[0], func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		a.body.Store(string(b))
		a.calls.Add(1)
		q.Body = io.NopCloser(strings.NewReader(string(b)))
		q.URL.Path = strings.TrimSuffix(q.URL.Path, "/")
		res, err := way.RoundTrip(q)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(res.StatusCode)
		for buf := make([]byte, 32<<10); ; {
			n, err := res.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				if err != io.EOF {
					panic(http.ErrAbortHandler)
				}
				return
			}
		}
	}, func(p *agent.Provider) { p.Protocols = speaks })
	return a
}

type asked struct {
	body  atomic.Value
	calls atomic.Int64
}

func (a *asked) text() string {
	s, _ := a.body.Load().(string)
	return s
}

// prompt is a request in a protocol that says text.
func prompt(p agent.Protocol, model, text string, stream bool) *gateway.Request {
	r := &gateway.Request{Protocol: p, Op: wire.Generate, Header: http.Header{"Anthropic-Version": {"2023-06-01"}}}
	switch p {
	case agent.ChatProtocol:
		r.Path, r.Body = chatPath, fmt.Appendf(nil, `{"model":%q,"stream":%v,"messages":[{"role":"user","content":%q}]}`, model, stream, text)
	case agent.ResponseProtocol:
		r.Path, r.Body = "/v1/responses", fmt.Appendf(nil, `{"model":%q,"stream":%v,"store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":%q}]}]}`, model, stream, text)
	case agent.MessageProtocol:
		r.Path, r.Body = messagePath, fmt.Appendf(nil, `{"model":%q,"stream":%v,"max_tokens":100,"messages":[{"role":"user","content":%q}]}`, model, stream, text)
	default:
		r.Path, r.Body = "/v1beta/models/"+strings.ReplaceAll(model, "/", "%2F")+":generateContent", fmt.Appendf(nil, `{"contents":[{"role":"user","parts":[{"text":%q}]}]}`, text)
		if stream {
			r.Path, r.Query = strings.Replace(r.Path, "generate", "streamGenerate", 1), "alt=sse"
		}
	}
	return r
}

func codecOf(p agent.Protocol) wire.Codec {
	for _, c := range allCodecs {
		if c.Protocol() == p {
			return c
		}
	}
	return nil
}

// read is what a client reads in an answer. broken is the fault that a stream ended with.
func read(t testing.TB, p agent.Protocol, stream bool, body string) (a *wire.Answer, broken *wire.Fault) {
	t.Helper()
	if !stream {
		a, err := codecOf(p).DecodeAnswer([]byte(body), wire.Origin{})
		if err != nil {
			t.Fatalf("%s: %v in %s", p, err, body)
		}
		return a, nil
	}
	var c wire.Collector
	dec := codecOf(p).Decoder(wire.Origin{})
	take := func(list []wire.Event) {
		for _, e := range list {
			if e.Kind == wire.Broken {
				broken = e.Fault
			}
			c.Add(e)
		}
	}
	parser := sse.Parser{Max: wire.MaxFrame}
	_ = parser.Write([]byte(body), func(name string, data []byte) { take(dec.Frame(name, data)) })
	take(dec.Close())
	return c.Answer(), broken
}

const secretive = `{"turns":[{"reply":{"reasoning":"She is ann@example.org, I think.","text":"Write to ann@example.org, or pay 4111 1111 1111 1111. Zoë is fine.",
 "calls":[{"name":"send","args":{"to":"ann\u0040example.org","card":4111111111111111,"n":7}},{"name":"look","args":{"q":"ann@example.org"}}],"chunk":3,"usage":{"input":9,"output":30}}}]}`

// A secret in text, in thoughts and in arguments of tools that comes in many pieces is found in each protocol, passed and translated, whole and streamed.
func TestGuardrailsOfAnswers(t *testing.T) {
	for _, from := range agent.Protocols()[:4] {
		for _, to := range agent.Protocols()[:4] {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s to %s, stream %v", from, to, stream), func(t *testing.T) {
					r := newGuarded(t, agent.Guardrail{Name: "g", Find: []string{"email", "card"}, Response: true})
					up := r.scripted("up", secretive, to)
					out := r.serve(prompt(from, "up/m", "what is the mail of ann@example.org?", stream))
					if out.err != nil || out.status != 200 {
						t.Fatalf("%d %v %s", out.status, out.err, out.text())
					}
					if !strings.Contains(up.text(), "ann@example.org") {
						t.Error("the prompt was changed")
					}
					a, broken := read(t, from, stream, out.text())
					if broken != nil {
						t.Fatal(broken)
					}
					text, args := "", ""
					for _, p := range a.Parts {
						switch {
						case p.Call != nil:
							args += p.Call.Args + " "
						case p.Kind == wire.TextPart:
							text += p.Text
						case p.Kind == wire.ThoughtPart && strings.Contains(p.Text, "ann@"):
							t.Errorf("a thought is %q", p.Text)
						}
					}
					if want := "Write to [email], or pay [card]. Zoë is fine."; text != want {
						t.Errorf("text is %q, not %q", text, want)
					}
					args = strings.ReplaceAll(args, " ", "")
					for _, want := range []string{`"to":"[email]"`, `"card":"[card]"`, `"n":7`, `{"q":"[email]"}`} {
						if !strings.Contains(args, want) {
							t.Errorf("arguments are %s, without %s", args, want)
						}
					}
					if u := a.Usage.Tokens; (from != agent.ChatProtocol || !stream) && (u.Input != 9 || u.Output != 30) { // a chat client that did not ask for usage
						t.Errorf("usage is %+v", u)
					}
					if row := r.row(); row.Fault != agent.NoFault || row.Tokens.Output != 30 {
						t.Errorf("the ledger has %+v", row)
					}
				})
			}
		}
	}
}

func TestGuardrailsRefuseAnswers(t *testing.T) {
	long := `{"turns":[{"reply":{"text":"` + strings.Repeat("words go by. ", 60) + `and then ann@example.org comes","chunk":10}}]}`
	args := `{"turns":[{"reply":{"calls":[{"name":"send","args":{"to":"ann@example.org"}}],"chunk":4}}]}`
	for _, p := range agent.Protocols()[:4] {
		for name, text := range map[string]string{"text": long, "arguments": args} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, stream %v", p, name, stream), func(t *testing.T) {
					r := newGuarded(t, agent.Guardrail{Name: "no-mail", Find: []string{"email"}, Response: true, Block: true})
					up := r.scripted("up", text, p)
					out := r.serve(prompt(p, "up/m", "hello", stream))
					if strings.Contains(out.text(), "ann@") {
						t.Errorf("it is told: %s", out.text())
					}
					if stream && out.status == 200 {
						if _, broken := read(t, p, true, out.text()); broken == nil || out.err == nil || !strings.Contains(broken.Message, "no-mail") {
							t.Errorf("the stream ended with %v, %v", broken, out.err)
						}
					} else if out.status != 400 || !strings.Contains(out.text(), "no-mail") || out.header.Get("X-Should-Retry") != "false" {
						t.Errorf("%d %v %s", out.status, out.header, out.text())
					}
					if row := r.usage(); len(row) != 1 || row[0].Model.Fault != agent.ContentFault || row[0].Outcome == agent.Succeeded || row[0].Model.Tokens.Output == 0 || up.calls.Load() != 1 {
						t.Errorf("the ledger has %+v", row)
					}
				})
			}
		}
	}
}

func TestGuardrailsOfPrompts(t *testing.T) {
	for _, from := range agent.Protocols()[:4] {
		for _, to := range agent.Protocols()[:4] {
			r := newGuarded(t, agent.Guardrail{Name: "g", Find: []string{"email"}, Prompt: true})
			up := r.scripted("up", `{"turns":[{"reply":{"text":"{{last}}"}}]}`, to)
			q := prompt(from, "up/m", "the mail is ann@example.org.", false)
			out := r.serve(q)
			if strings.Contains(up.text(), "ann@") || !strings.Contains(up.text(), "the mail is [email].") {
				t.Errorf("%s to %s: it was asked %s", from, to, up.text())
			}
			if a, _ := read(t, from, false, out.text()); a.Parts[0].Text != "the mail is [email]." {
				t.Errorf("%s to %s: %s", from, to, out.text())
			}
			if from == to && from != agent.GeminiProtocol { // all else goes as it came
				if want := strings.Replace(strings.Replace(string(q.Body), "ann@example.org", "[email]", 1), `"up/m"`, `"m"`, 1); up.text() != want {
					t.Errorf("%s: it was asked %s, not %s", from, up.text(), want)
				}
			}
		}
	}
}

func TestGuardrailsRefusePrompts(t *testing.T) {
	for _, p := range agent.Protocols()[:4] {
		r := newGuarded(t, agent.Guardrail{Name: "no-mail", Find: []string{"email"}, Prompt: true, Block: true, Models: []string{"up/*"}})
		up := r.scripted("up", `{"turns":[{"reply":{"text":"hi"}}]}`, p)
		local := r.scripted("local", `{"turns":[{"reply":{"text":"here"}}]}`, p)
		out := r.serve(prompt(p, "up/m", "the mail is ann@example.org.", true))
		if f := codecOf(p).DecodeFault(out.status, out.header, []byte(out.text())); out.status != 400 || !strings.Contains(f.Message, "no-mail") || strings.Contains(out.text(), "ann@") {
			t.Errorf("%s: %d %s", p, out.status, out.text())
		}
		rows := r.usage()
		if len(rows) != 1 || rows[0].Model.Fault != agent.ContentFault || rows[0].Outcome == agent.Succeeded || *rows[0].Model.Micro != 0 || up.calls.Load() != 0 {
			t.Errorf("%s: the ledger has %+v, and %d calls were made", p, rows, up.calls.Load())
		}
		if out := r.serve(prompt(p, "up/m", "hello", false)); out.status != 200 {
			t.Errorf("%s: %d %s", p, out.status, out.text())
		}
		r.route(agent.ModelRoute{Name: "safe", Candidates: []agent.Candidate{{Provider: "up", Model: "m"}, {Provider: "local", Model: "m"}}, FailOver: []agent.FaultClass{agent.ContentFault}})
		if out := r.serve(prompt(p, "@safe", "the mail is ann@example.org.", false)); out.status != 200 || !strings.Contains(out.text(), "here") || local.calls.Load() != 1 {
			t.Errorf("%s: %d %s", p, out.status, out.text())
		}
	}
}

func TestGuardrailsOfGuests(t *testing.T) {
	r := newGuarded(t, agent.Guardrail{Name: "g", Find: []string{"email", "card"}, Prompt: true, Response: true})
	up := r.scripted("up", secretive, agent.ChatProtocol)
	q := &wire.Request{Model: "up/m", Messages: []wire.Message{{Parts: []wire.Part{{Text: "ann@example.org"}}}}}
	for _, each := range []func(wire.Event) error{nil, func(e wire.Event) error {
		if strings.Contains(e.Text, "@") {
			t.Errorf("told %q", e.Text)
		}
		return nil
	}} {
		a, err := r.g.Ask(t.Context(), gateway.Caller{App: "default"}, q, each)
		if err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprint(a.Parts); strings.Contains(s, "ann@") || !strings.Contains(s, "[email]") || strings.Contains(up.text(), "ann@") {
			t.Errorf("%s for %s", s, up.text())
		}
	}
	if q.Messages[0].Parts[0].Text != "ann@example.org" {
		t.Error("the request of the guest was changed")
	}
}

// A provider that tells its key does so to nobody, wherever the network cuts what it says.
func TestKeysInStreams(t *testing.T) {
	for _, translated := range []bool{false, true} {
		r := newRig(t)
		text := strings.Replace(strings.Join(frames, ""), "Sunny, ", "value-of-up-key", 1)
		r.provider("up", agent.MessageProtocol, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range len(text) {
				_, _ = io.WriteString(w, text[i:i+1])
				if i%7 == 0 {
					_ = http.NewResponseController(w).Flush()
				}
			}
		})
		q := request(agent.MessageProtocol, ask("up/m", true))
		if translated {
			q = request(agent.ChatProtocol, ask("up/m", true))
		}
		out := r.serve(q)
		if out.err != nil || strings.Contains(out.text(), "value-of") || !strings.Contains(out.text(), "[secret]") || !strings.Contains(out.text(), "I think.") {
			t.Errorf("translated %v: %v %s", translated, out.err, out.text())
		}
	}
}

// Texts to make vectors of are prompts, too. Numbers of tokens are no text, and are refused where somebody has to look.
func TestGuardrailsOfEmbeddings(t *testing.T) {
	r := newRig(t, func(o *gateway.Options) {
		o.Codecs, o.Records = []wire.Codec{embed.Codec}, guarded{o.Records, []agent.Guardrail{{Name: "g", Find: []string{"email"}, Prompt: true, Models: []string{"a/*"}}}}
	})
	var sent atomic.Value
	for _, name := range []string{"a", "b"} {
		r.provider(name, agent.EmbedProtocol, func(w http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			sent.Store(string(b))
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}`)
		})
	}
	for _, c := range []struct {
		model, input, want string
		status             int
	}{
		{"a/m", `"write to ann@example.com"`, `"write to [email]"`, 200},
		{"a/m", `["one","write to ann@example.com"]`, `["one","write to [email]"]`, 200},
		{"a/m", `[15496,995]`, "", 400},
		{"a/m", `["one",[[15496,995]]]`, "", 400},
		{"b/m", `[15496,995]`, `[15496,995]`, 200},
	} {
		sent.Store("")
		out := r.serve(&gateway.Request{
			Protocol: agent.EmbedProtocol, Op: wire.Embed, Path: "/v1/embeddings", Header: http.Header{}, Body: []byte(`{"model":"` + c.model + `","input":` + c.input + `}`),
		})
		got := sent.Load().(string)
		if out.status != c.status || c.status == 200 && !strings.Contains(got, c.want) || c.status == 400 && (got != "" || !strings.Contains(out.text(), "send it as text")) {
			t.Errorf("%s %s: %d %s; %s was sent", c.model, c.input, out.status, out.text(), got)
		}
	}
}
