package api

import (
	"context"
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func TestUsage(t *testing.T) {
	r := start(t, nil)
	ctx := t.Context()
	r.agent("a")
	r.agent2("b")
	for _, in := range []string{"x", "yy", "zzz"} {
		if _, _, err := r.c.Call(ctx, "a", "echo", agent.Text(in), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.c.Call(ctx, "b", "throw", agent.Text(""), 0); err == nil {
		t.Fatal("no error")
	}
	u, err := r.c.Usage(ctx, client.UsageFilter{By: "agent,kind"})
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Rows) != 2 || u.Rows[0].Agent != "a" || u.Rows[0].Events != 3 || u.Rows[0].In != 6 || u.Rows[0].Out != 6 || u.Rows[0].Kind != agent.UseCall ||
		u.Rows[1].Failed != 1 || u.Total.Events != 4 || u.Total.Failed != 1 {
		t.Errorf("usage: %+v", u)
	}
	today := agent.UsageDay(time.Now())
	if u.To != today || u.From != agent.UsageDay(time.Now().AddDate(0, 0, -29)) {
		t.Errorf("from %s to %s", u.From, u.To)
	}
	if u, err := r.c.Usage(ctx, client.UsageFilter{From: "2020-01-01", To: "2020-01-02", Agent: "a"}); err != nil || len(u.Rows) != 0 {
		t.Errorf("long ago: %+v, %v", u, err)
	}

	body, err := r.c.ExportUsage(ctx, client.UsageFilter{By: "day,agent"}, "csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(body).ReadAll()
	body.Close()
	if err != nil || len(rows) != 3 || rows[0][0] != "day" || rows[1][0] != today || rows[1][2] != "a" || rows[1][4] != "3" {
		t.Errorf("csv: %v, %v", rows, err)
	}
	body, err = r.c.ExportUsage(ctx, client.UsageFilter{By: "agent"}, "ndjson")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(body)
	body.Close()
	if err != nil || strings.Count(string(b), "\n") != 2 {
		t.Errorf("ndjson: %s, %v", b, err)
	}

	for _, q := range []string{"?by=colour", "?from=yesterday", "?to=1", "?from=2026-02-01&to=2026-01-01", "?from=1000-01-01", "?format=xml"} {
		if res := r.do("GET", "/v1/usage"+q, ""); res.problem(t).Kind != agent.Invalid {
			t.Errorf("%s: %s", q, res.body)
		}
	}
}

// agent2 makes another agent on the same code.
func (r *rig) agent2(name string) {
	r.t.Helper()
	if _, err := r.c.CreateAgent(context.Background(), client.NewAgent{Name: name, Plugin: "code"}); err != nil {
		r.t.Fatal(err)
	}
}

func TestUsageEvents(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	const n = 2*readBatch + 3
	for i := range n {
		if _, _, err := r.c.Call(t.Context(), "a", "echo", agent.Text(strconv.Itoa(i)), 0); err != nil {
			t.Fatal(err)
		}
	}
	var all []client.UsageEntry
	for e, err := range r.c.UsageEvents(t.Context(), client.EventFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if len(all) != n || all[0].In != 1 || all[n-1].In != 3 || all[0].Function != "echo" || all[0].Outcome != agent.Succeeded {
		t.Fatalf("%d events, the first %+v", len(all), all[0])
	}
	rest := 0
	for e, err := range r.c.UsageEvents(t.Context(), client.EventFilter{After: all[9].Cursor}) {
		if err != nil || rest == 0 && e != all[10] {
			t.Fatal(e, err)
		}
		rest++
	}
	if rest != n-10 {
		t.Errorf("%d events after the tenth", rest)
	}
	for e, err := range r.c.UsageEvents(t.Context(), client.EventFilter{To: "2020-01-01T00:00:00Z"}) {
		t.Error(e, err)
	}
	for _, q := range []string{"?after=x", "?from=now", "?to=x"} {
		if res := r.do("GET", "/v1/usage/events"+q, ""); res.problem(t).Kind != agent.Invalid {
			t.Errorf("%s: %s", q, res.body)
		}
	}
}

// A quota that has no room answers 429 with the time until it makes sense to try again.
func TestQuotaOverTheWire(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	set := func(q agent.Quota) {
		t.Helper()
		if _, err := r.c.UpdateAgent(t.Context(), "a", client.AgentPatch{Quota: &q}); err != nil {
			t.Fatal(err)
		}
	}
	set(agent.Quota{CallsPerSecond: 1})
	call := func() reply {
		return r.do("POST", "/v1/agents/a/call/echo", "x", "Content-Type", "text/plain")
	}
	refused := call()
	for range 100 { // two calls within a second, however slow the machine is
		if refused = call(); refused.StatusCode != 200 {
			break
		}
	}
	p := refused.problem(t)
	if p.Status != 429 || p.Limit != agent.LimitQuota || refused.Header.Get("Retry-After") != "1" && refused.Header.Get("Retry-After") != "2" ||
		!strings.Contains(p.Detail, `the quota of agent "a" is 1 calls a second`) {
		t.Errorf("%s, Retry-After %q: %s", refused.Status, refused.Header.Get("Retry-After"), refused.body)
	}
	set(agent.Quota{BytesPerDay: 1})
	before := time.Now()
	res := call()
	left, err := strconv.Atoi(res.Header.Get("Retry-After"))
	midnight := before.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	if d := midnight.Sub(before) - time.Duration(left)*time.Second; res.StatusCode != 429 || err != nil || d > time.Minute || d < -time.Minute {
		t.Errorf("%s, Retry-After %d s, %s before midnight", res.Status, left, midnight.Sub(before))
	}
	_, _, err = r.c.Call(t.Context(), "a", "echo", agent.Text("x"), 0)
	if e := agent.AsError(err); e.Limit != agent.LimitQuota || e.After < time.Second {
		t.Errorf("the client's error: %+v", e)
	}
	uses, err := r.c.QuotaUses(t.Context())
	if err != nil || len(uses) != 2 || uses[0].Agent != "" || uses[1].Agent != "a" || uses[1].Quota.BytesPerDay != 1 || uses[1].Bytes < 2 {
		t.Errorf("uses: %+v, %v", uses, err)
	}
}

func TestRetryAfterIsInSeconds(t *testing.T) {
	for after, want := range map[time.Duration]string{
		0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90", 24 * time.Hour: "86400",
	} {
		if got := (problem{after: after}).retryAfter(); got != want {
			t.Errorf("%s: %s", after, got)
		}
	}
}
