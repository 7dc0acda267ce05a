package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/runtimetest"
)

// durableFuncs are what the agents of these tests do beside what every agent's code has.
func durableFuncs() map[string]runtimetest.Func {
	ask := func(call string) runtimetest.Func {
		return func(ctx context.Context, c host.Call) (agent.Payload, error) {
			out, err := c.Calls(ctx, call, c.Input.Body)
			return agent.JSON(out), err
		}
	}
	return map[string]runtimetest.Func{
		"who": ask("self"), "set": ask("storage.set"), "schedule": ask("alarm.set"), "await": ask("run.wait"),
		"emit": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return agent.JSON([]byte("true")), runtimetest.Emit(ctx, c, "said", json.RawMessage(c.Input.Body))
		},
	}
}

// oddKeys are keys of instances, of their storage and names of alarms. Each survives its way through a URL.
var oddKeys = []string{"ada", "..", ".", "a/b", "a//b/../c", "/", "a b+c%2F", "é", "日/本", "delete", "call", "?x=1#y", "\n", "user:1@example.com", "%"}

// unchecked is a client that the checker of the document, which does not know escaped slashes, does not look at.
func (r *rig) unchecked() *client.Client { return client.New(r.url, r.token, nil) }

func TestInstances(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	c := r.unchecked()
	for _, key := range oddKeys {
		out, usage, err := c.CallInstance(ctx, "a", key, "who", agent.Payload{Type: agent.TypeJSON}, time.Second)
		var self struct{ Agent, Key string }
		if err != nil || json.Unmarshal(out.Body, &self) != nil || self.Agent != "a" || self.Key != key || usage.Wall <= 0 {
			t.Errorf("%q: %s %+v %v", key, out.Body, usage, err)
		}
		i, err := c.Instance(ctx, "a", key)
		if err != nil || i.Key != key || i.Agent != "a" || i.Version == "" || i.Created.IsZero() || i.Commits == 0 {
			t.Errorf("%q: %+v %v", key, i, err)
		}
		var export bytes.Buffer
		if err := c.ExportInstance(ctx, "a", key, &export); err != nil || !strings.HasPrefix(export.String(), `{"kind":"instance"`) {
			t.Errorf("%q: %s %v", key, export.String(), err)
		}
	}
	for range 2 { // under a name a call is made once
		if _, _, err := r.c.CallInstanceOnce(ctx, "a", "ada", "emit", "click-1", agent.JSON([]byte("1")), 0); err != nil {
			t.Error(err)
		}
	}
	if res := r.do("GET", "/v1/agents/a/instances/ada/events", ""); bytes.Count(res.body, []byte(`"said"`)) != 1 {
		t.Errorf("%s", res.body)
	}
	_, _, err := r.c.CallInstanceOnce(ctx, "a", "ada", "emit", "click-1", agent.JSON([]byte("2")), 0)
	wantKind(t, err, agent.Conflict)
	var listed []string
	for i, err := range client.All(ctx, func(ctx context.Context, p agent.Page) (client.List[agent.Instance], error) {
		p.Limit = 4
		return r.c.Instances(ctx, "a", p)
	}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, i.Key)
	}
	want := slices.Sorted(slices.Values(oddKeys))
	if d := cmp.Diff(want, listed); d != "" {
		t.Error(d)
	}
	if res := r.do("DELETE", "/v1/agents/a/instances/%C3%A9", ""); res.StatusCode != 204 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	_, err = c.Instance(ctx, "a", "é")
	wantKind(t, err, agent.NotFound)
	want = slices.DeleteFunc(want, func(s string) bool { return s == "é" || s == "ada" })
	wantKind(t, r.c.DeleteInstances(ctx, "a", "nobody"), agent.NotFound)
	if err := r.c.DeleteInstances(ctx, "a", want...); err != nil {
		t.Fatal(err)
	}
	l, err := r.c.Instances(ctx, "a", agent.Page{})
	if err != nil || len(l.Items) != 1 || l.Items[0].Key != "ada" {
		t.Errorf("%+v %v", l, err)
	}
	if got := r.changes("a"); !slices.Contains(got, `instance.delete a "a/b"`) || len(got) != len(want)+2 { // and agent.create
		t.Errorf("%q", got)
	}
}

// changes lists what the audit log has of an agent.
func (r *rig) changes(name string) (out []string) {
	r.t.Helper()
	for e, err := range r.c.Events(context.Background(), client.AuditLog(client.AuditFilter{Agent: name}), 0, false) {
		if err != nil {
			r.t.Fatal(err)
		}
		var c agent.Change
		if err := json.Unmarshal(e.Data, &c); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(c.Action+" "+c.Name+" "+c.Detail))
	}
	return out
}

