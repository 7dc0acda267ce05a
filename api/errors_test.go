package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// statuses is the table of kinds, written out a second time.
var statuses = map[agent.Kind]int{
	agent.Internal: 500, agent.Invalid: 400, agent.Unauthenticated: 401, agent.Denied: 403, agent.NotFound: 404, agent.Exists: 409,
	agent.Conflict: 409, agent.Exhausted: 429, agent.Unavailable: 503, agent.Failed: 502, agent.Cancelled: 499,
}

func TestEveryKindHasItsStatus(t *testing.T) {
	for _, k := range agent.Kinds() {
		want, found := statuses[k]
		if got := kindStatus(k, agent.NoLimit); !found || got != want {
			t.Errorf("%v = %d, want %d", k, got, want)
		}
	}
	for _, l := range []agent.Limit{agent.LimitInput, agent.LimitUpload, agent.LimitModule} {
		if got := kindStatus(agent.Exhausted, l); got != 413 {
			t.Errorf("%v = %d", l, got)
		}
	}
	if got := kindStatus(agent.Exhausted, agent.LimitConcurrency); got != 429 {
		t.Errorf("concurrency = %d", got)
	}
}

// Every kind goes out as a problem, and comes back in the client as the same error.
func TestEveryKindOverTheWire(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	for _, k := range agent.Kinds() {
		res := r.do("POST", "/v1/agents/a/call/error", k.String(), "Content-Type", "text/plain")
		p := res.problem(t)
		if res.StatusCode != statuses[k] || p.Status != res.StatusCode || p.Kind != k || p.Type != "urn:skep:error:"+k.String() {
			t.Errorf("%v: %s %+v", k, res.Status, p)
		}
		if p.Instance == "" || p.Instance != res.Header.Get("Request-Id") {
			t.Errorf("%v: instance %q, request id %q", k, p.Instance, res.Header.Get("Request-Id"))
		}
		if strings.Contains(string(res.body), "secret") {
			t.Errorf("%v: the cause got out: %s", k, res.body)
		}
		if got := res.Header.Get("Retry-After") != ""; got != (k == agent.Unavailable || k == agent.Exhausted) {
			t.Errorf("%v: Retry-After = %v", k, got)
		}
		if got := res.Header.Get("WWW-Authenticate") != ""; got != (k == agent.Unauthenticated) {
			t.Errorf("%v: WWW-Authenticate = %v", k, got)
		}

		_, _, err := r.c.Call(context.Background(), "a", "error", agent.Text(k.String()), 0)
		want := &agent.Error{
			Kind: k, Msg: "as you asked", Hint: "ask for something else", Pos: agent.Pos{File: "main.ts", Line: 3, Column: 7},
			Stack: "at f (main.ts:3:7)",
		}
		if k == agent.Unavailable || k == agent.Exhausted {
			want.After = time.Second
		}
		if k == agent.Internal {
			want = &agent.Error{Kind: k, Msg: "internal error"}
			if got := agent.AsError(err); !strings.Contains(got.Hint, "request id") {
				t.Errorf("hint = %q", got.Hint)
			} else {
				want.Hint = got.Hint
			}
		}
		if d := cmp.Diff(want, agent.AsError(err)); d != "" {
			t.Errorf("%v:\n%s", k, d)
		}
	}
	if n := strings.Count(r.log.String(), "secret detail"); n == 0 {
		t.Error("the cause of the internal error is not in the log")
	}
}

func TestStoppedRequest(t *testing.T) {
	if p := problemOf(fmt.Errorf("read: %w", context.Canceled), "R"); p.Kind != agent.Cancelled || p.Status != 499 || p.Title == "" {
		t.Errorf("%+v", p)
	}
}

func TestPanicIsAnInternalError(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	res := r.do("POST", "/v1/agents/a/call/panic", "x")
	if p := res.problem(t); p.Status != 500 || strings.Contains(string(res.body), "secret") {
		t.Errorf("%+v", p)
	}
	if res = r.do("GET", "/healthz", ""); res.StatusCode != 200 {
		t.Error("the server did not survive")
	}
	if !strings.Contains(r.log.String(), "secret detail") {
		t.Error("the panic is not in the log")
	}
}

func TestFailureOfTheAgentsCode(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	p := r.do("POST", "/v1/agents/a/call/throw", "x").problem(t)
	if p.Status != 502 || p.Detail != "boom" || p.Position == nil || p.Position.File != "main.ts" || p.Stack == "" {
		t.Errorf("%+v", p)
	}
}

