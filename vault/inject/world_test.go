package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault"
)

// canary is the value that must never be where it was not bound to.
const canary = `cnry-7f"3a/9+e1`

// vaultMap is a Source in memory, by app and name.
type vaultMap map[string]vault.Material

func (v vaultMap) Material(_ context.Context, app agent.App, name string) (vault.Material, error) {
	if m, ok := v[string(app)+"/"+name]; ok {
		return m, nil
	}
	return vault.Material{}, agent.Errorf(agent.NotFound, "no secret %s", name)
}

// put adds a secret of the app "default" that is bound to bindings, in their text form.
func (v vaultMap) put(t testing.TB, name string, kind agent.SecretKind, value string, bindings ...string) {
	t.Helper()
	v.putIn(t, "default", name, kind, value, bindings...)
}

func (v vaultMap) putIn(t testing.TB, app, name string, kind agent.SecretKind, value string, bindings ...string) {
	t.Helper()
	s := agent.Secret{App: agent.App(app), Name: name, Kind: kind, Version: 3}
	for _, text := range bindings {
		var b agent.Binding
		if err := b.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		s.Bindings = append(s.Bindings, b)
	}
	v[app+"/"+name] = vault.Material{Secret: s, Value: []byte(value)}
}

// ask is one request as a guest makes it.
type ask struct {
	method, url string // POST when there is a body, https://api.example.com/v1 unless given
	header      [][2]string
	body        string
	length      int64 // of the body; 0 means its own
	tweak       func(*http.Request)
	target      func(*agent.Request)
}

func (a ask) request(t testing.TB) (*http.Request, agent.Request) {
	t.Helper()
	if a.url == "" {
		a.url = "https://api.example.com/v1"
	}
	if a.method == "" {
		a.method = http.MethodGet
		if a.body != "" {
			a.method = http.MethodPost
		}
	}
	var body io.Reader
	if a.body != "" {
		body = struct{ io.Reader }{strings.NewReader(a.body)}
	}
	r, err := http.NewRequest(a.method, a.url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = ""
	if a.body != "" {
		if r.ContentLength = int64(len(a.body)); a.length != 0 {
			r.ContentLength = a.length
		}
	}
	for _, h := range a.header {
		r.Header[h[0]] = append(r.Header[h[0]], h[1])
	}
	if a.tweak != nil {
		a.tweak(r)
	}
	port := r.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	}
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	target := agent.Request{Method: r.Method, Scheme: r.URL.Scheme, Host: r.URL.Hostname(), Port: port, Path: path}
	if a.target != nil {
		a.target(&target)
	}
	return r, target
}

// dump is all that would be sent.
func dump(r *http.Request) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\nhost: %s\n", r.Method, r.URL, r.Host)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, v := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	if r.Body == nil {
		return b.String(), nil
	}
	body, err := io.ReadAll(r.Body)
	b.WriteString("\n")
	b.Write(body)
	if err == nil && r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
		err = fmt.Errorf("%d bytes, and the length is %d", len(body), r.ContentLength)
	}
	return b.String(), err
}

// user is a Use that allows all, and what it was told.
type user struct {
	mu      sync.Mutex
	allowed []string
	audits  []agent.SecretUse
	deny    error // what Allow returns
	mute    error // what Audit returns
}

func (u *user) use() Use {
	return Use{
		App: agent.DefaultApp, Agent: "helper", Run: "run1",
		Allow: func(_ context.Context, name string) error {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.allowed = append(u.allowed, name)
			return u.deny
		},
		Audit: func(_ context.Context, s agent.SecretUse) error {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.audits = append(u.audits, s)
			return u.mute
		},
	}
}

// doerFunc is a Doer that is a function.
type doerFunc func(*http.Request) (*http.Response, error)

func (f doerFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader([]byte(body))), Header: http.Header{}}
}

// wantError checks an error's kind and that its message, or its hint, has words in it.
func wantError(t *testing.T, err error, kind agent.Kind, words string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	var e *agent.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Msg+" / "+e.Hint, words) {
		t.Fatalf("error %v (%v), hint %q; want %v with %q", err, agent.KindOf(err), agent.AsError(err).Hint, kind, words)
	}
}
