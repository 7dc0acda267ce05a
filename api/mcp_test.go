package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

var mcpHeaders = []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}

func TestMCPAuthorization(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct{ authorization, want string }{
		{"none", `resource_metadata="` + r.url + `/.well-known/oauth-protected-resource/mcp/code"`},
		{"Bearer skep_wrong", `error="invalid_token"`},
	} {
		headers := append([]string{"Authorization", c.authorization}, mcpHeaders...)
		res := r.do("POST", "/mcp/code", initialize, headers...)
		if got := res.Header.Get("WWW-Authenticate"); res.StatusCode != http.StatusUnauthorized || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s %s", c.authorization, res.Status, got)
		}
	}
	res, err := http.Get(r.url + "/.well-known/oauth-protected-resource/mcp/code")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || !strings.Contains(string(b), `"resource":"`+r.url+`/mcp/code"`) {
		t.Errorf("%s %s %v", res.Status, b, err)
	}
	if res := r.do("POST", "/mcp", initialize, append([]string{"Origin", "https://evil.example"}, mcpHeaders...)...); res.StatusCode != http.StatusForbidden {
		t.Errorf("another origin: %s", res.Status)
	}
	if res := r.do("POST", "/mcp?mode=some", initialize, mcpHeaders...); res.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown mode: %s", res.Status)
	}
	if res := r.do("POST", "/mcp/nobody", initialize, mcpHeaders...); res.StatusCode != http.StatusNotFound {
		t.Errorf("an agent that is not there: %s", res.Status)
	}
}

// TestMCPPublicURL has clients told the address that the server has for people, and not the one behind its proxy.
func TestMCPPublicURL(t *testing.T) {
	r := start(t, &Options{URL: "https://skep.example.com/hive/"})
	res := r.do("POST", "/mcp/code", initialize, append([]string{"Authorization", "none"}, mcpHeaders...)...)
	if got := res.Header.Get("WWW-Authenticate"); !strings.Contains(got, `resource_metadata="https://skep.example.com/hive/.well-known/oauth-protected-resource/mcp/code"`) {
		t.Error(got)
	}
	for path, want := range map[string]string{"": "/mcp", "/mcp/bee": "/mcp/bee"} {
		res, err := http.Get(r.url + "/.well-known/oauth-protected-resource" + path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !strings.Contains(string(b), `"resource":"https://skep.example.com/hive`+want+`"`) {
			t.Errorf("%s: %s %s %v", path, res.Status, b, err)
		}
	}
}

// TestMCPSession holds a session to the token and the endpoint that began it, and ends it with the token.
func TestMCPSession(t *testing.T) {
	r := start(t, nil)
	r.agent("bee")
	_, tok := r.as(agent.Owner, "")
	open := func(token string) string {
		res := r.do("POST", "/mcp", initialize, append([]string{"Authorization", "Bearer " + token}, mcpHeaders...)...)
		id := res.Header.Get("Mcp-Session-Id")
		if res.StatusCode != 200 || id == "" || !strings.Contains(string(res.body), `"serverInfo"`) {
			t.Fatalf("%s %s", res.Status, res.body)
		}
		return id
	}
	ping := func(token, path, id string) int {
		headers := append([]string{"Authorization", "Bearer " + token, "Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25"}, mcpHeaders...)
		return r.do("POST", path, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, headers...).StatusCode
	}
	id := open(tok.Secret)
	if got := ping(tok.Secret, "/mcp", id); got != 200 {
		t.Errorf("ping: %d", got)
	}
	if got := ping(r.token, "/mcp", id); got != http.StatusForbidden {
		t.Errorf("with another's token: %d", got)
	}
	if got := ping(tok.Secret, "/mcp/bee", id); got != http.StatusForbidden {
		t.Errorf("at another endpoint: %d", got)
	}
	first := open(tok.Secret)
	for range 64 {
		open(tok.Secret)
	}
	if got := ping(tok.Secret, "/mcp", first); got != http.StatusNotFound {
		t.Errorf("a session that made room: %d", got)
	}
}