func TestRefusals(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	long := strings.Repeat("k", 256)
	for _, tt := range []struct {
		name, method, target, body string
		header                     []string
		status                     int
		detail                     string
	}{
		{"no route", "GET", "/v2", "", nil, 404, "nothing at GET"},
		{"trailing slash", "GET", "/v1/agents/", "", nil, 404, ""},
		{"method", "PUT", "/v1/agents", "{}", nil, 405, "PUT is not a method"},
		{"no token", "GET", "/v1/agents", "", []string{"Authorization", ""}, 401, "needs a token"},
		{"basic", "GET", "/v1/agents", "", []string{"Authorization", "Basic eDp5"}, 401, "needs a token"},
		{"wrong token", "GET", "/v1/agents", "", []string{"Authorization", "Bearer skep_nobody"}, 401, "not known"},
		{"form", "POST", "/v1/agents", "a=b", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "x-www-form-urlencoded"},
		{"gzip", "POST", "/v1/agents", "{}", []string{"Content-Encoding", "gzip"}, 415, "gzip"},
		{"empty", "POST", "/v1/agents", "", nil, 400, "empty"},
		{"not JSON", "POST", "/v1/agents", "{\n  oops}", nil, 400, "not valid JSON"},
		{"cut JSON", "POST", "/v1/agents", `{"name":`, nil, 400, "too early"},
		{"two values", "POST", "/v1/agents", `{"name":"b","plugin":"code"}{}`, nil, 400, "after its JSON value"},
		{"an array", "POST", "/v1/agents", `[]`, nil, 400, "must be an object"},
		{"unknown field", "POST", "/v1/agents", `{"name":"b","plugin":"code","colour":1}`, nil, 400, `"colour"`},
		{"unknown nested field", "POST", "/v1/agents", `{"name":"b","plugin":"code","limits":{"moons":1}}`, nil, 400, `"moons"`},
		{"wrong type", "POST", "/v1/agents", `{"name":"b","plugin":"code","limits":{"memory":"much"}}`, nil, 400, `"limits.memory" must be a whole number, not string`},
		{"missing field", "POST", "/v1/agents", `{"name":"b"}`, nil, 400, `"plugin" is missing`},
		{"no names", "POST", "/v1/agents/delete", `{"names":[]}`, nil, 400, `"names" is missing`},
		{"UTF-8", "POST", "/v1/agents", "{\"name\":\"\xff\"}", nil, 400, "UTF-8 at byte 9"},
		{"UTF-8 in the path", "GET", "/v1/agents/%ff", "", nil, 400, "UTF-8"},
		{"UTF-8 in the query", "GET", "/v1/agents?after=%ff", "", nil, 400, "UTF-8"},
		{"limit", "GET", "/v1/agents?limit=many", "", nil, 400, `"limit" must be a whole number`},
		{"negative limit", "GET", "/v1/agents?limit=-1", "", nil, 400, `"limit"`},
		{"huge limit", "GET", "/v1/agents?limit=100000", "", nil, 400, ""},
		{"cursor", "GET", "/v1/agents?after=nonsense", "", nil, 400, ""},
		{"name", "POST", "/v1/agents", `{"name":"No!","plugin":"code"}`, nil, 400, "No!"},
		{"too much memory", "POST", "/v1/agents", `{"name":"b","plugin":"code","limits":{"memory":99999999999999}}`, nil, 400, "memory"},
		{"no plugin", "POST", "/v1/agents", `{"name":"b","plugin":"nothing"}`, nil, 404, "nothing"},
		{"long key", "POST", "/v1/agents", `{"name":"b","plugin":"code"}`, []string{"Idempotency-Key", long}, 400, "255"},
		{"accept", "GET", "/v1/agents/a/logs", "", []string{"Accept", "text/html"}, 406, "no form"},
		{"event id", "GET", "/v1/agents/a/logs", "", []string{"Last-Event-ID", "x"}, 400, "Last-Event-ID"},
		{"page of events", "GET", "/v1/agents/a/logs?limit=1001", "", nil, 400, "1000"},
		{"past the log", "GET", "/v1/agents/a/logs?after=99", "", []string{"Accept", "text/event-stream"}, 400, "past the end"},
		{"no socket", "GET", "/v1/sessions/x/ws", "", nil, 426, "WebSocket"},
		{"expired", "POST", "/v1/tokens", `{"name":"x","expires":"2001-01-01T00:00:00Z"}`, nil, 400, "past"},
		{"time", "POST", "/v1/tokens", `{"name":"x","expires":"tomorrow"}`, nil, 400, "tomorrow"},
		{"host", "GET", "/healthz", "", []string{"Host", "evil.example"}, 403, "Host"},
		{"headers", "GET", "/healthz", "", []string{"X-Long", strings.Repeat("x", maxHeader)}, 431, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := *r
			r.t = t
			res := r.do(tt.method, tt.target, tt.body, tt.header...)
			p := res.problem(t)
			if res.StatusCode != tt.status || !strings.Contains(p.Detail, tt.detail) {
				t.Errorf("%s: %s\n%+v", res.Status, res.body, p)
			}
			if p.Instance == "" || p.Title == "" || p.Detail == "" {
				t.Errorf("incomplete: %+v", p)
			}
		})
	}
}

func TestPlaceOfAMistake(t *testing.T) {
	r := start(t, nil)
	p := r.do("POST", "/v1/agents", "{\n  \"name\": 7}").problem(t)
	if p.Position == nil || p.Position.Line != 2 || p.Position.File != "body" {
		t.Errorf("%+v", p)
	}
}

