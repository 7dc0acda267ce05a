package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// agentOf pushes code and makes an agent of it.
func (s *liveServer) agentOf(t *testing.T, name, code, grants string) {
	t.Helper()
	if _, err := s.PutPlugin(t.Context(), client.Upload{Name: name, Filename: name + ".ts", Body: []byte(code)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateAgent(t.Context(), client.NewAgent{Name: name, Plugin: name, Grants: grantsOf(t, grants)}); err != nil {
		t.Fatal(err)
	}
}

func grantsOf(t *testing.T, text string) (g agent.Grants) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestOutboundHandler has an app's requests seen by one of its agents, which answers, changes, sends on and blocks them.
func TestOutboundHandler(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s by %s: %s", r.Method, r.URL, r.Header.Get("X-Seen-By"), b)
	}))
	defer upstream.Close()
	s := startServer(t, io.Discard, nil)
	defer s.stop()
	s.agentOf(t, "asker", `export const ask = async (p) => {
		const res = await fetch("`+upstream.URL+`" + p, { method: "POST", body: "hello", headers: { "SKEP-agent": "somebody else" } });
		return res.status + " " + await res.text();
	};`, `{"http":["`+upstream.URL+`/ok/**","`+upstream.URL+`/made-up"]}`)
	s.agentOf(t, "gate", `export default { async fetch(req) {
		const url = new URL(req.url);
		if (url.pathname === "/made-up") return new Response("made up for " + req.headers.get("skep-agent"), { status: 203 });
		if (url.pathname === "/ok/blocked") throw new Error("not today");
		const headers = new Headers(req.headers);
		headers.set("x-seen-by", "gate");
		return fetch(url + "?more", { method: req.method, headers, body: await req.text() + " world" });
	} };`, `{"http":["`+upstream.URL+`"]}`)

	ask := func(path string) (string, error) {
		out, _, err := s.Call(t.Context(), "asker", "ask", agent.JSON([]byte(`"`+path+`"`)), 20*time.Second)
		return string(out.Body), err
	}
	if got, err := ask("/ok/x"); err != nil || got != "200 POST /ok/x by : hello" {
		t.Fatalf("without a handler: %q, %v", got, err)
	}
	gate := "gate"
	if _, err := s.UpdateApp(t.Context(), agent.DefaultApp, client.AppPatch{Outbound: &gate}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/ok/x":    "200 POST /ok/x?more by gate: hello world",
		"/made-up": "203 made up for asker",
	} {
		if got, err := ask(path); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	used, err := s.Usage(t.Context(), client.UsageFilter{Agent: "asker", By: "agent"}) // what a handler answers counts for who asked
	made := int64(len("POST /ok/x by : hello") + len("POST /ok/x?more by gate: hello world") + len("made up for asker"))
	if err != nil || used.Total.Sent != 3*int64(len("hello")) || used.Total.Received != made {
		t.Errorf("%d bytes sent, %d received, %v; want %d and %d", used.Total.Sent, used.Total.Received, err, 3*len("hello"), made)
	}
	for path, want := range map[string]string{
		"/ok/blocked": `the app's outbound handler "gate" refused the request: `,
		"/other":      "the path /other is not granted",
	} {
		if got, err := ask(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want an error with %q", path, got, err, want)
		}
	}
}

// TestNarrowingCutsWhatRuns takes a grant back while a response streams: that of the request, or that of the secret in it.
func TestNarrowingCutsWhatRuns(t *testing.T) {
	begun := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintln(w, "line", i); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			if i == 3 {
				begun <- ""
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}))
	defer upstream.Close()
	s := startServer(t, io.Discard, nil)
	defer s.stop()
	if _, err := s.SetSecret(t.Context(), "key", secretAt(t, agent.SecretValue, "a-long-secret", upstream.URL)); err != nil {
		t.Fatal(err)
	}
	s.agentOf(t, "reader", `export async function read() {
		let n = 0;
		for await (const part of (await fetch("`+upstream.URL+`", { headers: { authorization: "{{secret:key}}" } })).body) n += part.length;
		return n;
	}`, `{}`)
	all := `{"http":["` + upstream.URL + `"],"secrets":["key"]}`
	for left, want := range map[string]string{
		`{"secrets":["key"]}`:               "the grant was taken back",
		`{"http":["` + upstream.URL + `"]}`: `the grant of the secret "key", which is in the request, was taken back`,
	} {
		grant := func(text string) {
			t.Helper()
			g := grantsOf(t, text)
			if _, err := s.UpdateAgent(t.Context(), "reader", client.AgentPatch{Grants: &g}); err != nil {
				t.Fatal(err)
			}
		}
		grant(all)
		ended := make(chan error, 1)
		go func() {
			_, _, err := s.Call(t.Context(), "reader", "read", agent.Payload{}, 25*time.Second)
			ended <- err
		}()
		receive(t, begun)
		grant(left)
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ended with %v, want %q", err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the response went on")
		}
	}
}

