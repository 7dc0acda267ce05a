package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func TestState(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	grants := agent.Grants{State: &agent.StateGrant{}}
	if _, err := r.c.CreateAgent(ctx, client.NewAgent{Name: "keeper", Plugin: "code", Grants: grants}); err != nil {
		t.Fatal(err)
	}
	keys := []string{"..", ".", "a/b", "a/b/../c", "a b+c%2F", "é", "日/本", "head", "?x=1#y", "\x00\n"}
	for i, k := range keys {
		c := r.c
		if strings.Contains(k, "/") { // escaped, which the checker of the document does not know
			c = client.New(r.url, r.token, nil)
		}
		v, err := c.SetState(ctx, client.AgentState("keeper"), k, agent.JSON(fmt.Appendf(nil, `{"n":%d}`, i)), nil)
		if err != nil || v != int64(i+1) {
			t.Fatalf("%q: %d, %v", k, v, err)
		}
		got, err := c.State(ctx, client.AgentState("keeper"), k)
		want := agent.StateEntry{Key: k, Version: v, Value: agent.JSON(fmt.Appendf(nil, `{"n":%d}`, i))}
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%q: %v\n%s", k, err, d)
		}
	}
	var listed []string
	q := agent.StateRange{Limit: 3}
	for {
		page, err := r.c.ListState(ctx, client.AgentState("keeper"), q)
		if err != nil || page.Size.Keys != int64(len(keys)) || page.Size.Bytes == 0 {
			t.Fatal(page, err)
		}
		for _, e := range page.Items {
			listed = append(listed, e.Key)
		}
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	slices.Sort(keys)
	if d := cmp.Diff(keys, listed); d != "" {
		t.Error(d)
	}
	page, err := r.c.ListState(ctx, client.AgentState("keeper"), agent.StateRange{Prefix: "a/", Start: "a/b/", End: "b", Reverse: true})
	if err != nil || len(page.Items) != 1 || page.Items[0].Key != "a/b/../c" {
		t.Errorf("%+v, %v", page, err)
	}

	zero, one := int64(0), int64(1)
	_, err = r.c.SetState(ctx, client.AgentState("keeper"), "é", agent.Text("x"), &zero)
	wantKind(t, err, agent.Conflict)
	wantKind(t, r.c.DeleteState(ctx, client.AgentState("keeper"), "é", &one), agent.Conflict)
	for range 2 {
		if err := r.c.DeleteState(ctx, client.AgentState("keeper"), "é", nil); err != nil {
			t.Error(err)
		}
	}
	_, err = r.c.State(ctx, client.AgentState("keeper"), "é")
	wantKind(t, err, agent.NotFound)
	if v, err := r.c.SetState(ctx, client.AgentState("keeper"), "é", agent.Payload{Type: agent.TypeBytes}, &zero); err != nil || v != 12 {
		t.Errorf("%d, %v", v, err)
	}
}

func TestStateRefuses(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	big := strings.Repeat("x", agent.MaxStateValue)
	if _, err := r.c.CreateAgent(context.Background(), client.NewAgent{Name: "keeper", Plugin: "code", Grants: agent.Grants{State: &agent.StateGrant{Bytes: 200_000}}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, target, body string
		status               int
		want                 string
	}{
		{"PUT", "/v1/agents/keeper/state/k", big, 200, `"version":1`},
		{"PUT", "/v1/agents/keeper/state/k", big + "x", 413, `"limit":"input"`},
		{"PUT", "/v1/agents/keeper/state/other", big, 429, "more than the 200000 granted"},
		{"PUT", "/v1/agents/keeper/state/k?if_version=-1", "v", 400, "if_version"},
		{"PUT", "/v1/agents/keeper/state/k?if_version=x", "v", 400, "if_version"},
		{"PUT", "/v1/agents/keeper/state/k?if_version=7", "v", 409, "has version 1, not 7"},
		{"PUT", "/v1/agents/keeper/state/" + strings.Repeat("k", agent.MaxStateKey+1), "v", 400, "more than 1024"},
		{"PUT", "/v1/agents/a/state/k", "v", 409, "was granted no state"},
		{"PUT", "/v1/agents/nobody/state/k", "v", 404, "nobody"},
		{"GET", "/v1/agents/nobody/state", "", 404, "nobody"},
		{"GET", "/v1/agents/keeper/state?limit=1001", "", 400, "between 1 and 1000"},
		{"GET", "/v1/agents/a/state", "", 200, `{"items":[],"size":{"bytes":0,"keys":0}}`},
		{"DELETE", "/v1/agents/a/state/k", "", 204, ""},
	} {
		res := r.do(tt.method, tt.target, tt.body)
		if res.StatusCode != tt.status || !strings.Contains(string(res.body), tt.want) {
			t.Errorf("%s %.60s: %s %s, want %d with %s", tt.method, tt.target, res.Status, res.body, tt.status, tt.want)
		}
	}
}