// A body is taken up to its limit, and refused one byte past it.
func TestBodyLimits(t *testing.T) {
	const upload = 300 << 10
	r := start(t, &Options{Upload: upload})
	r.agent("a")
	json := func(n int) string {
		const frame = `{"name":"","plugin":"code"}`
		return strings.Replace(frame, `""`, `"`+strings.Repeat("n", n-len(frame))+`"`, 1)
	}
	for _, tt := range []struct {
		name, target, body string
		status             int
		limit              agent.Limit
	}{
		{"json at", "/v1/agents", json(maxJSON), 400, agent.NoLimit}, // read, and the name refused
		{"json past", "/v1/agents", json(maxJSON + 1), 413, agent.LimitInput},
		{"upload at", "/v1/plugins?name=big", "//" + strings.Repeat("x", upload-2), 201, agent.NoLimit},
		{"upload past", "/v1/plugins?name=big", "//" + strings.Repeat("x", upload-1), 413, agent.LimitUpload},
		{"upload far past", "/v1/plugins?name=big", strings.Repeat("x", 20<<20), 413, agent.LimitUpload},
		{"call at", "/v1/agents/a/call/echo", strings.Repeat("x", int(agent.DefaultLimits().Input)), 200, agent.NoLimit},
		{"call past", "/v1/agents/a/call/echo", strings.Repeat("x", int(agent.DefaultLimits().Input)+1), 413, agent.LimitInput},
		{"call far past", "/v1/agents/a/call/echo", strings.Repeat("x", int(agent.MaxLimits().Input)+1), 413, agent.LimitInput},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s chunked=%v", tt.name, chunked), func(t *testing.T) {
				req, err := http.NewRequest("POST", r.url+tt.target, strings.NewReader(tt.body))
				if err != nil {
					t.Fatal(err)
				}
				if chunked {
					req.ContentLength = -1
				}
				req.Header.Set("Authorization", "Bearer "+r.token)
				req.Header.Set("Content-Type", "application/json")
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if res.StatusCode != tt.status {
					t.Fatalf("%s, want %d", res.Status, tt.status)
				}
				if tt.status == 413 {
					var p problem
					if err := decodeJSON(readAll(t, res.Body), &p); err != nil || p.Limit != tt.limit {
						t.Errorf("%+v %v", p, err)
					}
				}
			})
		}
	}
}

// A large body without a token is not read into memory, and the client still hears why it was refused.
func TestLargeBodyWithoutToken(t *testing.T) {
	r := start(t, nil)
	res := r.do("POST", "/v1/plugins?name=x", strings.Repeat("x", 8<<20), "Authorization", "")
	if res.StatusCode != 401 {
		t.Errorf("%s", res.Status)
	}
}

func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	c := client.New("http://"+addr, "", nil)
	if e := wantKind(t, c.Ready(context.Background()), agent.Unavailable); e.Hint == "" {
		t.Errorf("%+v", e)
	}
	for _, err := range c.Events(context.Background(), client.AgentLog("a"), 0, true) {
		wantKind(t, err, agent.Unavailable)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Ready(ctx); !errors.Is(err, context.Canceled) || agent.KindOf(err) != agent.Cancelled {
		t.Errorf("%v", err)
	}
}

// Whatever a path, a query or a body names, it is the caller's mistake and never the server's.
func TestStrangeNames(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	names := []string{
		"%00", "a%00b", "..", "%2e%2e%2f", "%2F", "@", "a@", "@1", "sha256:", "sha256:00", "%20", strings.Repeat("x", 5000), "%F0%9F%8D%AF", "default",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV", "a%0d%0ab",
	}
	for _, route := range r.s.routes {
		if route.open || !strings.Contains(route.path, "{") || strings.Contains(route.path, "/http/") {
			continue
		}
		for _, name := range names {
			target := route.path
			for _, param := range []string{"{name}", "{id}", "{ref}", "{function}", "{key}", "{method}", "{entry}", "{alarm}", "{type}"} {
				target = strings.Replace(target, param, name, 1)
			}
			for _, body := range []string{"", `{}`, `{"content":1}`} {
				if body != "" && route.method == "GET" {
					continue
				}
				if res := r.do(route.method, target, body); res.StatusCode >= 500 {
					t.Errorf("%s %.200s %s: %s %s", route.method, target, body, res.Status, res.body)
				}
			}
		}
	}
	for _, body := range []string{
		`{"name":"b","plugin":"@"}`, `{"name":"b","plugin":"a@b@c"}`, `{"name":"\u0000","plugin":"code"}`, `{"agent":"\u0000"}`, `{"agent":""}`,
		`{"agent":"a","session":"\u0000"}`, `{"agent":"a","key":"\u0000"}`, `{"ids":["\u0000",""]}`, `{"names":["\u0000",""]}`, `{"code":"x","files":{"../x":""}}`,
	} {
		for _, target := range []string{"/v1/agents", "/v1/sessions", "/v1/runs", "/v1/runs/cancel", "/v1/agents/delete", "/v1/tokens/delete", "/v1/tokens", "/v1/code"} {
			if res := r.do("POST", target, body); res.StatusCode >= 500 {
				t.Errorf("%s %s: %s %s", target, body, res.Status, res.body)
			}
		}
	}
}
