package door

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/gateway/wire"
)

var codecs = []wire.Codec{chat.Codec, message.Codec, gemini.Codec}

// models are those of an app with one provider, that a script answers for.
type models struct{}

func (models) Stamp(context.Context, agent.App) (gateway.Stamp, error) {
	return gateway.Stamp{Providers: 1}, nil
}

func (models) Read(context.Context, agent.App) ([]agent.Provider, []agent.ModelRoute, error) {
	return []agent.Provider{{Name: "p", Protocols: agent.Protocols(), Script: "s", Models: []string{"m", "dear"}, Revision: 1}}, nil, nil
}

func newModels(t *testing.T) *gateway.Gateway {
	g := gateway.New(&gateway.Options{Codecs: codecs, Records: models{}, Script: func(context.Context, agent.Provider) (http.RoundTripper, error) {
		return script.New([]byte(`{"turns":[{"reply":{"text":"Hello from the script"}}]}`), codecs)
	}})
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// TestModels asks for models with the box's key and with others.
func TestModels(t *testing.T) {
	g := newModels(t)
	w := newWorld(t, `{}`, func(o *Options) { o.Models = g })
	w.caller = func() (gateway.Caller, error) {
		return gateway.Caller{App: agent.DefaultApp, Agent: "a", Run: "r", Models: []string{"p/m"}}, nil
	}
	const (
		body  = `{"model":"p/m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
		other = `{"model":"p/dear","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
		to    = "http://127.0.0.1:18080/ai"
	)
	other1, err := ModelKey(make([]byte, 32), &agent.Sandbox{ID: "02BOX", Generation: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, body, header, value string
		status                    int
		want                      string
	}{
		{"/v1/chat/completions", body, "Authorization", "Bearer " + testKey, 200, "Hello"},
		{"/v1/messages", body, "X-Api-Key", testKey, 200, "Hello"},
		{"/v1beta/models/p%2Fm:generateContent", `{"contents":[{"parts":[{"text":"hi"}]}]}`, "X-Goog-Api-Key", testKey, 200, "Hello"},
		{"/v1beta/models/p%2Fm:generateContent?key=" + testKey, `{"contents":[{"parts":[{"text":"hi"}]}]}`, "X", "y", 200, "Hello"},
		{"/v1/messages", other, "X-Api-Key", testKey, 403, "may not ask for p/dear"},
		{"/v1/messages", body, "X-Api-Key", "", 401, "not the model key"},
		{"/v1/messages", body, "X-Api-Key", testKey + "x", 401, "not the model key"},
		{"/v1/messages", body, "X-Api-Key", testKey[:len(testKey)-1], 401, "not the model key"},
		{"/v1/messages", body, "X-Api-Key", other1, 401, "not the model key"},
		{"/v1/chat/completions", body, "Authorization", "Basic " + testKey, 401, "not the model key"},
	} {
		res, got, err := w.do("POST", to+tt.path, tt.body, tt.header, tt.value)
		if err != nil || res.StatusCode != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %v %v %s", tt.path, tt.value, err, res, got)
		}
	}
	w.caller = func() (gateway.Caller, error) { return gateway.Caller{App: agent.DefaultApp}, nil } // no models are not all models
	if res, got, err := w.do("POST", to+"/v1/messages", body, "X-Api-Key", testKey); err != nil || res.StatusCode != 403 {
		t.Errorf("%v %v %s", err, res, got)
	}
	w.caller = func() (gateway.Caller, error) {
		return gateway.Caller{}, agent.Errorf(agent.Unauthenticated, "the run has ended")
	}
	if res, got, err := w.do("POST", to+"/v1/messages", body, "X-Api-Key", testKey); err != nil || res.StatusCode != 401 || !strings.Contains(got, "the run has ended") {
		t.Errorf("%v %v %s", err, res, got)
	}
	if _, asked, _ := w.told(); len(asked) > 0 {
		t.Errorf("looked up %v", asked)
	}
	for _, url := range []string{"http://127.0.0.1:18081/ai/v1/models", "http://localhost/ai/v1/models", "http://u@127.0.0.1:18080/ai/v1/models", "https://127.0.0.1:18080/ai/v1/models"} {
		if res, _, err := w.do("GET", url, "", "X-Api-Key", testKey); err == nil && res.StatusCode == 200 {
			t.Errorf("%s is the gateway", url)
		}
	}
}

// TestNoKey has a door without a key let nobody in.
func TestNoKey(t *testing.T) {
	g := newModels(t)
	w := newWorld(t, `{}`, func(o *Options) { o.Models, o.Key = g, "" })
	w.caller = func() (gateway.Caller, error) {
		t.Error("somebody came in")
		return gateway.Caller{}, nil
	}
	for _, key := range []string{"", " ", testKey} {
		if res, got, err := w.do("GET", "http://127.0.0.1:18080/ai/v1/models", "", "Authorization", "Bearer "+key); err != nil || res.StatusCode != 401 {
			t.Errorf("%q: %v %v %s", key, err, res, got)
		}
	}
}

// TestModelKey makes keys that differ by what they are for.
func TestModelKey(t *testing.T) {
	one, two := make([]byte, 32), []byte(strings.Repeat("x", 32))
	seen := map[string]bool{}
	for _, secret := range [][]byte{one, two} {
		for _, sb := range []agent.Sandbox{{ID: "01BOX", Generation: 1}, {ID: "02BOX", Generation: 1}, {ID: "01BOX", Generation: 2}, {ID: "01BOX", Generation: 1, Run: "r"}} {
			k, err := ModelKey(secret, &sb)
			again, _ := ModelKey(secret, &sb)
			if err != nil || seen[k] || k != again || !strings.HasPrefix(k, keyPrefix) || len(k) != len(keyPrefix)+64 {
				t.Errorf("%q %q %v", k, again, err)
			}
			seen[k] = true
		}
	}
}
