// Package clienttest reads what a codec of OpenAI's writes with the clients that people use: OpenAI's own and the AI SDK, in Node.
package clienttest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// Run gives an answer with a signed thought, text and two calls, one of them without arguments, to the clients of a protocol ("chat" or "responses"):
// whole, as a stream, and as a stream that breaks. It fails when one of them understands something else, or takes the broken stream for an answer.
func Run(t *testing.T, c wire.Codec, protocol string) {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "testdata", "clients")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		if os.Getenv("CI")+os.Getenv("SKEP_TEST_CACHE") != "" {
			t.Fatalf("%v; run npm ci in gateway/wire/openai/clienttest/testdata/clients", err)
		}
		t.Skip("run npm ci in gateway/wire/openai/clienttest/testdata/clients for clients to test with")
	}
	a := &wire.Answer{
		ID: "id_1", Model: "m", Stop: wire.StopTool, Usage: wire.Usage{Known: true, Tokens: agent.ModelTokens{Input: 10, CacheRead: 3, Output: 5, Reasoning: 2}},
		Parts: []wire.Part{
			{Kind: wire.ThoughtPart, Text: "think <hard>", Thought: &wire.Thinking{Opaque: "signature", Origin: wire.Origin{Protocol: "anthropic"}}},
			{Kind: wire.TextPart, Text: "Hello wörld"},
			{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c1", Name: "look", Args: `{"at":"Paris"}`}},
			{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c2", Name: "none", Args: "{}"}},
		},
	}
	r := &wire.Request{Model: "m", StreamUse: true}
	whole, err := c.EncodeAnswer(a, r)
	if err != nil {
		t.Fatal(err)
	}
	stream := func(list []wire.Event) (b []byte) {
		e := c.Encoder(r)
		for _, v := range list {
			b = e.Append(b, v)
		}
		return b
	}
	events := a.Events()
	const cause = "the stream broke in the middle"
	broken := append(slices.Clone(events[:7]), wire.Event{Kind: wire.Broken, Fault: &wire.Fault{Class: agent.StreamBroken, Message: cause}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch mode, _, _ := strings.Cut(q.URL.Path[1:], "/"); mode {
		case "whole":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(whole)
		case "stream":
			w.Header().Set("Content-Type", c.Encoder(r).ContentType())
			_, _ = w.Write(stream(events))
		default:
			w.Header().Set("Content-Type", c.Encoder(r).ContentType())
			_, _ = w.Write(stream(broken))
		}
	}))
	defer srv.Close()
	cmd := exec.CommandContext(t.Context(), "node", "read.mjs", protocol, srv.URL)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got map[string]struct {
		Text  string     `json:"text"`
		Calls [][]string `json:"calls"`
		Input int64      `json:"input"`
		Error string     `json:"error"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(got) < 6 {
		t.Errorf("%d clients: %s", len(got), out)
	}
	calls := [][]string{{"c1", "look", `{"at":"Paris"}`}, {"c2", "none", "{}"}}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		g := got[name]
		if strings.HasSuffix(name, "broken") {
			if !strings.Contains(g.Error, cause) {
				t.Errorf("%s: the client saw no error, or another: %+v", name, g)
			}
			continue
		}
		if g.Error != "" || g.Text != "Hello wörld" || g.Input != 10 || !slices.EqualFunc(g.Calls, calls, slices.Equal) {
			t.Errorf("%s understood %+v", name, g)
		}
	}
}