// TestGrantsAreUsedUp uses grants that have limits, through a door, until they refuse; and looks for all of it in the metrics.
func TestGrantsAreUsedUp(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "0123456789") }))
	defer upstream.Close()
	s := startServer(t, io.Discard, nil)
	defer s.stop()
	s.agentOf(t, "asker", `export async function ask(paths) {
		const out = [];
		for (const p of paths) out.push(await fetch("`+upstream.URL+`" + p).then((r) => r.status, (e) => e.message));
		return out.join("; ");
	}
	export function spin() { for (;;) ; }`, `{"http":[{"allow":"`+upstream.URL+`/each/**","limits":{"per_call":2}},{"allow":"`+upstream.URL+`/minute","limits":{"per_minute":1}},
		{"allow":"`+upstream.URL+`/day","limits":{"per_day":1}}]}`)
	ask := func(paths string) string {
		t.Helper()
		out, _, err := s.Call(t.Context(), "asker", "ask", agent.JSON([]byte(paths)), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return string(out.Body)
	}
	for range 2 { // a limit of each call begins anew
		if got := ask(`["/each/a", "/each/b", "/each/c"]`); !strings.HasPrefix(got, "200; 200; ") || !strings.Contains(got, "2 uses within one call") {
			t.Errorf("per call: %s", got)
		}
	}
	for _, path := range []string{"/minute", "/day"} {
		if got := ask(`["` + path + `"]`); got != "200" {
			t.Errorf("%s: %s", path, got)
		}
		if got := ask(`["` + path + `"]`); !strings.Contains(got, "1 ") || strings.Contains(got, "200") {
			t.Errorf("%s, the second time, in another call: %s", path, got)
		}
	}
	if got := ask(`["/other"]`); !strings.Contains(got, "not granted") {
		t.Errorf("not granted: %s", got)
	}
	if _, err := s.UpdateAgent(t.Context(), "asker", client.AgentPatch{Limits: &agent.Limits{CPU: 50 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Call(t.Context(), "asker", "spin", agent.Payload{}, 20*time.Second); agent.KindOf(err) != agent.Exhausted {
		t.Errorf("a loop ended with %v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	metrics, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"skep_cells_total 8\n", `skep_kills_total{limit="cpu_time"} 1`, `skep_grants_refused_total{grant="http"} `, `skep_egress_requests_total{outcome="2xx"} 6`, "skep_egress_received_bytes_total 60\n",
		"skep_store_transactions_total ", `skep_http_requests_total{operation="callAgent",status="2xx"} 7`,
	} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("no %q in the metrics:\n%s", want, metrics)
		}
	}
}

// TestTokenIsExchangedOnce uses a secret that is exchanged for a token, by the same way out and under the same scrubbing.
func TestTokenIsExchangedOnce(t *testing.T) {
	var exchanged atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"token-number-%d","token_type":"bearer","expires_in":3600}`, exchanged.Add(1))
			return
		}
		fmt.Fprint(w, r.Header.Get("Authorization"))
	}))
	defer upstream.Close()
	s := startServer(t, io.Discard, nil)
	defer s.stop()
	if _, err := s.SetSecret(t.Context(), "api", secretAt(t, agent.SecretOAuth,
		map[string]string{"token_url": upstream.URL + "/token", "client_id": "me", "client_secret": "a-long-secret"}, upstream.URL)); err != nil {
		t.Fatal(err)
	}
	s.agentOf(t, "asker", `import { secret } from "skep";
		export const ask = async () => (await fetch("`+upstream.URL+`", { headers: { authorization: secret("api") } })).text();`,
		`{"http":["`+upstream.URL+`"],"secrets":["api"]}`)
	for range 2 {
		out, _, err := s.Call(t.Context(), "asker", "ask", agent.Payload{}, 20*time.Second)
		if err != nil || string(out.Body) != "Bearer [secret]" {
			t.Fatalf("%q, %v", out.Body, err)
		}
	}
	if n := exchanged.Load(); n != 1 {
		t.Errorf("%d exchanges for two requests", n)
	}
	var places []string
	for e, err := range s.Events(t.Context(), client.AuditLog(client.AuditFilter{Kind: "secret.used"}), 0, false) {
		var use agent.SecretUse
		if err := errors.Join(err, json.Unmarshal(e.Data, &use)); err != nil {
			t.Fatal(err)
		}
		places = append(places, use.Place+" "+use.Path)
	}
	if want := []string{"header:authorization /", "exchange /token", "header:authorization /"}; !slices.Equal(places, want) {
		t.Errorf("the audit log has %q, want %q", places, want)
	}
}
