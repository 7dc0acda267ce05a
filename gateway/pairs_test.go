package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
)

// marks are what is in a stream of a protocol: how it begins, how it ends well, and how it is told to be broken.
var marks = map[agent.Protocol]struct{ start, end, broken string }{
	agent.ChatProtocol:     {`"role":"assistant"`, "[DONE]", `"error"`},
	agent.ResponseProtocol: {`"type":"response.created"`, `"type":"response.completed"`, `"type":"response.failed"`},
	agent.MessageProtocol:  {`"type":"message_start"`, `"type":"message_stop"`, "event: error"},
	agent.GeminiProtocol:   {"", `"finishReason"`, `"error"`},
}

func pieces(word string) string {
	var b strings.Builder
	for i := range 20 {
		fmt.Fprintf(&b, "%s%c ", word, 'a'+i)
	}
	return b.String()
}

// pairs calls f for each protocol of a client and each of a provider.
func pairs(f func(name string, client, provider agent.Protocol)) {
	for _, c := range talk {
		for _, p := range talk {
			f(fmt.Sprintf("%s to %s", c, p), c, p)
		}
	}
}

// A stream that breaks is told to be broken, in time and in words of the client's protocol, whoever the provider is. Nothing is said twice: another
// provider is asked only as long as nothing was told.
func TestABrokenStreamIsToldInEveryPair(t *testing.T) {
	ways := map[string]string{
		"cut": `"cut":8,`, "clean end": `"eof":8,`, "silence": `"stall":8,`, "error": `"fault":{"after":8,"status":529},`,
	}
	told, all := 0, 0
	pairs(func(name string, c, p agent.Protocol) {
		for way, script := range ways {
			t.Run(name+", "+way, func(t *testing.T) {
				r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
				r.scripted("a", `{"match":{"nth":1},`+script+`"reply":{"text":"`+pieces("Zq")+`","chunk":4,"pace_ms":1}}`, p)
				b := r.scripted("b", `{"match":{"nth":1},"reply":{"text":"`+pieces("Bk")+`","chunk":4}}`, p)
				r.mu.Lock()
				r.providers[0].Idle = 100 * time.Millisecond
				r.mu.Unlock()
				r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}})
				start := time.Now()
				out := r.serve(prompt(c, "@r", "hi", true))
				text, m := out.text(), marks[c]
				all++
				switch {
				case time.Since(start) > 20*time.Second:
					t.Errorf("it took %s", time.Since(start))
				case m.start != "" && strings.Count(text, m.start) != 1:
					t.Errorf("it begins %d times: %s", strings.Count(text, m.start), text)
				case b.calls.Load() > 0:
					if strings.Contains(text, "Zq") || !strings.Contains(text, "Bkt") || !strings.Contains(text, m.end) || out.err != nil {
						t.Errorf("two answers in one, %v: %s", out.err, text)
					}
				default:
					told++
					if !strings.Contains(text, "Zqa") || !strings.Contains(text, m.broken) || strings.Contains(text, m.end) || out.err == nil {
						t.Errorf("the client got, %v: %s", out.err, text)
					}
					if u := r.row(); u.Source != agent.Partial || u.Fault == agent.NoFault || u.Tokens.Output == 0 {
						t.Errorf("the ledger has %+v", u)
					}
				}
			})
		}
	})
	if told < all*2/3 {
		t.Errorf("only %d of %d streams broke after their first content", told, all)
	}
}

