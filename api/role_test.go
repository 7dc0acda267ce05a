package api

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// ownersOnly is what a developer may not do. A route that needs an owner, and one that does not, is a decision.
var ownersOnly = []string{"putPolicy", "classifyTools", "pinTools", "putSecret", "updateSecret", "deleteSecret", "rollbackSecret", "rewrapSecrets", "createApp", "updateApp", "deleteApp", "createToken", "deleteToken", "deleteTokens", "backup"}

func TestRoutesThatNeedAnOwner(t *testing.T) {
	r := start(t, nil)
	_, dev := r.as(agent.Developer, "")
	var got []string
	for i := range r.s.routes {
		op := &r.s.routes[i]
		if op.owner == "" {
			continue
		}
		got = append(got, op.id)
		res := r.do(op.method, paramRE.ReplaceAllString(op.path, "x"), "{}", "Authorization", "Bearer "+dev.Secret)
		p := res.problem(t)
		if p.Kind != agent.Denied || !strings.Contains(p.Detail, op.owner) || !strings.Contains(p.Hint, "ask an owner to "+op.owner) {
			t.Errorf("%s: %s %s", op.id, res.Status, res.body)
		}
		if op.open {
			t.Errorf("%s is open and for owners", op.id)
		}
	}
	for _, id := range ownersOnly {
		if !strings.Contains(strings.Join(got, " ")+" ", id+" ") {
			t.Errorf("%s does not need an owner", id)
		}
	}
}

