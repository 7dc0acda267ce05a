package api

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/host"
)

func TestPlugins(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	up := client.Upload{Name: "greeter", Version: "1.0.0", Filename: "greeter.ts", Body: []byte("export function hello() {}")}
	var stages []client.Progress
	p, err := r.c.PutPlugin(ctx, up, func(p client.Progress) { stages = append(stages, p) })
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "greeter" || p.Version != "1.0.0" || p.Kind != agent.Script || p.Size != int64(len(up.Body)) {
		t.Errorf("plugin = %+v", p)
	}
	if len(stages) != 1 || stages[0].Stage != "compile" || stages[0].Done != p.Size {
		t.Errorf("progress = %+v", stages)
	}
	for _, ref := range []string{"greeter", "greeter@1.0.0", string(p.Digest)} {
		got, err := r.c.Plugin(ctx, ref)
		if d := cmp.Diff(p, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", ref, err, d)
		}
	}
	name, content, err := r.c.PluginContent(ctx, "greeter")
	if err != nil || name != "greeter.ts" || !bytes.Equal(content, up.Body) {
		t.Errorf("content = %q %q %v", name, content, err)
	}
	checked, err := r.c.CheckPlugin(ctx, up, nil)
	if err != nil || !checked.Fetch || len(checked.Exports) == 0 {
		t.Errorf("checked = %+v %v", checked, err)
	}
	up.Body = []byte("export const other = 1")
	_, err = r.c.PutPlugin(ctx, up, nil)
	wantKind(t, err, agent.Exists)
	up.Body = []byte("let x\n  syntax error!")
	_, err = r.c.CheckPlugin(ctx, up, nil)
	if e := wantKind(t, err, agent.Invalid); e.Pos != (agent.Pos{File: "greeter.ts", Line: 2, Column: 3}) {
		t.Errorf("position = %v", e.Pos)
	}
	list, err := r.c.Plugins(ctx, agent.Page{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("plugins = %+v %v", list, err)
	}
}

func TestPluginPlainForms(t *testing.T) {
	r := start(t, nil)
	res := r.do("POST", "/v1/plugins?name=a&version=1", "export {}", "Content-Type", "text/javascript")
	var p agent.Plugin
	if err := json.Unmarshal(res.body, &p); err != nil || res.StatusCode != 201 || p.Main != "main.js" {
		t.Errorf("%s %+v %v", res.Status, p, err)
	}
	if res = r.do("POST", "/v1/plugins?name=a&check=true", "export {}"); res.StatusCode != 200 {
		t.Errorf("check: %s %s", res.Status, res.body)
	}
	if res = r.do("POST", "/v1/plugins?name=a", ""); res.StatusCode != 400 {
		t.Errorf("empty: %s %s", res.Status, res.body)
	}
	if res = r.do("POST", "/v1/plugins?name=a", "x", "Accept", "image/png"); res.StatusCode != 406 {
		t.Errorf("image: %s %s", res.Status, res.body)
	}
}

func form(t *testing.T, files ...string) (contentType, body string) {
	t.Helper()
	var b strings.Builder
	w := multipart.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		part, err := w.CreateFormFile("file", files[i])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(part, files[i+1])
	}
	w.Close()
	return w.FormDataContentType(), b.String()
}

func TestPluginForm(t *testing.T) {
	r := start(t, nil)
	ct, body := form(t, "main.ts", "import './lib/a'", "lib/a.ts", "export {}")
	res := r.do("POST", "/v1/plugins?name=several", body, "Content-Type", ct)
	if res.StatusCode != 201 {
		t.Fatalf("%s %s", res.Status, res.body)
	}
	_, content, err := r.c.PluginContent(context.Background(), "several")
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil || len(z.File) != 2 || z.File[0].Name != "lib/a.ts" {
		t.Fatalf("%v %v", z, err)
	}

	ct, body = form(t, "only.js", "export {}")
	if res = r.do("POST", "/v1/plugins?name=one", body, "Content-Type", ct); res.StatusCode != 201 || !strings.Contains(string(res.body), `"only.js"`) {
		t.Errorf("one: %s %s", res.Status, res.body)
	}
	ct, body = form(t, "a.js", "1", "a.js", "2")
	if res = r.do("POST", "/v1/plugins?name=two", body, "Content-Type", ct); res.StatusCode != 400 {
		t.Errorf("twice: %s %s", res.Status, res.body)
	}
	for _, body := range []string{"junk", body[:40], "--x--"} {
		if res = r.do("POST", "/v1/plugins?name=bad", body, "Content-Type", ct); res.StatusCode != 400 {
			t.Errorf("%q: %s %s", body, res.Status, res.body)
		}
	}
}