// A stream that breaks before its first content is not heard of: the client gets the other provider's answer, whole and once.
func TestAStreamThatBreaksBeforeContentIsAskedElsewhere(t *testing.T) {
	pairs(func(name string, c, p agent.Protocol) {
		for _, way := range []string{`"cut":1,`, `"eof":1,`, `"fault":{"after":1,"status":529},`, `"stall":1,`} {
			if p == agent.GeminiProtocol { // its streams begin with content
				way = strings.Replace(way, "1", "0", 1)
			}
			r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
			r.scripted("a", `{"match":{"nth":1},`+way+`"reply":{"text":"`+pieces("Zq")+`"}}`, p)
			b := r.scripted("b", `{"match":{"nth":1},"reply":{"text":"`+pieces("Bk")+`","chunk":100}}`, p)
			r.mu.Lock()
			r.providers[0].Idle, r.providers[0].Headers = 50*time.Millisecond, 100*time.Millisecond
			r.mu.Unlock()
			r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}})
			out := r.serve(prompt(c, "@r", "hi", true))
			text, m := out.text(), marks[c]
			if out.err != nil || b.calls.Load() != 1 || strings.Contains(text, "Zq") || !strings.Contains(text, pieces("Bk")[:20]) || !strings.Contains(text, m.end) ||
				m.start != "" && strings.Count(text, m.start) != 1 || strings.Contains(text, m.broken) && c != agent.ResponseProtocol {
				t.Errorf("%s, %s: %v, asked %d times elsewhere: %s", name, way, out.err, b.calls.Load(), text)
			}
			if rows := r.usage(); len(rows) != 2 || rows[0].Model.Provider != "a" || rows[0].Model.Fault == agent.NoFault || rows[1].Model.Fault != agent.NoFault {
				t.Errorf("%s, %s: the ledger has %d rows", name, way, len(rows))
			}
		}
	})
}

// A client that leaves after so many pieces leaves a row in the ledger: of the model that was asked, partial, with at least what came.
func TestALeftStreamIsPaidForWhatCame(t *testing.T) {
	pairs(func(name string, c, p agent.Protocol) {
		for _, n := range []int{1, 4, 7} {
			r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
			r.scripted("a", `{"match":{"nth":1},"stall":11,"reply":{"text":"`+pieces("Zq")+`","chunk":4,"usage":{"input":50,"output":60}}}`, p)
			r.route(agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "a", Model: "m7"}}})
			ctx, cancel := context.WithCancel(t.Context())
			out := &got{wrote: make(chan struct{}, 1)}
			done := make(chan error, 1)
			go func() {
				done <- r.g.Serve(ctx, gateway.Caller{App: "default", Key: "k1"}, prompt(c, "@r", "hi", true), out)
			}()
			for strings.Count(out.text(), "Zq") < n {
				select {
				case <-out.wrote:
				case err := <-done:
					t.Fatalf("%s: it ended with %v: %s", name, err, out.text())
				case <-time.After(20 * time.Second):
					t.Fatalf("%s: %d of %d pieces came: %s", name, strings.Count(out.text(), "Zq"), n, out.text())
				}
			}
			cancel()
			if err := <-done; err == nil {
				t.Errorf("%s: it ended well", name)
			}
			u := r.row()
			if u.Source != agent.Partial || u.Fault != agent.ClientAbort || u.Provider != "a" || u.Model != "m7" || u.Route != "@r" || u.Key != "k1" || u.Tokens.Input == 0 || u.Tokens.Output < int64(n) {
				t.Errorf("%s, after %d pieces the ledger has %+v", name, n, u)
			}
		}
	})
}

// A zero that a provider told stays a zero when the client leaves: it is not replaced with an estimate.
func TestALeftStreamKeepsTheZeroThatWasTold(t *testing.T) {
	for _, c := range []agent.Protocol{agent.MessageProtocol, agent.ChatProtocol} {
		r := newRig(t, func(o *gateway.Options) { o.Codecs = allCodecs })
		was := frames[0]
		free := strings.Replace(was, `"input_tokens":10`, `"input_tokens":0`, 1)
		r.provider("a", agent.MessageProtocol, framesThenSilence(append([]string{free}, frames[1:4]...)))
		ctx, cancel := context.WithCancel(t.Context())
		out := &got{wrote: make(chan struct{}, 1)}
		done := make(chan error, 1)
		go func() { done <- r.g.Serve(ctx, gateway.Caller{App: "default"}, prompt(c, "a/m", "hi", true), out) }()
		<-out.wrote
		cancel()
		<-done
		if u := r.row(); u.Tokens.Input != 0 || u.Source != agent.Partial || u.Tokens.Output == 0 {
			t.Errorf("%s: the ledger has %+v", c, u)
		}
	}
}

// framesThenSilence streams frames and says nothing after them.
func framesThenSilence(list []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, f := range list {
			_, _ = io.WriteString(w, f)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}
}