func TestInstanceRefuses(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	for _, tt := range []struct {
		method, target, body string
		status               int
		want                 string
	}{
		{"POST", "/v1/agents/a/instances/k/call/onStart", "1", 404, "onStart"},
		{"POST", "/v1/agents/a/instances/k/call/skep:connect", "1", 404, "skep:connect"},
		{"POST", "/v1/agents/a/instances/k/call/nothing", "1", 404, "nothing"},
		{"POST", "/v1/agents/nobody/instances/k/call/who", "1", 404, "nobody"},
		{"POST", "/v1/agents/a/instances/" + strings.Repeat("k", 2000) + "/call/who", "", 400, "key"},
		{"POST", "/v1/agents/a/instances/%ff/call/who", "", 400, "UTF-8"},
		{"GET", "/v1/agents/a/instances/k", "", 404, "no instance"},
		{"GET", "/v1/agents/a/instances/k/export", "", 404, "no instance"},
		{"GET", "/v1/agents/a/instances/k/events", "", 404, "no instance"},
		{"GET", "/v1/agents/a/instances/k/alarms", "", 404, "no instance"},
		{"GET", "/v1/agents/a/instances/k/storage", "", 404, "no instance"},
		{"PUT", "/v1/agents/a/instances/k/storage/x", "1", 404, "no instance"},
		{"GET", "/v1/agents/nobody/instances", "", 404, "nobody"},
		{"GET", "/v1/agents/a/instances?limit=1001", "", 400, "1000"},
		{"POST", "/v1/agents/a/instances/delete", `{"keys":[]}`, 400, `\"keys\" is missing`},
		{"POST", "/v1/agents/a/instances/ok/call/throw", "1", 502, "boom"},
	} {
		res := r.do(tt.method, tt.target, tt.body)
		if res.StatusCode != tt.status || !strings.Contains(string(res.body), tt.want) {
			t.Errorf("%s %.60s: %s %s, want %d with %s", tt.method, tt.target, res.Status, res.body, tt.status, tt.want)
		}
	}
	l, err := r.c.Instances(context.Background(), "a", agent.Page{})
	if err != nil || len(l.Items) > 1 {
		t.Errorf("calls that were refused made instances: %+v %v", l, err)
	}
}

