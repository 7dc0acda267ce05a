package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
)

// cached is a rig with a route @r that has a cache of a minute, and the time of its gateway.
func cached(t *testing.T, text string, change ...func(*agent.ModelRoute)) (*rig, *asked, *time.Duration) {
	var passed time.Duration
	r := newRig(t, func(o *gateway.Options) {
		o.Codecs = allCodecs
		o.Now = func() time.Time { return time.Now().Add(passed) }
	})
	up := r.scripted("up", text, agent.MessageProtocol)
	m := agent.ModelRoute{Name: "r", Candidates: []agent.Candidate{{Provider: "up", Model: "m"}}, Cache: time.Minute}
	for _, f := range change {
		f(&m)
	}
	r.route(m)
	return r, up, &passed
}

const says = `{"turns":[{"match":{"contains":"cut"},"reply":{"text":"one two three","chunk":2},"cut":4},{"match":{"contains":"long"},"reply":{"text":"one","stop":"length"}},` +
	`{"match":{"contains":"no"},"reply":{"refusal":"no"}},{"match":{"contains":"fail"},"fault":{"status":400}},{"reply":{"reasoning":"hm","text":"You said: {{last}}","chunk":3}}]}`

func TestCache(t *testing.T) {
	for _, p := range agent.Protocols()[:4] {
		for _, stream := range []bool{false, true} {
			r, up, passed := cached(t, says)
			ask := func(text string) *got { return r.serve(prompt(p, "@r", text, stream)) }
			first := ask("a b")
			again := ask("a b")
			if first.status != 200 || again.status != 200 || first.text() != again.text() || up.calls.Load() != 1 {
				t.Fatalf("%s, %v: %d calls; %d %s, then %d %s", p, stream, up.calls.Load(), first.status, first.text(), again.status, again.text())
			}
			if a, broken := read(t, p, stream, again.text()); broken != nil || a.Parts[len(a.Parts)-1].Text != "You said: a b" {
				t.Errorf("%s, %v: %v %s", p, stream, broken, again.text())
			}
			h, was := again.header, first.header
			if was.Get("X-Skep-Cache") != "miss" || h.Get("X-Skep-Cache") != "hit" || h.Get("X-Skep-Model") != "up/m" || h.Get("Content-Type") != was.Get("Content-Type") ||
				h.Get("Content-Length") != was.Get("Content-Length") || h.Get("X-Skep-Attempts") != "" || h.Get("X-Skep-Call") == was.Get("X-Skep-Call") {
				t.Errorf("%s, %v: %v after %v", p, stream, h, was)
			}
			rows := r.usage()
			if len(rows) != 2 || rows[1].Model.Source != agent.FromCache || *rows[1].Model.Micro != 0 || rows[1].Model.Tokens != (agent.ModelTokens{}) || rows[1].Model.Route != "@r" ||
				rows[1].Outcome != agent.Succeeded || rows[1].Model.Call != h.Get("X-Skep-Call") {
				t.Errorf("%s, %v: the ledger has %+v", p, stream, rows[len(rows)-1].Model)
			}
			if ask("a c"); up.calls.Load() != 2 {
				t.Errorf("%s: another request got the same answer", p)
			}
			if r.serve(prompt(p, "@r", "a b", !stream)); up.calls.Load() != 3 {
				t.Errorf("%s: a stream is kept for an answer that is whole, or the other way round", p)
			}
			*passed = 2 * time.Minute
			if ask("a b"); up.calls.Load() != 4 {
				t.Errorf("%s: an answer is good for longer than the route says", p)
			}
		}
	}
}

func TestCacheKeepsCleanAnswersAlone(t *testing.T) {
	for _, what := range []string{"cut", "long", "no", "fail"} {
		r, up, _ := cached(t, says, func(m *agent.ModelRoute) { m.Attempts = 1 })
		for range 2 {
			if out := r.serve(prompt(agent.ChatProtocol, "@r", what, true)); out.header.Get("X-Skep-Cache") != "miss" {
				t.Errorf("%s: %v", what, out.header)
			}
		}
		if up.calls.Load() != 2 {
			t.Errorf("%s: %d calls", what, up.calls.Load())
		}
	}
}

func TestCacheIsTold(t *testing.T) {
	r, up, _ := cached(t, says)
	with := func(control string) *got {
		q := prompt(agent.ChatProtocol, "@r", "a", false)
		q.Header.Set("Cache-Control", control)
		return r.serve(q)
	}
	for i, c := range []struct {
		control string
		calls   int64
	}{{"no-store", 1}, {"", 2}, {"", 2}, {"no-cache", 3}, {"max-age=0", 4}, {"no-store", 5}, {"", 5}} {
		if with(c.control); up.calls.Load() != c.calls {
			t.Fatalf("after %d, %q: %d calls, not %d", i, c.control, up.calls.Load(), c.calls)
		}
	}
}

func TestCacheKnowsWhatIsTheSame(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}],`
	body := func(more string) *gateway.Request {
		return request(agent.ChatProtocol, `{"model":"@r",`+more+`"messages":[{"role":"user","content":"a"}]}`)
	}
	for _, c := range []struct {
		name   string
		first  string
		second string
		app    agent.App
		tools  bool
		hit    bool
	}{
		{name: "the same", first: `"seed":1,`, second: ` "seed" : 1 ,`, hit: true},
		{name: "another user", first: `"user":"ann",`, second: `"user":"bob",`, hit: true},
		{name: "another field", first: `"future":1,`, second: `"future":2,`},
		{name: "another app", app: "other"},
		{name: "tools", first: tools, second: tools},
		{name: "tools that are kept", first: tools, second: tools, tools: true, hit: true},
	} {
		r, up, _ := cached(t, says, func(m *agent.ModelRoute) { m.CacheTools = c.tools })
		r.serve(body(c.first))
		app := c.app
		if app == "" {
			app = "default"
		}
		out := &got{}
		out.err = r.g.Serve(t.Context(), gateway.Caller{App: app, Key: "another", Agent: "another"}, body(c.second), out)
		if hit := out.header.Get("X-Skep-Cache") == "hit"; out.status != 200 || hit != c.hit || (up.calls.Load() == 1) != c.hit {
			t.Errorf("%s: %d %v %s", c.name, out.status, out.header, out.text())
		}
	}
}

func TestCacheOfGuestsAndChanges(t *testing.T) {
	r, up, _ := cached(t, says)
	q := &wire.Request{Model: "@r", Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}}
	guest := func(each func(wire.Event) error) string {
		a, err := r.g.Ask(t.Context(), gateway.Caller{App: "default"}, q, each)
		if err != nil {
			t.Fatal(err)
		}
		text := a.Parts[len(a.Parts)-1].Text
		a.Parts[len(a.Parts)-1].Text = "changed by who got it"
		return text
	}
	var told strings.Builder
	first, second, third := guest(nil), guest(nil), guest(func(e wire.Event) error { told.WriteString(e.Text); return nil })
	if first != "You said: a" || second != first || third != first || !strings.Contains(told.String(), first) || up.calls.Load() != 1 {
		t.Errorf("%d calls: %q, %q, %q, told %q", up.calls.Load(), first, second, third, told.String())
	}
	r.mu.Lock()
	r.providers[0].Revision++
	r.stamp++
	r.mu.Unlock()
	if guest(nil); up.calls.Load() != 2 {
		t.Error("a provider that was changed is not asked again")
	}
	if out := r.serve(request(agent.MessageProtocol, ask("up/m", false))); out.header.Get("X-Skep-Cache") != "" || out.status != http.StatusOK {
		t.Errorf("a model that no route was asked for has a cache: %v", out.header)
	}
}