func TestAgents(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	a := r.agent("one")
	if a.ID == "" || a.Plugin != "code" {
		t.Errorf("agent = %+v", a)
	}
	got, err := r.c.Agent(ctx, "one")
	if d := cmp.Diff(a, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	text, grants := "says hello", agent.AgentGrants("two")
	got, err = r.c.UpdateAgent(ctx, "one", client.AgentPatch{Description: &text, Grants: &grants})
	if err != nil || got.Description != text || !cmp.Equal(got.Grants, grants) || got.Plugin != "code" {
		t.Errorf("%+v %v", got, err)
	}
	for i := range 5 {
		if _, err := r.c.CreateAgent(ctx, client.NewAgent{Name: fmt.Sprintf("n%d", i), Plugin: "code@1"}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for a, err := range client.All(ctx, func(ctx context.Context, p agent.Page) (client.List[agent.Agent], error) {
		p.Limit = 4
		return r.c.Agents(ctx, p)
	}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, a.Name)
	}
	if d := cmp.Diff([]string{"n4", "n3", "n2", "n1", "n0", "one"}, names); d != "" {
		t.Error(d)
	}
	wantKind(t, r.c.DeleteAgents(ctx, "n0", "nobody"), agent.NotFound)
	if err := r.c.DeleteAgents(ctx, "n0", "n1"); err != nil {
		t.Fatal(err)
	}
	if res := r.do("DELETE", "/v1/agents/n2", ""); res.StatusCode != 204 || len(res.body) != 0 {
		t.Errorf("%s %s", res.Status, res.body)
	}
	_, err = r.c.Agent(ctx, "n2")
	wantKind(t, err, agent.NotFound)
	_, err = r.c.CreateAgent(ctx, client.NewAgent{Name: "one", Plugin: "code"})
	wantKind(t, err, agent.Exists)
}

func TestCall(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	for _, in := range []agent.Payload{agent.JSON([]byte(`{"a":1}`)), agent.Text("grüezi"), {Type: "image/png", Body: []byte{0, 255, 1}}, {Type: agent.TypeBytes, Body: []byte{}}} {
		out, usage, err := r.c.Call(ctx, "a", "echo", in, 0)
		if d := cmp.Diff(in, out); d != "" || err != nil {
			t.Errorf("%v\n%s", err, d)
		}
		if usage.Fuel != 1 || usage.Memory != 1<<16 {
			t.Errorf("usage = %+v", usage)
		}
	}
	_, _, err := r.c.Call(ctx, "a", "slow", agent.Payload{}, 5*time.Millisecond)
	if e := wantKind(t, err, agent.Exhausted); e.Limit != agent.LimitWall {
		t.Errorf("limit = %v", e.Limit)
	}
	if res := r.do("POST", "/v1/agents/a/call/echo", "x", "Skep-Timeout", "soon"); res.StatusCode != 400 || !strings.Contains(string(res.body), "Skep-Timeout") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if res := r.do("POST", "/v1/agents/a/call/split", "x"); res.StatusCode != 200 || res.Header.Get("X-Evil") != "" || string(res.body) != "x" {
		t.Errorf("%s %v %s", res.Status, res.Header, res.body)
	}
	_, _, err = r.c.Call(ctx, "a", "nothing", agent.Payload{}, 0)
	wantKind(t, err, agent.NotFound)
}

func TestFetch(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	res := r.do("PUT", "/v1/agents/a/http/x%2Fy/z?q=1&q=%20", "body", "X-Mine", "1", "Connection", "X-Hop", "X-Hop", "1",
		"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	var got host.Request
	if err := json.Unmarshal(res.body, &got); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s %s %v", res.Status, res.body, err)
	}
	if got.Method != "PUT" || got.URL != r.url+"/x%2Fy/z?q=1&q=%20" || string(got.Body) != "body" {
		t.Errorf("request = %+v", got)
	}
	seen := map[string]string{}
	for _, h := range got.Header {
		seen[h[0]] = h[1]
	}
	for _, gone := range []string{"Authorization", "Connection", "X-Hop"} {
		if v, found := seen[gone]; found {
			t.Errorf("%s: %s reached the agent", gone, v)
		}
	}
	if seen["Traceparent"] == "" || seen["Traceparent"] != res.Header.Get("Traceparent") {
		t.Errorf("traceparent = %q, answered %q", seen["Traceparent"], res.Header.Get("Traceparent"))
	}
	if seen["X-Mine"] != "1" || seen["Content-Type"] != "application/json" {
		t.Errorf("header = %v", seen)
	}

	req, _ := http.NewRequest("GET", "/teapot", nil)
	tea, err := r.c.Fetch("a", req)
	if err != nil {
		t.Fatal(err)
	}
	tea.Body.Close()
	if tea.StatusCode != 418 || tea.Header.Get("Content-Type") != "text/x-tea" || tea.Header.Get("X-Evil")+tea.Header.Get("X-Split") != "" ||
		len(tea.Header["Set-Cookie"]) != 2 {
		t.Errorf("%s %v", tea.Status, tea.Header)
	}
	for _, m := range []string{"GET", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD"} {
		if res := r.do(m, "/v1/agents/a/http/", ""); res.StatusCode != 200 {
			t.Errorf("%s: %s %s", m, res.Status, res.body)
		}
	}
	if res := r.do("GET", "/v1/agents/a/http/nonsense", ""); res.StatusCode != 502 {
		t.Errorf("nonsense: %s %s", res.Status, res.body)
	}
	if res := r.do("GET", "/v1/agents/a/http/", "", "Authorization", ""); res.StatusCode != 401 {
		t.Errorf("no token: %s", res.Status)
	}
}

func TestSessions(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	s := r.session("a")
	if s.Key != "default" || s.Agent != "a" {
		t.Errorf("session = %+v", s)
	}
	run, err := r.c.Send(ctx, s.ID, agent.Message{Content: []byte(`"hi"`)})
	if err != nil || run.Status != agent.Queued || run.Function != "onMessage" {
		t.Fatalf("%+v %v", run, err)
	}
	if run = r.wait(run.ID); run.Status != agent.Completed || string(run.Output.Body) != `"hi"` {
		t.Errorf("run = %+v", run)
	}
	list, err := r.c.Sessions(ctx, "a", agent.Page{})
	if err != nil || len(list.Items) != 1 || list.Items[0].LastSeq < 4 {
		t.Errorf("sessions = %+v %v", list, err)
	}
	got, err := r.c.Session(ctx, s.ID)
	if err != nil || got.ID != s.ID {
		t.Errorf("session = %+v %v", got, err)
	}
	_, err = r.c.CreateSession(ctx, client.NewSession{Agent: "nobody"})
	wantKind(t, err, agent.NotFound)
}

func TestRuns(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.agent("a")
	run, err := r.c.StartRun(ctx, client.NewRun{Agent: "a", Function: "echo", Input: []byte(`[1,2]`)})
	if err != nil || run.Status != agent.Queued {
		t.Fatalf("%+v %v", run, err)
	}
	if run = r.wait(run.ID); run.Status != agent.Completed || string(run.Output.Body) != `[1,2]` {
		t.Errorf("run = %+v", run)
	}
	var waiting []agent.RunID
	for range 3 {
		run, err := r.c.StartRun(ctx, client.NewRun{Agent: "a", Function: "slow"})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, run.ID)
	}
	ended, err := r.c.CancelRuns(ctx, waiting[0], waiting[1])
	if err != nil || len(ended) != 2 || ended[0].Status != agent.RunCancelled {
		t.Errorf("%+v %v", ended, err)
	}
	res := r.do("POST", "/v1/runs/"+string(waiting[2])+"/cancel", "")
	if res.StatusCode != 200 || !strings.Contains(string(res.body), `"cancelled"`) {
		t.Errorf("%s %s", res.Status, res.body)
	}
	list, err := r.c.Runs(ctx, client.RunFilter{Agent: "a", Status: agent.RunCancelled}, agent.Page{})
	if err != nil || len(list.Items) != 3 {
		t.Errorf("%+v %v", list, err)
	}
	if res := r.do("GET", "/v1/runs?status=lost", ""); res.StatusCode != 400 || !strings.Contains(string(res.body), "queued, running") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	_, err = r.c.CancelRuns(ctx, "nobody")
	wantKind(t, err, agent.NotFound)
}

func TestCode(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	out, err := r.c.RunCode(ctx, client.Code{Code: "x", Function: "echo", Input: []byte(`{"n":1}`), Files: map[string]string{"lib.ts": ""}})
	if err != nil || string(out.Output.Body) != `{"n":1}` || out.Logs == nil {
		t.Errorf("%+v %v", out, err)
	}
	out, err = r.c.RunCode(ctx, client.Code{Code: "x", Function: "log", Language: "js", Input: []byte(`1`)})
	if err != nil || len(out.Logs) != 1 || out.Logs[0].Message != "1" {
		t.Errorf("%+v %v", out, err)
	}
	_, err = r.c.RunCode(ctx, client.Code{Code: "a\nsyntax error!"})
	if e := wantKind(t, err, agent.Invalid); e.Pos.Line != 2 {
		t.Errorf("%+v", e)
	}
	_, err = r.c.RunCode(ctx, client.Code{Code: "x", Language: "cobol"})
	wantKind(t, err, agent.Invalid)
	_, err = r.c.RunCode(ctx, client.Code{Code: "x", Files: map[string]string{"main.ts": ""}})
	wantKind(t, err, agent.Invalid)
}

func TestOperations(t *testing.T) {
	r := start(t, &Options{Version: "1.2.3"})
	for _, target := range []string{"/healthz", "/readyz", "/v1/openapi.json"} {
		if res := r.do("GET", target, "", "Authorization", ""); res.StatusCode != 200 {
			t.Errorf("%s: %s %s", target, res.Status, res.body)
		}
	}
	if res := r.do("GET", "/metrics", "", "Authorization", ""); res.StatusCode != 401 {
		t.Errorf("metrics without a token: %s", res.Status)
	}
	res := r.do("GET", "/metrics", "")
	for _, want := range []string{
		`skep_http_requests_total{operation="health",status="2xx"} 1`, `skep_http_requests_total{operation="metrics",status="4xx"} 1`,
		`skep_http_request_seconds_count{operation="ready"} 1`, `version="1.2.3"} 1`, "# TYPE skep_cells gauge",
	} {
		if !strings.Contains(string(res.body), want) {
			t.Errorf("no %s in\n%s", want, res.body)
		}
	}
	if err := r.c.Ready(context.Background()); err != nil {
		t.Error(err)
	}
}
