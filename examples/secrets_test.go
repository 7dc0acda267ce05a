package examples

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// github plays the API's issues, for one token.
type github struct {
	url, token string
	mu         sync.Mutex
	asked      []string
}

func (g *github) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	g.asked = append(g.asked, fmt.Sprintf("%s %s %s", r.Method, r.URL, body))
	g.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+g.token:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"message":"Bad credentials"}`)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		// A careless server: it repeats the credentials.
		_, _ = fmt.Fprintf(w, `{"number":7,"html_url":"https://github.test/7?%s"}`, g.token)
	case r.URL.Query().Get("page") == "2":
		_, _ = io.WriteString(w, `[{"number":3,"title":"third","html_url":"u3","labels":[]}]`)
	default:
		w.Header().Set("Link", fmt.Sprintf(`<%s%s&page=2>; rel="next", <%s>; rel="last"`, g.url, r.URL, g.url))
		_, _ = io.WriteString(w, `[{"number":1,"title":"first","html_url":"u1","labels":[{"name":"bug"}]},{"number":2,"title":"a pull request","html_url":"u2","labels":[],"pull_request":{}}]`)
	}
}

// TestGitHubIssues goes the way of the guide's page on calling APIs, with a server on loopback as the API.
func TestGitHubIssues(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	const token = "ghp_canary0123456789"
	api := &github{token: token}
	server := httptest.NewServer(api)
	defer server.Close()
	api.url = server.URL

	s := start(t, "--egress-allow", "127.0.0.1")
	target := api.url + "/repos/**"
	if out, code := s.run(t, token, "secret", "set", "github", "--to", target); code != 0 {
		t.Fatalf("skep secret set: exit code %d\n%s", code, out)
	}
	s.must(t, "push", "github-issues", "--agent", "issues")
	s.must(t, "agent", "update", "issues", "--config", "api="+api.url)

	list := []string{"call", "issues", "list", `{"repo":"a/b","label":"bug"}`}
	refused := func(want string) {
		t.Helper()
		if out, code := s.run(t, "", list...); code != 8 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want 8, with %s:\n%s", code, want, out)
		}
	}
	refused("not allowed: no host is granted")
	s.must(t, "agent", "update", "issues", "--grant-http", "GET "+api.url+"/repos/*/*/issues")
	refused(`the secret "github" is not granted`)
	s.must(t, "agent", "update", "issues", "--grant-secret", "github")
	got := s.must(t, list...)
	want := `[{"number":1,"title":"first","url":"u1","labels":["bug"]},{"number":3,"title":"third","url":"u3","labels":[]}]`
	if diff := cmp.Diff(value(want), value(got)); diff != "" {
		t.Errorf("issues (-want +got):\n%s", diff)
	}

	open := []string{"call", "issues", "open", `{"repo":"a/b","title":"from a cell"}`}
	if out, code := s.run(t, "", open...); code != 8 || !strings.Contains(out, "the method POST is not granted") {
		t.Errorf("exit code %d, want 8:\n%s", code, out)
	}
	s.must(t, "agent", "update", "issues", "--grant-http", "POST "+api.url+"/repos/*/*/issues")
	got = s.must(t, open...)
	if diff := cmp.Diff(value(`{"number":7,"url":"https://github.test/7?[secret]"}`), value(got)); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
	wantAsked := []string{
		"GET /repos/a/b/issues?state=open&sort=updated&per_page=30&labels=bug ",
		"GET /repos/a/b/issues?state=open&sort=updated&per_page=30&labels=bug&page=2 ",
		`POST /repos/a/b/issues {"title":"from a cell"}`,
	}
	if diff := cmp.Diff(wantAsked, api.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	var uses int
	for line := range strings.Lines(s.must(t, "audit", "--json")) {
		var e struct{ Kind string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Kind == "secret.used" {
			uses++
		}
		if strings.Contains(line, token) {
			t.Errorf("the audit shows the secret: %s", line)
		}
	}
	if uses != 3 {
		t.Errorf("%d uses of the secret in the audit, want 3", uses)
	}
}
