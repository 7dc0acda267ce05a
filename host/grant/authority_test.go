package grant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// judged is an authority with what it wrote down.
type judged struct {
	*grant.Authority
	grants  agent.Grants
	written []agent.Refusal
	rates   rates
}

// rates takes every use until the error is set.
type rates struct {
	taken []string
	err   error
}

func (r *rates) Take(s grant.Subject, what string, rate agent.Rate) error {
	r.taken = append(r.taken, fmt.Sprintf("%s %s %d/m %d/d", s.Agent, what, rate.PerMinute, rate.PerDay))
	return r.err
}

func authority(t *testing.T, name, grants string) *judged {
	t.Helper()
	j := &judged{}
	if err := json.Unmarshal([]byte(grants), &j.grants); err != nil {
		t.Fatal(err)
	}
	if err := j.grants.Check(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	j.Authority = grant.NewAuthority(grant.Subject{Agent: name, Run: "R"}, func() agent.Grants { return j.grants }, &j.rates, func(_ context.Context, r agent.Refusal) {
		mu.Lock()
		defer mu.Unlock()
		j.written = append(j.written, r)
	})
	return j
}

func request(method, url string) agent.Request {
	scheme, rest, _ := strings.Cut(url, "://")
	host, path, _ := strings.Cut(rest, "/")
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	if h, p, ok := strings.Cut(host, ":"); ok {
		host, port = h, p
	}
	return agent.Request{Method: method, Scheme: scheme, Host: host, Port: port, Path: "/" + path}
}

func TestAuthorityHTTP(t *testing.T) {
	const grants = `{"http":["GET https://api.example.com/v1/**","POST https://b.example"]}`
	for _, tt := range []struct{ method, url, want, hint string }{
		{method: "GET", url: "https://api.example.com/v1/x"},
		{method: "POST", url: "https://b.example/any"},
		{"GET", "https://api.example.com/v2/x", `the path /v2/x is not granted to agent "a" on api.example.com`, `--grant-http "GET https://api.example.com/**"`},
		{"PUT", "https://api.example.com/v1/x", `the method PUT is not granted to agent "a" on api.example.com`, "PUT https://api.example.com"},
		{"GET", "https://c.example/x", `https://c.example is not granted to agent "a"`, "GET https://c.example/**"},
		{"GET", "http://api.example.com/v1/x", `http://api.example.com is not granted`, ""},
		{"GET", "https://api.example.com:8443/v1/x", `https://api.example.com:8443 is not granted`, ""},
	} {
		a := authority(t, "a", grants)
		r := request(tt.method, tt.url)
		err := a.HTTP(t.Context(), r)
		if tt.want == "" {
			if err != nil || len(a.written) != 0 {
				t.Errorf("%s %s: %v, written %v", tt.method, tt.url, err, a.written)
			}
			continue
		}
		e := agent.AsError(err)
		if e == nil || e.Kind != agent.Denied || !strings.Contains(e.Msg, tt.want) || !strings.Contains(e.Hint, tt.hint) || !strings.Contains(e.Hint, "skep agent update a") {
			t.Errorf("%s %s: %+v", tt.method, tt.url, e)
			continue
		}
		want := []agent.Refusal{{Agent: "a", Run: "R", Grant: "http", What: tt.method + " " + tt.url, Reason: e.Msg}}
		if d := cmp.Diff(want, a.written); d != "" {
			t.Errorf("%s %s: %s", tt.method, tt.url, d)
		}
	}
	if err := authority(t, "a", `{}`).HTTP(t.Context(), request("GET", "https://x.example/")); !strings.Contains(fmt.Sprint(err), "no host is granted") {
		t.Error(err)
	}
	if err := authority(t, "", `{}`).HTTP(t.Context(), request("GET", "https://x.example/")); !strings.Contains(fmt.Sprint(err), "code that runs once") {
		t.Error(err)
	}
}

func TestAuthorityNames(t *testing.T) {
	const grants = `{"agents":["b"],"models":["@cheap"],"tools":["github.*"],"secrets":["key",{"name":"tied","to":["https://a.example/x"]}],"state":{"keys":3}}`
	ctx := t.Context()
	at := request("POST", "https://a.example/x")
	for name, tt := range map[string]struct {
		ask  func(*judged) error
		want string
	}{
		"agent":                {func(a *judged) error { return a.CallAgent(ctx, "b") }, ""},
		"another agent":        {func(a *judged) error { return a.CallAgent(ctx, "c") }, `no grant to call agent "c": add "c" to grants.agents of agent "a"`},
		"model":                {func(a *judged) error { return a.Model(ctx, "@cheap") }, ""},
		"another model":        {func(a *judged) error { return a.Model(ctx, "@dear") }, `no grant to use model "@dear"`},
		"tool of a server":     {func(a *judged) error { return a.Tool(ctx, "github.read") }, ""},
		"tool of another":      {func(a *judged) error { return a.Tool(ctx, "githubber.read") }, `no grant to call tool`},
		"secret":               {func(a *judged) error { return a.Secret(ctx, "key", at) }, ""},
		"secret in its place":  {func(a *judged) error { return a.Secret(ctx, "tied", at) }, ""},
		"secret elsewhere":     {func(a *judged) error { return a.Secret(ctx, "tied", request("GET", "https://b.example/")) }, `granted to agent "a", but not for https://b.example`},
		"another secret":       {func(a *judged) error { return a.Secret(ctx, "other", at) }, `the secret "other" is not granted to agent "a"`},
		"the secret of nobody": {func(a *judged) error { return a.Secret(ctx, "", at) }, `is not granted`},
		"state": {func(a *judged) error {
			s, err := a.State(ctx)
			if err == nil && (s.Keys != 3 || s.Bytes != agent.DefaultStateBytes) {
				err = fmt.Errorf("state %+v", s)
			}
			return err
		}, ""},
	} {
		a := authority(t, "a", grants)
		err := tt.ask(a)
		switch {
		case tt.want == "":
			if err != nil || len(a.written) > 0 {
				t.Errorf("%s: %v %v", name, err, a.written)
			}
		case agent.KindOf(err) != agent.Denied || !strings.Contains(err.Error(), tt.want) || len(a.written) != 1 || a.written[0].Reason != agent.AsError(err).Msg:
			t.Errorf("%s: %v %v", name, err, a.written)
		}
	}
	if _, err := authority(t, "a", `{}`).State(ctx); agent.KindOf(err) != agent.Denied || !strings.Contains(agent.AsError(err).Hint, "--grant-state") {
		t.Error(err)
	}
}

// The grants are asked for at each question.
func TestAuthorityIsLive(t *testing.T) {
	a := authority(t, "a", `{"agents":["b"],"http":["https://a.example"]}`)
	r := request("GET", "https://a.example/")
	if err := a.HTTP(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := a.StillHTTP(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	a.grants = agent.Grants{}
	if err := a.StillHTTP(t.Context(), r); agent.KindOf(err) != agent.Denied || !strings.Contains(err.Error(), "taken back") {
		t.Error(err)
	}
	if err := a.CallAgent(t.Context(), "b"); agent.KindOf(err) != agent.Denied {
		t.Error(err)
	}
}

// A secret that is in a request is asked for again with it.
func TestAuthorityStillSecret(t *testing.T) {
	for now, want := range map[string]string{
		`{"http":["https://a.example"],"secrets":["k","l"]}`:                                             "",
		`{"http":["https://a.example"],"secrets":["k",{"name":"l","to":["https://a.example"]}]}`:         "",
		`{"http":["https://a.example"],"secrets":["k"]}`:                                                 `the secret "l", which is in the request, was taken back`,
		`{"http":["https://a.example"],"secrets":["l",{"name":"k","to":["POST https://a.example/**"]}]}`: `the secret "k"`,
		`{"secrets":["k","l"]}`: "the grant was taken back",
	} {
		a := authority(t, "a", now)
		err := a.StillHTTP(t.Context(), request("GET", "https://a.example/"), "k", "l")
		switch {
		case want == "" && (err != nil || len(a.written) > 0):
			t.Errorf("%s: %v", now, err)
		case want != "" && (agent.KindOf(err) != agent.Denied || !strings.Contains(err.Error(), want) || len(a.written) != 1):
			t.Errorf("%s: %v, written %v", now, err, a.written)
		}
	}
}

func TestAuthorityLimits(t *testing.T) {
	ctx := t.Context()
	a := authority(t, "a", `{"agents":[{"name":"b","limits":{"per_call":2}},{"name":"c","limits":{"per_minute":5,"per_day":9}},"d"],
		"http":["https://a.example.com",{"allow":"https://a.example.com/mail","limits":{"per_call":1}},{"allow":"https://*.example.com","limits":{"per_call":3}}]}`)
	for i, want := range []agent.Limit{agent.NoLimit, agent.NoLimit, agent.LimitRate, agent.LimitRate} {
		err := a.CallAgent(ctx, "b")
		if got := limitOf(err); got != want {
			t.Errorf("call %d of b: %v", i+1, err)
		}
	}
	if len(a.written) != 2 || !strings.Contains(a.written[0].Reason, "for 2 uses within one call") {
		t.Errorf("written: %+v", a.written)
	}
	if len(a.rates.taken) != 0 {
		t.Errorf("a limit within a call is the cell's own: %v", a.rates.taken)
	}
	// A limit counts all that its grant allows, also what another grant allows without one.
	for _, tt := range []struct {
		url  string
		want agent.Limit
	}{
		{"https://a.example.com/mail", agent.NoLimit}, {"https://a.example.com/mail", agent.LimitRate}, {"https://a.example.com/1", agent.NoLimit},
		{"https://b.example.com/1", agent.NoLimit}, {"https://a.example.com/1", agent.LimitRate}, {"https://b.example.com/1", agent.LimitRate},
	} {
		if got := limitOf(a.HTTP(ctx, request("GET", tt.url))); got != tt.want {
			t.Errorf("%s: %v", tt.url, got)
		}
	}
	if err := a.StillHTTP(ctx, request("GET", "https://a.example.com/1")); err != nil {
		t.Errorf("what was let through stays so: %v", err)
	}
	if err := a.CallAgent(ctx, "c"); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"a agent c 5/m 9/d"}, a.rates.taken); d != "" {
		t.Error(d)
	}
	a.rates.err = agent.Exceeded(agent.LimitRate, "five a minute are over")
	written := len(a.written)
	if err := a.CallAgent(ctx, "c"); limitOf(err) != agent.LimitRate {
		t.Error(err)
	}
	if len(a.written) != written+1 || a.written[written].Reason != "five a minute are over" {
		t.Errorf("written: %+v", a.written[written:])
	}
	if err := a.CallAgent(ctx, "d"); err != nil {
		t.Errorf("a grant without limits: %v", err)
	}
}

func limitOf(err error) agent.Limit {
	if err == nil {
		return agent.NoLimit
	}
	return agent.AsError(err).Limit
}

// Side by side, no more uses are let through than the limit says.
func TestAuthorityLimitsSideBySide(t *testing.T) {
	a := authority(t, "a", `{"agents":[{"name":"b","limits":{"per_call":10}}]}`)
	var wg sync.WaitGroup
	through := make(chan bool, 100)
	for range 100 {
		wg.Go(func() { through <- a.CallAgent(t.Context(), "b") == nil })
	}
	wg.Wait()
	close(through)
	n := 0
	for ok := range through {
		if ok {
			n++
		}
	}
	if n != 10 || len(a.written) != 20 {
		t.Errorf("%d let through, %d refusals written", n, len(a.written))
	}
}

// A cell that asks again and again fills no log, and what it asks for cannot forge one.
func TestAuthorityWritesAFew(t *testing.T) {
	a := authority(t, "a", `{}`)
	for range 100 {
		if err := a.Tool(t.Context(), "x"); agent.KindOf(err) != agent.Denied {
			t.Fatal(err)
		}
	}
	if len(a.written) != 20 {
		t.Fatalf("%d written", len(a.written))
	}
	for i, r := range a.written {
		if last := strings.Contains(r.Reason, "further refusals of this cell are not written"); last != (i == 19) {
			t.Errorf("refusal %d: %q", i, r.Reason)
		}
	}
	a = authority(t, "a", `{}`)
	_ = a.Tool(t.Context(), "x\n2026 forged\x00"+strings.Repeat("y", 1000)+"\xff")
	if w := a.written[0].What; strings.ContainsAny(w, "\n\x00") || !utf8.ValidString(w) || len(w) > 520 {
		t.Errorf("written: %q", w)
	}
	none := grant.NewAuthority(grant.Subject{}, func() agent.Grants { return agent.Grants{} }, nil, nil)
	if err := none.Tool(t.Context(), "x"); agent.KindOf(err) != agent.Denied {
		t.Error(err)
	}
}
