package api

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func TestProviders(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	p, err := r.c.PutProvider(ctx, client.NewProvider{Provider: agent.Provider{
		Name: "mine", URL: "https://models.example/v1", Protocols: []agent.Protocol{agent.ChatProtocol}, Keys: []agent.ProviderKey{{Secret: "k", Weight: 2}},
		Header: map[string]string{"X-Team": "bees"}, Models: []string{"m*"}, Idle: time.Second, Prices: []agent.ModelPrice{{Model: "m", Input: 1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if p.App != agent.DefaultApp || p.Created.IsZero() || p.Revision < 1 || p.Keys[0].Weight != 2 || p.Idle != time.Second {
		t.Errorf("%+v", p)
	}
	got, err := r.c.Provider(ctx, "mine")
	if d := cmp.Diff(p, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	changed := client.NewProvider{Provider: p}
	changed.Disabled = true
	next, err := r.c.PutProvider(ctx, changed)
	if err != nil || !next.Disabled || next.Revision <= p.Revision || !next.Created.Equal(p.Created) || next.Prices[0].Input != 1 {
		t.Errorf("%+v %v", next, err)
	}
	_, err = r.c.PutProvider(ctx, changed) // at a revision that is past
	wantKind(t, err, agent.Conflict)
	changed.Revision = 0
	if _, err = r.c.PutProvider(ctx, changed); err != nil {
		t.Error(err)
	}
	for _, body := range []string{
		`{}`, `{"url":"https://x"}`, `{"protocols":["openai-chat"]}`, `{"url":"ftp://x","protocols":["openai-chat"]}`, `{"url":"https://u:p@x","protocols":["openai-chat"]}`,
		`{"url":"https://x?key=1","protocols":["openai-chat"]}`, `{"url":"https://x","protocols":["smoke"]}`, `{"url":"https://x","protocols":["openai-chat","openai-chat"]}`,
		`{"url":"https://x","protocols":["openai-chat"],"header":{"Host":"y"}}`, `{"url":"https://x","protocols":["openai-chat"],"header":{"A":"b\r\nC: d"}}`,
		`{"url":"https://x","protocols":["openai-chat"],"keys":[{"secret":""}]}`, `{"url":"https://x","protocols":["openai-chat"],"script":"sha256:00"}`,
		`{"turns":"nonsense"}`, `{"url":"https://x","protocols":["openai-chat"],"models":["a b"]}`, `{"url":"https://x","protocols":["openai-chat"],"name":"y"}`,
	} {
		if res := r.do("PUT", "/v1/models/providers/bad", body); res.problem(t).Kind != agent.Invalid {
			t.Errorf("%s: %s %s", body, res.Status, res.body)
		}
	}
	for _, name := range []string{"Big", "a..b", "-"} {
		if res := r.do("PUT", "/v1/models/providers/"+name, `{"url":"https://x","protocols":["openai-chat"]}`); res.problem(t).Kind != agent.Invalid {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
	list, err := r.c.Providers(ctx, agent.Page{Limit: 1})
	if err != nil || len(list.Items) != 1 || list.Items[0].Revision == 0 {
		t.Errorf("%+v %v", list, err)
	}
	if err := r.c.DeleteProvider(ctx, "mine"); err != nil {
		t.Error(err)
	}
	_, err = r.c.Provider(ctx, "mine")
	wantKind(t, err, agent.NotFound)
	dev, _ := r.as(agent.Developer, "")
	_, err = dev.PutProvider(ctx, changed)
	wantKind(t, err, agent.Denied)
}

func TestModelRoutesLimitsGuardrails(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	route := agent.ModelRoute{Name: "cheap", Candidates: []agent.Candidate{{Provider: "mine", Model: "m", When: &agent.Condition{Share: 0.5}}}, FailOver: []agent.FaultClass{agent.ContextLength}}
	_, err := r.c.PutModelRoute(ctx, route)
	if e := wantKind(t, err, agent.Invalid); !strings.Contains(e.Msg, `"mine"`) {
		t.Error(e.Msg)
	}
	if _, err := r.c.PutProvider(ctx, client.NewProvider{Provider: agent.Provider{Name: "mine", URL: "https://x", Protocols: []agent.Protocol{agent.ChatProtocol}}}); err != nil {
		t.Fatal(err)
	}
	got, err := r.c.PutModelRoute(ctx, route)
	if err != nil || got.Candidates[0].When.Share != 0.5 || got.FailOver[0] != agent.ContextLength {
		t.Errorf("%+v %v", got, err)
	}
	limit, err := r.c.PutModelLimit(ctx, agent.ModelLimit{Name: "l", Each: agent.EachUser, Match: []string{"u*"}, Window: time.Hour, Spend: 5, Unpriced: 1, Instead: "@cheap"})
	if err != nil || limit.Each != agent.EachUser || limit.Window != time.Hour {
		t.Errorf("%+v %v", limit, err)
	}
	guard, err := r.c.PutGuardrail(ctx, agent.Guardrail{Name: "g", Find: []string{"email"}, Patterns: []string{"a+"}, Response: true})
	if err != nil || guard.Prompt || !guard.Response {
		t.Errorf("%+v %v", guard, err)
	}
	for target, bodies := range map[string][]string{
		"routes": {`{}`, `{"candidates":[]}`, `{"candidates":[{"provider":"mine","weight":-1}]}`, `{"candidates":[{"provider":"mine","when":{"share":2}}]}`,
			`{"candidates":[{"provider":"mine"}],"fail_over":["server"]}`, `{"candidates":[{"provider":"mine"}],"attempts":99}`},
		"limits": {`{"window":60000000000}`, `{"window":1,"requests":1}`, `{"window":60000000000,"requests":-1}`, `{"window":60000000000,"requests":1,"unpriced":1}`,
			`{"window":60000000000,"requests":1,"match":["x"]}`, `{"window":60000000000,"requests":1,"instead":"cheap"}`, `{"window":60000000000,"requests":1,"each":"bee"}`},
		"guardrails": {`{"prompt":true}`, `{"words":["x"]}`, `{"find":["bees"],"prompt":true}`, `{"patterns":["("],"prompt":true}`, `{"patterns":["a*"],"prompt":true}`},
	} {
		for _, body := range bodies {
			if res := r.do("PUT", "/v1/models/"+target+"/bad", body); res.problem(t).Kind != agent.Invalid {
				t.Errorf("%s %s: %s %s", target, body, res.Status, res.body)
			}
		}
	}
	for _, err := range []error{r.c.DeleteModelRoute(ctx, "cheap"), r.c.DeleteModelLimit(ctx, "l"), r.c.DeleteGuardrail(ctx, "g")} {
		if err != nil {
			t.Error(err)
		}
	}
	wantKind(t, r.c.DeleteGuardrail(ctx, "g"), agent.NotFound)
}

func TestModelKeys(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	k, err := r.c.CreateModelKey(ctx, client.NewModelKey{Name: "laptop", Models: []string{"@cheap"}, User: "u"})
	if err != nil || !strings.HasPrefix(k.Value, modelKeyPrefix) || len(k.Value) < 40 || !strings.HasPrefix(k.Value, k.Hint) {
		t.Fatalf("%+v %v", k, err)
	}
	found, err := r.s.st.ModelKeyByHash(ctx, sha256.Sum256([]byte(k.Value)))
	if d := cmp.Diff(k.ModelKey, found); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	given, err := r.c.CreateModelKey(ctx, client.NewModelKey{Name: "old", Value: "My API Key"})
	if err != nil || given.Value != "My API Key" {
		t.Errorf("%+v %v", given, err)
	}
	_, err = r.c.CreateModelKey(ctx, client.NewModelKey{Name: "again", Value: "My API Key"})
	wantKind(t, err, agent.Exists)
	for _, bad := range []client.NewModelKey{
		{Name: "x", Value: "too short"}, {Name: "x", Value: "line\nbreaks are not"}, {Name: "x", Value: tokenPrefix + "0123456789"}, {Name: "X"},
		{Name: "x", Models: []string{""}}, {Name: "x", Expires: time.Now().Add(-time.Hour)},
	} {
		_, err = r.c.CreateModelKey(ctx, bad)
		wantKind(t, err, agent.Invalid)
	}
	_, err = r.c.CreateModelKey(ctx, client.NewModelKey{Name: "x", Agent: "nobody"})
	wantKind(t, err, agent.NotFound)
	list, err := r.c.ModelKeys(ctx, agent.Page{})
	if err != nil || len(list.Items) != 2 || list.Items[0].ID != k.ID {
		t.Errorf("%+v %v", list, err)
	}
	for _, target := range []string{"/v1/models/keys", "/v1/models/keys/" + k.ID, "/v1/audit"} {
		if res := r.do("GET", target, ""); strings.Contains(string(res.body), k.Value) || strings.Contains(string(res.body), "My API Key") || res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", target, res.body)
		}
	}
	off := true
	if _, err := r.c.UpdateModelKey(ctx, k.ID, client.ModelKeyPatch{Disabled: &off}); err != nil {
		t.Error(err)
	}
	_, err = r.s.st.ModelKeyByHash(ctx, sha256.Sum256([]byte(k.Value)))
	wantKind(t, err, agent.Unauthenticated)
	off = false
	if _, err := r.c.UpdateModelKey(ctx, k.ID, client.ModelKeyPatch{Disabled: &off}); err != nil {
		t.Error(err)
	}
	if _, err = r.s.st.ModelKeyByHash(ctx, sha256.Sum256([]byte(k.Value))); err != nil {
		t.Error(err)
	}
	if err := r.c.DeleteModelKey(ctx, k.ID); err != nil {
		t.Error(err)
	}
	_, err = r.s.st.ModelKeyByHash(ctx, sha256.Sum256([]byte(k.Value)))
	wantKind(t, err, agent.Unauthenticated)
	dev, _ := r.as(agent.Developer, "")
	_, err = dev.CreateModelKey(ctx, client.NewModelKey{Name: "x"})
	wantKind(t, err, agent.Denied)
}

func TestUsageOfModels(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	micro := int64(1_500_000)
	for i, use := range []agent.ModelUse{
		{Call: "1", Provider: "p", Model: "m", User: "ann", Micro: &micro, Tokens: agent.ModelTokens{Input: 10, Output: 5}}, {Call: "2", Provider: "p", Model: "n"},
	} {
		e := agent.UsageEvent{Kind: agent.UseModel, App: agent.DefaultApp, Outcome: agent.Succeeded, Run: agent.RunID("r" + use.Call), Model: &use}
		if err := r.s.rt.Ledger().Append(e); err != nil {
			t.Fatal(i, err)
		}
	}
	report, err := r.c.Usage(ctx, client.UsageFilter{By: "model,user"})
	if err != nil || len(report.Rows) != 2 || *report.Rows[0].Models.Micro != micro || report.Rows[0].User != "ann" || report.Rows[1].Models.Micro != nil ||
		report.Rows[1].Models.Unpriced != 1 || report.Total.Models.Unpriced != 1 || *report.Total.Models.Micro != micro || report.Total.Events != 2 {
		t.Errorf("%+v %v", report, err)
	}
	report, err = r.c.Usage(ctx, client.UsageFilter{ModelFilter: client.ModelFilter{User: "-"}})
	if err != nil || len(report.Rows) != 1 || report.Rows[0].Events != 1 {
		t.Errorf("%+v %v", report, err)
	}
	report, err = r.c.Usage(ctx, client.UsageFilter{ModelFilter: client.ModelFilter{Run: "r1"}})
	if err != nil || len(report.Rows) != 1 || report.Rows[0].Models.Calls != 1 || report.Rows[0].Events != 1 {
		t.Errorf("%+v %v", report, err)
	}
	n := 0
	for e, err := range r.c.UsageEvents(ctx, client.EventFilter{ModelFilter: client.ModelFilter{Model: "n"}}) {
		if err != nil || e.Model == nil || e.Model.Call != "2" {
			t.Errorf("%+v %v", e, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
	if res := r.do("GET", "/v1/usage?by=model&format=csv", ""); !strings.Contains(string(res.body), ",1.500000,0\n") {
		t.Errorf("%s", res.body)
	}
}
