package gateway_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
)

func TestLog(t *testing.T) {
	var mu sync.Mutex
	var logs []agent.ModelLog
	size := 0
	r := newRig(t, func(o *gateway.Options) {
		o.Codecs = allCodecs
		o.Records = guarded{o.Records, []agent.Guardrail{
			{Name: "g", Find: []string{"email"}, Prompt: true, Response: true}, {Name: "no", Words: []string{"forbidden"}, Prompt: true, Block: true},
		}}
		o.Logging = func(context.Context, agent.App) (int, error) { return size, nil }
		o.Logged = func(_ context.Context, l agent.ModelLog) {
			mu.Lock()
			defer mu.Unlock()
			logs = append(logs, l)
		}
	})
	r.scripted("up", `{"turns":[{"match":{"contains":"fail"},"fault":{"status":400,"message":"no: value-of-up-key"}},{"reply":{"text":"bob@example.org says value-of-up-key","chunk":50}}]}`, agent.MessageProtocol)
	r.serve(prompt(agent.ChatProtocol, "up/m", "nothing is kept of this", false))
	if len(logs) != 0 {
		t.Fatalf("%+v", logs)
	}
	size = 10_000
	for _, p := range agent.Protocols()[:4] {
		for _, stream := range []bool{false, true} {
			logs = nil
			out := r.serve(prompt(p, "up/m", "hello ann@example.org value-of-up-key", stream))
			if len(logs) != 1 {
				t.Fatalf("%s: %d logs", p, len(logs))
			}
			l := logs[0]
			if all := l.Request + l.Answer; strings.Contains(all, "example.org") || strings.Contains(all, "value-of") || !strings.Contains(l.Request, "hello [email] [secret]") {
				t.Errorf("%s, %v: %+v", p, stream, l)
			}
			if l.Answer != out.text() || l.Call != out.header.Get("X-Skep-Call") || l.Client != p || l.Asked == "" || l.Provider != "up" || l.Model != "m" || l.Attempts != 1 || l.Truncated || l.Tokens.Output == 0 {
				t.Errorf("%s, %v: %+v", p, stream, l)
			}
		}
	}
	logs = nil
	r.serve(prompt(agent.ChatProtocol, "up/m", "fail", false))
	r.serve(prompt(agent.ChatProtocol, "up/m", "this is forbidden", false))
	q := &wire.Request{Model: "up/m", Messages: []wire.Message{{Parts: []wire.Part{{Text: "a guest"}}}}}
	if _, err := r.g.Ask(t.Context(), gateway.Caller{App: "default", Agent: "a"}, q, nil); err != nil {
		t.Fatal(err)
	}
	size = 20
	r.serve(prompt(agent.ChatProtocol, "up/m", "long", false))
	if len(logs) != 4 {
		t.Fatalf("%+v", logs)
	}
	if l := logs[0]; l.Fault != agent.InvalidRequest || strings.Contains(l.Answer, "value-of") || !strings.Contains(l.Answer, "no: ") {
		t.Errorf("%+v", l)
	}
	if l := logs[1]; l.Fault != agent.ContentFault || l.Request != "" || l.Attempts != 0 || !strings.Contains(l.Answer, "guardrail no") {
		t.Errorf("%+v", l)
	}
	if l := logs[2]; l.Agent != "a" || !strings.Contains(l.Request, "a guest") || !strings.Contains(l.Answer, "[email] says") || l.Client != agent.NoProtocol {
		t.Errorf("%+v", l)
	}
	if l := logs[3]; len(l.Request) != 20 || len(l.Answer) != 20 || !l.Truncated {
		t.Errorf("%+v", l)
	}
}