func target(t *testing.T, s string) agent.Target {
	t.Helper()
	out, err := agent.ParseTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func hosts(t *testing.T, targets ...string) (g agent.Grants) {
	for _, s := range targets {
		g.HTTP = append(g.HTTP, agent.HTTPGrant{Allow: target(t, s)})
	}
	return g
}

func TestDeveloper(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	dev, _ := r.as(agent.Developer, "")
	if _, err := dev.PutPlugin(ctx, client.Upload{Name: "code", Version: "1", Filename: "main.ts", Body: []byte("export {}")}, nil); err != nil {
		t.Fatal(err)
	}
	wide := hosts(t, "https://api.example.com/**", "https://b.example.com")
	_, err := dev.CreateAgent(ctx, client.NewAgent{Name: "a", Plugin: "code", Grants: wide})
	e := wantKind(t, err, agent.Denied)
	for _, want := range []string{"ask an owner", "api.example.com", "b.example.com"} {
		if !strings.Contains(e.Hint, want) {
			t.Errorf("the hint does not say %q: %s", want, e.Hint)
		}
	}
	if _, err := dev.CreateAgent(ctx, client.NewAgent{Name: "a", Plugin: "code", Quota: agent.Quota{Cells: 2}}); err != nil {
		t.Fatal("an agent without grants, and bounded:", err)
	}
	if _, err := r.c.UpdateAgent(ctx, "a", client.AgentPatch{Grants: &wide}); err != nil {
		t.Fatal(err)
	}
	narrow := hosts(t, "GET https://api.example.com/v1/**")
	limited, split := hosts(t, "https://api.example.com/**", "https://b.example.com"), hosts(t, "GET https://b.example.com", "POST https://b.example.com")
	limited.HTTP[1].Limits.PerDay = 9
	split.HTTP[0].Limits, split.HTTP[1].Limits = limited.HTTP[1].Limits, limited.HTTP[1].Limits
	for _, tt := range []struct {
		name  string
		patch client.AgentPatch
		ok    bool
	}{
		{"the same again", client.AgentPatch{Grants: &wide}, true},
		{"another host", client.AgentPatch{Grant: ptr(hosts(t, "https://c.example.com"))}, false},
		{"a limit", client.AgentPatch{Grants: &limited}, true},
		{"a limit that is split", client.AgentPatch{Grants: &split}, false},
		{"a limit that is gone", client.AgentPatch{Grants: &wide}, false},
		{"a host for a host", client.AgentPatch{Grants: ptr(hosts(t, "https://c.example.com"))}, false},
		{"a secret", client.AgentPatch{Grant: &agent.Grants{Secrets: []agent.SecretGrant{{Name: "key"}}}}, false},
		{"a larger quota", client.AgentPatch{Quota: &agent.Quota{Cells: 3}}, false},
		{"no quota", client.AgentPatch{Quota: &agent.Quota{}}, false},
		{"a smaller quota", client.AgentPatch{Quota: &agent.Quota{Cells: 1, CallsPerSecond: 9}}, true},
		{"less", client.AgentPatch{Grants: &narrow}, true},
		{"back again", client.AgentPatch{Grants: &wide}, false},
		{"what it has anyway", client.AgentPatch{Grant: ptr(hosts(t, "GET https://api.example.com/v1/x"))}, true},
		{"nothing", client.AgentPatch{Grants: &agent.Grants{}}, true},
		{"anything", client.AgentPatch{Grants: &narrow}, false},
		{"other words", client.AgentPatch{Description: ptr("x"), Config: &map[string]string{"k": "v"}}, true},
	} {
		before, err := r.c.Agent(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		_, err = dev.UpdateAgent(ctx, "a", tt.patch)
		switch {
		case tt.ok && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case !tt.ok:
			wantKind(t, err, agent.Denied)
			if after, err := r.c.Agent(ctx, "a"); err != nil || !cmp.Equal(before, after) {
				t.Errorf("%s was refused, and changed the agent: %v", tt.name, err)
			}
		}
	}
	if _, _, err := dev.Call(ctx, "a", "echo", agent.Text("x"), 0); err != nil {
		t.Error(err)
	}
	if _, err := dev.Apps(ctx, agent.Page{}); err != nil {
		t.Error(err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestAuditLog(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.app("shop")
	dev, devToken := r.as(agent.Developer, "shop")
	shop := r.in("shop")
	if _, err := dev.PutPlugin(ctx, client.Upload{Name: "code", Version: "1", Filename: "main.ts", Body: []byte("export {}")}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.CreateAgent(ctx, client.NewAgent{Name: "a", Plugin: "code"}); err != nil {
		t.Fatal(err)
	}
	g := hosts(t, "GET https://api.example.com")
	if _, err := shop.UpdateAgent(ctx, "a", client.AgentPatch{Grant: &g, Quota: &agent.Quota{Cells: 4}}); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.UpdateAgent(ctx, "a", client.AgentPatch{Revoke: &g}); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.UpdateAgent(ctx, "a", client.AgentPatch{Grant: &g}); err == nil {
		t.Fatal("widened")
	}
	weight := 3
	if _, err := r.c.UpdateApp(ctx, "shop", client.AppPatch{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	if err := dev.DeleteAgents(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := r.c.DeleteTokens(ctx, devToken.ID); err != nil {
		t.Fatal(err)
	}
	read := func(cl *client.Client, f client.AuditFilter) (out []string) {
		t.Helper()
		for e, err := range cl.Events(ctx, client.AuditLog(f), 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			c := decodeChange(t, e)
			if c.Token == "" || c.Request == "" || e.Kind != agent.EventChanged {
				t.Errorf("event %d: %+v", e.Seq, c)
			}
			by := "owner"
			if c.Token == devToken.ID {
				by = "dev"
			}
			out = append(out, by+" "+c.Action+" "+c.Name+": "+strings.ReplaceAll(c.Detail, string(devToken.ID), "ID"))
		}
		return out
	}
	words := g.Words()[0]
	want := []string{
		"owner app.create shop: weight 1",
		"owner token.create t: ID, role developer",
		"dev plugin.push code@1: " + string(agent.DigestOf(nil)),
		"dev agent.create a: runs code",
		"owner agent.update a: may now: " + words + ". quota: at most 4 cells at once",
		"dev agent.update a: may no longer: " + words,
		"owner app.update shop: weight 3",
		"dev agent.delete a: ",
		"owner token.delete t: ID, role developer",
	}
	got := read(shop, client.AuditFilter{})
	if len(got) > 2 && strings.HasPrefix(got[2], "dev plugin.push code@1: sha256:") {
		want[2] = got[2]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := read(shop, client.AuditFilter{Agent: "a"}); len(got) != 4 {
		t.Errorf("about a: %q", got)
	}
	if got := read(shop, client.AuditFilter{Kind: "secret.used"}); len(got) != 0 {
		t.Errorf("secrets: %q", got)
	}
	if got := read(shop, client.AuditFilter{Since: "1h"}); len(got) != len(want) {
		t.Errorf("since: %q", got)
	}
	if got := read(shop, client.AuditFilter{Since: "2999-01-01T00:00:00Z"}); len(got) != 0 {
		t.Errorf("since a time to come: %q", got)
	}
	if got := read(r.c, client.AuditFilter{}); len(got) != 2 || !strings.Contains(got[0], "app.create shop") { // the default app has the changes of all apps
		t.Errorf("default: %q", got)
	}
	if res := r.do("GET", "/v1/audit?limit=2", "", headerApp, "shop"); !strings.Contains(string(res.body), `"next":"2"`) {
		t.Errorf("page: %s", res.body)
	}
	for _, bad := range []string{"kind=lost", "since=yesterday"} {
		if res := r.do("GET", "/v1/audit?"+bad, ""); res.StatusCode != 400 {
			t.Errorf("%s: %s %s", bad, res.Status, res.body)
		}
	}
}

// A follower of the audit log sees changes as they are made.
func TestAuditLogFollowed(t *testing.T) {
	r := start(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.agent("a")
	seen := make(chan string)
	go func() {
		defer close(seen)
		for e, err := range r.c.Events(ctx, client.AuditLog(client.AuditFilter{Agent: "b"}), 0, true) {
			if err != nil {
				return
			}
			seen <- decodeChange(t, e).Action
		}
	}()
	r.agent("b")
	if got := <-seen; got != "agent.create" {
		t.Errorf("got %s", got)
	}
	if err := r.c.DeleteAgents(context.Background(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "agent.delete" {
		t.Errorf("got %s", got)
	}
	cancel()
	for range seen {
		t.Error("another event")
	}
}

func TestAgentGrants(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	ct, body := form(t, "main.ts", "export {}", "skep.json", `{"name":"asker","version":"1","grants":{"http":["https://api.example.com/**"],"state":{}}}`)
	if res := r.do("POST", "/v1/plugins", body, "Content-Type", ct); res.StatusCode != 201 || !strings.Contains(string(res.body), `"asks":{"http":["https://api.example.com/**"]`) {
		t.Fatalf("%s %s", res.Status, res.body)
	}
	g := hosts(t, "https://api.example.com")
	if _, err := r.c.CreateAgent(ctx, client.NewAgent{Name: "a", Plugin: "asker", Grants: g}); err != nil {
		t.Fatal(err)
	}
	got, err := r.c.Grants(ctx, "a")
	if err != nil || got.Asked == nil || len(got.Missing) != 1 || !strings.Contains(got.Missing[0], "state") || len(got.Words) != 1 || !cmp.Equal(got.Granted, g) {
		t.Errorf("%+v %v", got, err)
	}
	// A newer version that asks for more gets no more.
	ct, body = form(t, "main.ts", "export {}", "skep.json", `{"name":"asker","version":"2","grants":{"http":["https://*.example.org"]}}`)
	if res := r.do("POST", "/v1/plugins", body, "Content-Type", ct); res.StatusCode != 201 {
		t.Fatalf("%s %s", res.Status, res.body)
	}
	if got, err = r.c.Grants(ctx, "a"); err != nil || !cmp.Equal(got.Granted, g) || len(got.Missing) != 1 || !strings.Contains(got.Missing[0], "example.org") {
		t.Errorf("%+v %v", got, err)
	}
	_, err = r.c.UpdateAgent(ctx, "a", client.AgentPatch{Revoke: ptr(hosts(t, "https://other.example.com"))})
	if e := wantKind(t, err, agent.Invalid); !strings.Contains(e.Hint, "https://api.example.com") {
		t.Errorf("%+v", e)
	}
}
