package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
)

// nameServer gives every name the same public address, which no packet goes to.
type nameServer struct{}

func (nameServer) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
}

// wayRig is a runtime with the way out of a sandbox whose run waits until it is let go.
type wayRig struct {
	*rig
	*runtime.BoxWay
	session store.Log
	run     agent.Run
	let     chan struct{}
}

func newWay(t *testing.T, grants string, network ...string) *wayRig {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Method, r.URL)
		if r.URL.Path == "/long" {
			_, _ = w.Write(make([]byte, 9<<20))
		}
	}))
	t.Cleanup(upstream.Close)
	out := egress.New(&egress.Options{Resolver: nameServer{}, Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", upstream.Listener.Addr().String())
	}})
	t.Cleanup(func() { _ = out.Close() })
	w := &wayRig{let: make(chan struct{})}
	funcs := map[string]runtimetest.Func{"wait": func(ctx context.Context, _ host.Call) (agent.Payload, error) {
		select {
		case <-w.let:
		case <-ctx.Done():
		}
		return agent.Payload{}, ctx.Err()
	}}
	w.rig = newRig(t, funcs, &runtime.Options{Egress: out, Boxes: struct{ runtime.Boxes }{}})
	env := agent.Environment{App: app, Name: "work", Image: "skep/agents"}
	for _, n := range network {
		target, err := agent.ParseTarget(n)
		if err != nil {
			t.Fatal(err)
		}
		env.Network = append(env.Network, target)
	}
	env, err := w.store.PutEnvironment(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	a := agent.Agent{Name: "coder", Sandbox: &agent.SandboxUse{Environment: "work", CLI: "claude", Model: "@cheap"}}
	if err := json.Unmarshal([]byte(grants), &a.Grants); err != nil {
		t.Fatal(err)
	}
	w.agent(a)
	w.start()
	w.run = w.rig.run("coder", "wait", "")
	w.session = store.SessionLog(app, w.run.Session)
	sb := agent.Sandbox{ID: "01BOX", App: app, Agent: "coder", Session: w.run.Session, Run: w.run.ID, For: "run/" + string(w.run.ID)}
	if w.BoxWay, err = w.Runtime.BoxWay(t.Context(), sb, env, out); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wayRig) get(url string) (string, error) {
	res, err := w.Client().Do(w.t.Context(), &egress.Request{URL: url, Redirect: egress.Manual})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// TestBoxWay makes requests of a sandbox, which both the agent's grants and the environment have to allow.
func TestBoxWay(t *testing.T) {
	w := newWay(t, `{"http":["GET http://api.example.com/v1/**","http://more.example.com","http://127.0.0.1"]}`, "http://api.example.com", "http://other.example.com", "http://127.0.0.1")
	for url, want := range map[string]string{
		"http://api.example.com/v1/x":   "GET /v1/x",
		"http://api.example.com/v2":     `the path /v2 is not granted to agent "coder"`,
		"http://other.example.com/":     `http://other.example.com is not granted to agent "coder"`,
		"http://more.example.com/":      "GET http://more.example.com/ is not in the network of the environment work@1",
		"http://127.0.0.1/":             "127.0.0.1 is a loopback address",
		"http://api.example.com:81/v1/": "is not in the network",
	} {
		got, err := w.get(url)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	for to, want := range map[agent.Request]string{
		{Scheme: "http", Host: "api.example.com", Port: "80"}:    "",
		{Scheme: "https", Host: "api.example.com", Port: "443"}:  "https://api.example.com is not in the network",
		{Scheme: "http", Host: "other.example.com", Port: "80"}:  `is not granted to agent "coder"`,
		{Scheme: "http", Host: "more.example.com", Port: "80"}:   "is not in the network",
		{Scheme: "http", Host: "api.example.com", Port: "65535"}: "is not in the network",
	} {
		to.Method = "CONNECT"
		if err := w.Reach(t.Context(), to); want == "" && err != nil || want != "" && (agent.KindOf(err) != agent.Denied || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", to, err, want)
		}
	}
	w.Refused(t.Context(), agent.Refusal{Grant: "http", What: "GET http://evil.example.com/", Reason: "no"})
	if log := w.log(w.session); !slices.Contains(log, "http.request") || !slices.Contains(log, "grant.refused") {
		t.Errorf("the session has %q", log)
	}
	if log := w.log(store.AuditLog(app)); !slices.Contains(log, "grant.refused") {
		t.Errorf("the audit log has %q", log)
	}
	close(w.let)
}

// TestBoxWayIsLive takes the grants back.
func TestBoxWayIsLive(t *testing.T) {
	w := newWay(t, `{"http":["http://api.example.com"],"models":["@dear"]}`, "http://api.example.com")
	client := w.Client()
	res, err := client.Do(t.Context(), &egress.Request{URL: "http://api.example.com/"})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := client.Still(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.UpdateAgent(t.Context(), app, "coder", runtime.AgentPatch{Grants: &agent.Grants{}}); err != nil {
		t.Fatal(err)
	}
	if err := client.Still(t.Context()); agent.KindOf(err) != agent.Denied {
		t.Errorf("a response goes on: %v", err)
	}
	if _, err := w.get("http://api.example.com/"); agent.KindOf(err) != agent.Denied {
		t.Errorf("a request goes on: %v", err)
	}
	close(w.let)
}

// TestBoxQuota has a sandbox move the bytes of a day, and no more.
func TestBoxQuota(t *testing.T) {
	w := newWay(t, `{"http":["http://api.example.com"]}`, "http://api.example.com")
	if got, err := w.get("http://api.example.com/x"); err != nil || got != "GET /x" {
		t.Fatal(got, err)
	}
	used, err := w.QuotaUses(t.Context(), app, nil)
	if err != nil || used[0].Cells != 1 || used[0].Bytes < int64(len("GET /x")) { // the cell is that of the run
		t.Errorf("%+v, %v", used, err)
	}
	few := agent.Quota{BytesPerDay: 8}
	if _, err := w.UpdateAgent(t.Context(), app, "coder", runtime.AgentPatch{Quota: &few}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.get("http://api.example.com/more"); agent.KindOf(err) != agent.Exhausted || agent.AsError(err).Limit != agent.LimitQuota {
		t.Errorf("beyond the quota: %v", err)
	}
	close(w.let)
}

// TestBoxTraffic has what a sandbox moves in the ledger, so that it counts for the day when the server was killed: a request's bytes by its end, and a long
// one's before it ends.
func TestBoxTraffic(t *testing.T) {
	w := newWay(t, `{"http":["POST,GET http://api.example.com"]}`, "http://api.example.com", "http://other.example.com")
	after := func() (bytes int64) {
		t.Helper()
		k, err := quota.Load(t.Context(), w.Ledger())
		if err != nil {
			t.Fatal(err)
		}
		return k.Used(app, "coder", agent.Quota{}).Bytes
	}
	res, err := w.Client().Do(t.Context(), &egress.Request{Method: "POST", URL: "http://api.example.com/x", Body: strings.NewReader("12345"), Length: 5, Redirect: egress.Manual})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || string(got) != "POST /x" {
		t.Fatal(string(got), err)
	}
	if n := after(); n != int64(len("12345POST /x")) {
		t.Errorf("%d bytes are in the ledger by the end of the body", n)
	}
	_ = res.Body.Close()
	if _, err := w.get("http://other.example.com/"); agent.KindOf(err) != agent.Denied {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"outbound coder api.example.com ok 0 0"}, w.usage()); d != "" { // what was refused is none
		t.Error(d)
	}
	before := after()
	if res, err = w.Client().Do(t.Context(), &egress.Request{URL: "http://api.example.com/long", Redirect: egress.Manual}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, res.Body, 9<<20); err != nil {
		t.Fatal(err)
	}
	if n := after() - before; n < 8<<20 || n > 9<<20 {
		t.Errorf("%d bytes are in the ledger while the body comes", n)
	}
	_ = res.Body.Close()
	used, err := w.QuotaUses(t.Context(), app, []agent.Agent{{Name: "coder"}})
	if err != nil || used[1].Bytes != after() {
		t.Errorf("%+v, and %d in the ledger: %v", used, after(), err)
	}
	close(w.let)
}

// TestBoxModelLimit has the limits of grants of models count what a sandbox asks, too. The model of its CLI needs no grant.
func TestBoxModelLimit(t *testing.T) {
	w := newWay(t, `{"models":[{"name":"@dear","limits":{"per_day":2}}]}`)
	who, err := w.Caller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if err := who.Use(t.Context(), "@cheap"); err != nil {
			t.Errorf("the model of the CLI: %v", err)
		}
		if err := who.Use(t.Context(), "@dear"); n < 2 && err != nil || n == 2 && (agent.KindOf(err) != agent.Exhausted || agent.AsError(err).After <= 0) {
			t.Errorf("use %d: %v", n+1, err)
		}
	}
	if log := w.log(w.session); !slices.Contains(log, "grant.refused") {
		t.Errorf("nothing in the session's log tells of it: %q", log)
	}
	close(w.let)
}

// TestBoxCaller asks for whom, and for which models, a sandbox asks.
func TestBoxCaller(t *testing.T) {
	w := newWay(t, `{"models":["@dear","p/*"]}`)
	who, err := w.Caller(t.Context())
	if err != nil || who.App != app || who.Agent != "coder" || who.Session != w.run.Session || who.Run != w.run.ID || !slices.Equal(who.Models, []string{"@dear", "p/*", "@cheap"}) {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := w.UpdateAgent(t.Context(), app, "coder", runtime.AgentPatch{Grants: &agent.Grants{}}); err != nil {
		t.Fatal(err)
	}
	if who, err = w.Caller(t.Context()); err != nil || !slices.Equal(who.Models, []string{"@cheap"}) {
		t.Errorf("%+v, %v", who, err)
	}
	close(w.let)
	w.wait(w.run.ID)
	if _, err = w.Caller(t.Context()); agent.KindOf(err) != agent.Unauthenticated || !strings.Contains(err.Error(), "the run has ended") {
		t.Errorf("after the run: %v", err)
	}
	if err := w.DeleteAgents(t.Context(), app, "coder"); err != nil {
		t.Fatal(err)
	}
	if _, err = w.Caller(t.Context()); agent.KindOf(err) != agent.Unauthenticated {
		t.Errorf("after the agent: %v", err)
	}
	if _, err := w.get("http://api.example.com/"); agent.KindOf(err) != agent.Denied {
		t.Errorf("the way out outlives the agent: %v", err)
	}
}