// A line that is full refuses the next call, and says when to come again.
func TestInstanceLine(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	const most = 256 // that wait, beside the one that has the turn
	var all sync.WaitGroup
	var mu sync.Mutex
	var refused []error
	for range most + 20 {
		all.Go(func() {
			_, _, err := r.c.CallInstance(ctx, "a", "k", "gate", agent.Text(""), 0)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, err)
				if len(refused) == 19 {
					close(r.gate)
				}
			}
		})
	}
	all.Wait()
	if len(refused) != 19 {
		t.Fatalf("%d calls were refused, want 19", len(refused))
	}
	for _, err := range refused {
		e := wantKind(t, err, agent.Exhausted)
		if e.Limit != agent.LimitConcurrency || e.After <= 0 || e.Hint == "" {
			t.Errorf("%+v", e)
		}
	}
	figures := string(r.do("GET", "/metrics", "").body)
	for _, want := range []string{"skep_turns_refused_total 19\n", "skep_turns_waiting 0\n", fmt.Sprintf("skep_turns_total %d\n", most+1), "skep_instances 1\n", "skep_commits_total 1\n"} {
		if !strings.Contains(figures, want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
}

func TestStorage(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	c := r.unchecked()
	if _, _, err := c.CallInstance(ctx, "a", "a/b", "set", agent.JSON([]byte(`{"key":"n","json":1}`)), 0); err != nil {
		t.Fatal(err)
	}
	at := client.Storage("a", "a/b")
	for _, k := range oddKeys {
		v, err := c.SetState(ctx, at, k, agent.Text("v "+k), nil)
		got, err2 := c.State(ctx, at, k)
		if d := cmp.Diff(agent.StateEntry{Key: k, Version: v, Value: agent.Text("v " + k)}, got); errors.Join(err, err2) != nil || d != "" {
			t.Errorf("%q: %v %v\n%s", k, err, err2, d)
		}
	}
	var listed []string
	for q := (agent.StateRange{Limit: 4}); ; {
		page, err := c.ListState(ctx, at, q)
		if err != nil || page.Size.Bytes == 0 {
			t.Fatal(page, err)
		}
		for _, e := range page.Items {
			listed = append(listed, e.Key)
		}
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	if d := cmp.Diff(slices.Sorted(slices.Values(append(oddKeys, "n"))), listed); d != "" {
		t.Error(d)
	}
	zero := int64(0)
	_, err := c.SetState(ctx, at, "n", agent.Text("x"), &zero)
	wantKind(t, err, agent.Conflict)
	for range 2 {
		if err := c.DeleteState(ctx, at, "日/本", nil); err != nil {
			t.Error(err)
		}
	}
	_, err = c.State(ctx, at, "日/本")
	wantKind(t, err, agent.NotFound)
	_, err = c.SetState(ctx, at, "\x00code", agent.Text("mine"), nil) // what Skep keeps of the instance is no part of its storage
	wantKind(t, err, agent.Invalid)
	if got := r.changes("a"); !slices.Contains(got, `storage.set a "n" of instance "a/b"`) && !slices.Contains(got, `storage.set a "ada" of instance "a/b"`) {
		t.Errorf("%q", got)
	}
}

func TestAlarms(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	c := r.unchecked()
	at := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond).UTC()
	for i, name := range oddKeys {
		in := fmt.Appendf(nil, `{"name":%q,"method":"echo","at":%d,"payload":{"n":%d}}`, name, at.UnixMilli(), i)
		if _, _, err := c.CallInstance(ctx, "a", "bot/1", "schedule", agent.JSON(in), 0); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for a, err := range client.All(ctx, func(ctx context.Context, p agent.Page) (client.List[agent.Alarm], error) {
		p.Limit = 4
		return c.Alarms(ctx, "a", "bot/1", p)
	}) {
		if err != nil {
			t.Fatal(err)
		}
		if a.Method != "echo" || !a.At.Equal(at) || a.Dead || !bytes.Contains(a.Payload, []byte(`"n"`)) {
			t.Errorf("%+v", a)
		}
		names = append(names, a.Name)
	}
	if d := cmp.Diff(slices.Sorted(slices.Values(oddKeys)), names); d != "" {
		t.Error(d)
	}
	for _, name := range oddKeys[1:] {
		if err := c.DeleteAlarm(ctx, "a", "bot/1", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	wantKind(t, c.DeleteAlarm(ctx, "a", "bot/1", "a/b"), agent.NotFound)
	_, err := c.RetryAlarm(ctx, "a", "bot/1", "ada") // it did not fail
	wantKind(t, err, agent.NotFound)

	// One that fails at once, for the last time, is a dead letter; it can be tried again.
	in := []byte(`{"name":"bad","method":"throw","delay":1,"retry":{"attempts":1}}`)
	if _, _, err := c.CallInstance(ctx, "a", "bot/1", "schedule", agent.JSON(in), 0); err != nil {
		t.Fatal(err)
	}
	failed := func(after int64) int64 {
		for e, err := range c.Events(ctx, client.InstanceLog("a", "bot/1"), after, true) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == agent.EventAlarmFailed {
				return e.Seq
			}
		}
		return 0
	}
	first := failed(0)
	for page, key := range map[agent.Page]string{{}: "bot/1", {Limit: 1}: "bot/1", {After: "bot/1"}: ""} {
		l, failed := c.DeadLetters(ctx, "a", page)
		if failed != nil || l.Next != "" || (len(l.Items) == 1) != (key != "") || key != "" && (l.Items[0].Key != key || l.Items[0].Name != "bad" || !l.Items[0].Dead) {
			t.Errorf("%+v: %+v %v", page, l, failed)
		}
	}
	l, err := c.Alarms(ctx, "a", "bot/1", agent.Page{})
	if err != nil || len(l.Items) != 2 || !l.Items[1].Dead || l.Items[1].Name != "bad" || !strings.Contains(l.Items[1].Error, "boom") {
		t.Fatalf("%+v %v", l, err)
	}
	again, err := c.RetryAlarm(ctx, "a", "bot/1", "bad")
	if err != nil || again.Dead || again.Name != "bad" {
		t.Errorf("%+v %v", again, err)
	}
	if failed(first) == first {
		t.Error("it was not tried again")
	}
	if err := c.DeleteAlarm(ctx, "a", "bot/1", "bad"); err != nil {
		t.Error(err)
	}
	if got := r.changes("a"); !slices.Contains(got, `alarm.retry a "bad" of instance "bot/1"`) || !slices.Contains(got, `alarm.delete a "bad" of instance "bot/1"`) {
		t.Errorf("%q", got)
	}
}

func TestInstanceEvents(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	say := func(n int) {
		if _, _, err := r.c.CallInstance(ctx, "a", "k", "emit", agent.JSON(fmt.Appendf(nil, `%d`, n)), 0); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		say(n)
	}
	const target = "/v1/agents/a/instances/k/events"
	var got []string
	for after := "0"; after != ""; {
		var page struct {
			Items []agent.Event `json:"items"`
			Next  string        `json:"next"`
		}
		if err := json.Unmarshal(r.do("GET", target+"?limit=4&after="+after, "").body, &page); err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Items {
			got = append(got, fmt.Sprintf("%d %s %s%s", e.Seq, e.Kind, e.Name, e.Data))
		}
		after = page.Next
	}
	want := []string{"1 instance.created ", "2 emit said0", "3 emit said1", "4 emit said2", "5 emit said3", "6 emit said4"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	res := r.do("GET", target+"?follow=false", "", "Accept", typeSSE, "Last-Event-ID", "5")
	if !strings.HasPrefix(string(res.body), "retry: 1000\n\nid: 6\nevent: said\ndata: {") || strings.Count(string(res.body), "id: ") != 1 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	follow, stop := context.WithCancel(ctx)
	defer stop()
	said := 5
	for e, err := range r.c.Events(follow, client.InstanceLog("a", "k"), 5, true) {
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Data) != fmt.Sprint(said-1) {
			t.Errorf("event %d has %s, want %d", e.Seq, e.Data, said-1)
		}
		if said++; said == 8 {
			break
		}
		say(said - 1)
	}
	if res := r.do("GET", target+"?after=99", "", "Accept", typeNDJSON); res.StatusCode != http.StatusBadRequest {
		t.Errorf("%s %s", res.Status, res.body)
	}
}
