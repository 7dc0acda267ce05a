package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/script"
)

// line is the next call of a tap, as a line of a script.
func line(t *testing.T, tap *gateway.Tap) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	e, err := tap.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b, err := script.Record(script.Recorded{
		Protocol: e.Protocol, Op: e.Op, Path: e.Path, Request: e.Request, Status: e.Status, Header: e.Header, Body: e.Body,
	}, allCodecs)
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// What is recorded of a provider is told again: in the same protocol and form byte for byte, in others in their words.
func TestRecordAndReplay(t *testing.T) {
	const turns = `{"turns":[{"match":{"contains":"busy"},"fault":{"status":500,"message":"slow down"},"times":1},{"reply":{"reasoning":"hm","signature":"c2ln",
 "text":"You said: {{last}}, value-of-up-key.","calls":[{"name":"look","args":{"q":"é"}}],"chunk":40}}]}`
	for _, p := range agent.Protocols()[:4] {
		for _, stream := range []bool{false, true} {
			r := newRig(t, func(o *gateway.Options) {
				o.Codecs = allCodecs
				o.Script = func(_ context.Context, q agent.Provider) (http.RoundTripper, error) {
					return script.New([]byte(q.Script), allCodecs)
				}
			})
			r.scripted("up", turns, p)
			tap := r.g.Tap("default", "up")
			defer tap.Close()
			other := r.g.Tap("default", "other")
			defer other.Close()
			first, second := r.serve(prompt(p, "up/m", "hi", stream)), r.serve(prompt(p, "up/m", "busy", stream))
			text := line(t, tap) + line(t, tap) + line(t, tap) // the second one was asked twice
			if strings.Contains(text, "value-of") || !strings.Contains(first.text(), "[secret]") {
				t.Errorf("%s, %v: a key is in %s, or in %s", p, stream, text, first.text())
			}
			r.mu.Lock()
			r.providers = append(r.providers, agent.Provider{Name: "again", Script: agent.Digest(text), Protocols: []agent.Protocol{p}})
			for _, q := range agent.Protocols()[:4] {
				r.providers = append(r.providers, agent.Provider{Name: fmt.Sprint("in-", q), Script: agent.Digest(text), Protocols: []agent.Protocol{q}})
			}
			r.stamp++
			r.mu.Unlock()
			again, busy := r.serve(prompt(p, "again/m", "hi", stream)), r.serve(prompt(p, "again/m", "busy", stream))
			if again.status != 200 || again.text() != first.text() || busy.text() != second.text() || busy.header.Get("X-Skep-Attempts") != "2" {
				t.Errorf("%s, %v: %d %s\nnot\n%s\n%v", p, stream, again.status, again.text(), first.text(), busy.header)
			}
			for _, q := range agent.Protocols()[:4] {
				for _, form := range []bool{false, true} {
					out := r.serve(prompt(q, fmt.Sprintf("in-%s/m", q), "hi", form))
					if out.status != 200 {
						t.Fatalf("%s, %v as %s, %v: %s", p, stream, q, form, out.text())
					}
					a, broken := read(t, q, form, out.text())
					if s := fmt.Sprint(a.Parts); broken != nil || !strings.Contains(s, "You said: hi, [secret].") || len(a.Parts) < 2 || a.Parts[len(a.Parts)-1].Call.Args != `{"q":"é"}` {
						t.Errorf("%s, %v as %s, %v: %v %s", p, stream, q, form, broken, out.text())
					}
				}
			}
			if out := r.serve(prompt(p, "again/m", "something else", stream)); out.status != 400 {
				t.Errorf("%s: another conversation is answered with %s", p, out.text())
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if e, err := other.Next(ctx); err == nil {
				t.Errorf("a call to another provider is told: %+v", e)
			}
		}
	}
}

func TestTapsThatNobodyReads(t *testing.T) {
	r := newRig(t)
	r.provider("up", agent.MessageProtocol, good)
	tap := r.g.Tap("default", "up")
	for range 40 {
		r.message("up/m", false)
	}
	if tap.Missed() != 8 {
		t.Errorf("%d calls were missed", tap.Missed())
	}
	tap.Close()
	tap.Close()
	r.message("up/m", false)
	if tap.Missed() != 8 {
		t.Error("a tap that is closed is told")
	}
}

// What came of an answer until its client went is no answer of the provider's.
func TestTapKnowsOfClientsThatWent(t *testing.T) {
	r := newRig(t)
	r.provider("up", agent.MessageProtocol, stall(4))
	tap := r.g.Tap("default", "up")
	defer tap.Close()
	out := &got{after: 1}
	if err := r.g.Serve(t.Context(), gateway.Caller{App: "default"}, request(agent.MessageProtocol, ask("up/m", true)), out); err == nil {
		t.Fatal("the client is still there")
	}
	if e, err := tap.Next(t.Context()); err != nil || !e.Truncated || !strings.Contains(string(e.Body), "Sunny") {
		t.Errorf("%v %+v", err, e)
	}
}
