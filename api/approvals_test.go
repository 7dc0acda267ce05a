package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/tools"
)

// notes is a server of tools in memory: note.list and note.read look, note.write and note.delete change.
type notes struct {
	mu    sync.Mutex
	notes map[string]string
	full  bool // write fails
	fresh int  // version of the tools' definitions
}

func (n *notes) open(context.Context, agent.ToolServer, func()) (tools.Source, error) { return n, nil }

func (n *notes) Tools(context.Context) ([]tools.Offer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []tools.Offer
	for _, method := range []string{"list", "read", "write", "delete"} {
		out = append(out, tools.Offer{Tool: agent.Tool{
			Method: method, Description: "It does what it is called.", Input: json.RawMessage(`{"type":"object"}`), Digest: agent.DigestOf([]byte{byte(n.fresh), method[0]}),
		}})
	}
	return out, nil
}

func (n *notes) Call(_ context.Context, method string, args json.RawMessage, _ *tools.CallOptions) (agent.ToolResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var a struct{ Path, Text string }
	_ = json.Unmarshal(args, &a)
	var v any
	switch method {
	case "list":
		names := []string{}
		for name := range n.notes {
			names = append(names, name)
		}
		v = names
	case "read":
		v = n.notes[a.Path]
	case "write":
		if n.full && strings.HasSuffix(a.Path, "2") {
			return agent.ToolResult{}, agent.Errorf(agent.Failed, "there is no room for %s", a.Path)
		}
		n.notes[a.Path] = a.Text
	case "delete":
		delete(n.notes, a.Path)
	}
	b, err := json.Marshal(v)
	return agent.ToolResult{Value: b}, err
}

func (n *notes) has(name string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.notes[name]
	return v, ok
}

func (n *notes) Status() agent.ToolStatus { return agent.ToolStatus{State: agent.ServerReady} }
func (n *notes) Close() error             { return nil }

// startTools is a server with real cells and with the tools of notes in the default app, and in app b.
func startTools(t testing.TB, o Options) (*rig, *notes) {
	t.Helper()
	r := &rig{t: t, log: &logBuffer{}}
	ctx, dir := context.Background(), t.TempDir()
	db := memkv.New()
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "owner.token")
	if _, err := EnsureOwnerToken(ctx, st, file); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(file)
	r.token = strings.TrimSpace(string(b))
	cells, err := host.New(ctx, &host.Options{CacheDir: filepath.Join(os.TempDir(), "skep-test-cache")})
	if err != nil {
		t.Fatal(err)
	}
	n := &notes{notes: map[string]string{"tea": "TODO: drink", "cake": "eaten"}}
	catalogue := tools.New(st, &tools.Options{Openers: tools.Openers{agent.MCPStdio: n.open}})
	rt := runtime.New(st, cells, &runtime.Options{Tools: catalogue})
	o.Tools = catalogue
	o.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.s = New(rt, st, &o)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + ln.Addr().String()
	r.c = client.New(r.url, r.token, &client.Options{HTTP: &http.Client{Transport: checked(t, r.s.doc)}})
	run, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	both.Go(func() { _ = r.s.Run(run, ln) })
	both.Go(func() { _ = rt.Run(run) })
	t.Cleanup(func() {
		cancel()
		both.Wait()
		_ = catalogue.Close()
		_ = cells.Close(ctx)
		_ = st.Close()
		_ = db.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	r.app("b")
	for _, app := range []agent.App{agent.DefaultApp, "b"} {
		if _, err := catalogue.Add(ctx, agent.ToolServer{App: app, Name: "note", Kind: agent.MCPStdio, Command: []string{"note"}, Effects: map[string]agent.Effect{
			"list": agent.Read, "read": agent.Read, "write": agent.Modify, "delete": agent.ModifyExecute,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	return r, n
}

// code starts a script that may call all tools.
func (r *rig) code(cl *client.Client, text string) client.CodeResult {
	r.t.Helper()
	wait := 0
	out, err := cl.RunCode(context.Background(), client.Code{Code: text, Tools: []string{"*"}, Wait: &wait})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// asks waits until so many questions of an app are open.
func (r *rig) asks(cl *client.Client, n int) []agent.Approval {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		l, err := cl.Approvals(context.Background(), client.ApprovalFilter{}, agent.Page{})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(l.Items) == n {
			return l.Items
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d questions are open, want %d", len(l.Items), n)
		}
		<-time.After(10 * time.Millisecond)
	}
}

const writes = `await Promise.allSettled([tools.note.write({ path: "a", text: "<b>\u202e" }), tools.note.write({ path: "b", text: "x" })]).then((all) => all.map((r) => r.status + (r.reason?.message ?? "")))`

func TestApprovals(t *testing.T) {
	r, n := startTools(t, Options{})
	ctx := context.Background()
	run := r.code(r.c, "export default async () => "+writes)
	asks := r.asks(r.c, 2)
	if a := asks[0]; a.Run != run.Run || a.Agent != runtime.CodeAgent || a.Calls[0].Tool != "note.write" || a.Calls[0].Decision.Effect != agent.Modify || agent.DigestOf(a.Calls[0].Args) != a.Calls[0].ArgsDigest {
		t.Errorf("%+v", a)
	}
	for f, want := range map[client.ApprovalFilter]int{{Run: run.Run}: 2, {Run: "01X"}: 0, {Agent: "code"}: 2, {Agent: "other"}: 0} {
		if l, err := r.c.Approvals(ctx, f, agent.Page{}); err != nil || len(l.Items) != want {
			t.Errorf("%+v: %d %v", f, len(l.Items), err)
		}
	}
	if got, err := r.c.Approval(ctx, asks[1].ID); err != nil || got.ID != asks[1].ID {
		t.Errorf("%+v %v", got, err)
	}
	_, err := r.in("b").Approval(ctx, asks[0].ID)
	wantKind(t, err, agent.NotFound)
	_, err = r.in("b").AnswerApprovals(ctx, []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true})
	wantKind(t, err, agent.NotFound)
	if res := r.do("POST", "/v1/approvals/"+string(asks[0].ID)+"/answer", `{"reason":"x"}`); res.problem(t).Kind != agent.Invalid {
		t.Errorf("an answer that says neither: %s", res.body)
	}
	dev, _ := r.as(agent.Developer, "")
	_, err = dev.AnswerApprovals(ctx, []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true, Scope: agent.ScopePattern, Pattern: "note.*", Count: 1, For: time.Minute})
	wantKind(t, err, agent.Denied)

	runs, err := dev.AnswerApprovals(ctx, []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true})
	if err != nil || len(runs) != 1 || runs[0].ID != run.Run {
		t.Fatalf("%+v %v", runs, err)
	}
	if res := r.do("POST", "/v1/approvals/"+string(asks[1].ID)+"/answer", `{"allow":false,"reason":"not today"}`); res.StatusCode != 200 {
		t.Fatalf("%s %s", res.Status, res.body)
	}
	done := r.wait(run.Run)
	if done.Status != agent.Completed || !strings.Contains(string(done.Output.Body), `"fulfilled","rejected`) || !strings.Contains(string(done.Output.Body), "not today") {
		t.Errorf("%s %s %+v", done.Status, done.Output, done.Error)
	}
	if _, there := n.has("b"); there {
		t.Error("a call that was refused was made")
	}
	_, err = r.c.AnswerApprovals(ctx, []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true})
	wantKind(t, err, agent.Conflict)
	var audited []string
	for e, err := range r.c.Events(ctx, client.AuditLog(client.AuditFilter{Kind: "changed"}), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if c := decodeChange(t, e); c.Action == "approval.answer" {
			audited = append(audited, c.Name+" "+c.Detail)
		}
	}
	if len(audited) != 2 || !strings.Contains(audited[0], "allowed once by ") || !strings.Contains(audited[1], `refused ("not today") by `) {
		t.Errorf("%q", audited)
	}
}

func TestApprovalEvents(t *testing.T) {
	r, _ := startTools(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r.code(r.c, "export default async () => "+writes)
	asks := r.asks(r.c, 2)
	var got []string
	for e, err := range r.c.Events(ctx, client.ApprovalLog(client.ApprovalFilter{}), 0, true) {
		if err != nil {
			t.Fatal(err, got)
		}
		var d struct {
			ID    agent.ApprovalID
			Allow bool
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Kind.String()+" "+string(d.ID))
		if len(got) == 2 {
			if _, err := r.c.AnswerApprovals(ctx, []agent.ApprovalID{asks[0].ID, asks[1].ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
				t.Fatal(err)
			}
		} else if len(got) > 2 && !d.Allow {
			t.Errorf("%s", e.Data)
		}
		if len(got) == 4 {
			break
		}
	}
	for i, want := range []string{"requested " + string(asks[0].ID), "requested " + string(asks[1].ID), "answered " + string(asks[0].ID), "answered " + string(asks[1].ID)} {
		if !strings.HasPrefix(got[i], "approval."+want) {
			t.Errorf("%q", got)
		}
	}
	req, _ := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/approvals/events", nil)
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Accept", typeSSE)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if ct := res.Header.Get("Content-Type"); ct != typeSSE {
		t.Error(ct)
	}
}

// TestApprovalArgumentsInEvents compares the digest that an event says with the bytes that it has, in each form in which events are read.
func TestApprovalArgumentsInEvents(t *testing.T) {
	r, _ := startTools(t, Options{})
	run := r.code(r.c, `await tools.note.write({ path: "a", text: "<b>&amp;\u2028\u202e</b>" })`)
	ask := r.asks(r.c, 1)[0]
	if _, err := r.c.AnswerApprovals(context.Background(), []agent.ApprovalID{ask.ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	r.wait(run.Run)
	path := "/v1/runs/" + string(run.Run) + "/events"
	for _, c := range [][2]string{{"?follow=false", typeNDJSON}, {"", typeNDJSON}, {"?follow=false", typeSSE}, {"", typeSSE}, {"", typeJSON}} {
		body := string(r.do("GET", path+c[0], "", "Accept", c[1]).body)
		if want := `"args":{"path":"a","text":"<b>&amp;` + "\u2028\u202e" + `</b>"}`; strings.Count(body, want) != 2 { // of the call, and of the question
			t.Errorf("%s %s has not %s:\n%s", c[1], c[0], want, body)
		}
	}
	for _, follow := range []bool{true, false} {
		var asked agent.Approval
		for e, err := range r.c.Events(context.Background(), client.RunLog(run.Run), 0, follow) {
			if err == nil && e.Kind == agent.EventApprovalRequested {
				err = json.Unmarshal(e.Data, &asked)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(asked.Calls) != 1 || agent.DigestOf(asked.Calls[0].Args) != asked.Calls[0].ArgsDigest {
			t.Errorf("following %v: %+v", follow, asked)
		}
	}
}

// TestApprovalArguments reads arguments that are too long for their question, and those of others, while it is open and afterwards.
func TestApprovalArguments(t *testing.T) {
	r, _ := startTools(t, Options{})
	ctx := context.Background()
	run := r.code(r.c, `const text = "<é>".repeat(10000);
await tools.change("two", [
  { tool: "note.write", args: { path: "a", text }, undo: { tool: "note.delete", args: { path: "a" } } },
  { tool: "note.write", args: { path: "b", text: "short" } },
]);
await tools.note.write({ path: "c", text: "alone" });`)
	long := `{"path":"a","text":"` + strings.Repeat("<é>", 10000) + `"}`
	check := func(a agent.Approval, want ...string) {
		t.Helper()
		for i, w := range want {
			got, err := r.c.ApprovalArguments(ctx, a.ID, i+1)
			if err != nil || string(got) != w || agent.DigestOf(got) != a.Calls[i].ArgsDigest {
				t.Errorf("call %d: %.80s %v", i+1, got, err)
			}
		}
		_, err := r.c.ApprovalArguments(ctx, a.ID, len(want)+1)
		wantKind(t, err, agent.NotFound)
	}
	ask := r.asks(r.c, 1)[0]
	if len(ask.Calls) != 3 || len(ask.Calls[0].Args) > agent.MaxShownArgs+100 || agent.DigestOf(ask.Calls[0].Args) == ask.Calls[0].ArgsDigest {
		t.Fatalf("%.300s", ask.Calls[0].Args)
	}
	all := []string{long, `{"path":"a"}`, `{"path":"b","text":"short"}`}
	check(ask, all...)
	if res := r.do("GET", "/v1/approvals/"+string(ask.ID)+"/arguments", ""); string(res.body) != long || res.Header.Get("Content-Type") != typeJSON {
		t.Errorf("%s %.80s", res.Header.Get("Content-Type"), res.body)
	}
	_, err := r.in("b").ApprovalArguments(ctx, ask.ID, 1)
	wantKind(t, err, agent.NotFound)
	_, err = r.c.ApprovalArguments(ctx, agent.NewApprovalID(run.Run, 99), 1)
	wantKind(t, err, agent.NotFound)
	l, err := r.c.LinkApproval(ctx, ask.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	page := string(r.do("GET", strings.TrimPrefix(l.URL, r.url), "", "Authorization", "", "Accept", "text/html").body)
	if strings.Count(page, "&lt;é&gt;") != 10000 || strings.Contains(page, "only the beginning") || !strings.Contains(page, "make these 2 calls?") ||
		!strings.Contains(page, "undo of 1:") || !strings.Contains(page, "only to take back the call above") {
		t.Errorf("the page of a link: %.3000s", page)
	}

	if _, err := r.c.AnswerApprovals(ctx, []agent.ApprovalID{ask.ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	alone := r.asks(r.c, 1)[0]
	check(alone, `{"path":"c","text":"alone"}`)
	if _, err := r.c.AnswerApprovals(ctx, []agent.ApprovalID{alone.ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	r.wait(run.Run)
	check(ask, all...)
	check(alone, `{"path":"c","text":"alone"}`)
}

// linked starts a script that writes, and returns its run, its question and a link to it.
func linked(t *testing.T, r *rig) (client.CodeResult, agent.Approval, string) {
	t.Helper()
	run := r.code(r.c, `export default () => tools.note.write({ path: "a", text: "<b>\u202e" })`)
	ask := r.asks(r.c, 1)[0]
	l, err := r.c.LinkApproval(context.Background(), ask.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	return run, ask, strings.TrimPrefix(l.URL, r.url)
}

const asForm = "application/x-www-form-urlencoded"

func TestApproveLink(t *testing.T) {
	r, n := startTools(t, Options{})
	run, ask, path := linked(t, r)
	page := r.do("GET", path, "", "Authorization", "", "Accept", "text/html,*/*;q=0.8")
	if page.StatusCode != 200 || page.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%s %s", page.Status, page.body)
	}
	for _, want := range []string{"note.write", "changes things, in ways that can be undone", `&#34;text&#34;: &#34;&lt;b&gt;\u202e&#34;`, string(run.Run)} {
		if !strings.Contains(string(page.body), want) {
			t.Errorf("the page does not show %s:\n%s", want, page.body)
		}
	}
	if regexp.MustCompile(`(?i)<script|<link|<img|src=|@import|url\(|https?://|\x{202e}`).Match(page.body) {
		t.Errorf("the page refers to something outside, or hides something:\n%s", page.body)
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "frame-ancestors 'none'",
	} {
		if got := page.Header.Get(name); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	shown := r.do("GET", path, "", "Authorization", "", "Accept", "application/json")
	var open openApproval
	if err := json.Unmarshal(shown.body, &open); err != nil || open.Approval.ID != ask.ID {
		t.Errorf("%s %v", shown.body, err)
	}
	if _, there := n.has("a"); there || len(r.asks(r.c, 1)) != 1 {
		t.Error("looking at a link has an effect")
	}
	for _, bad := range []struct{ body, contentType string }{{"answer=perhaps", asForm}, {"", asForm}, {`{}`, typeJSON}, {`{"allow":true,"scope":"run"}`, typeJSON}, {"allow", "text/plain"}} {
		if res := r.do("POST", path, bad.body, "Authorization", "", "Content-Type", bad.contentType, "Accept", typeJSON); res.StatusCode/100 != 4 {
			t.Errorf("%s: %s", bad.body, res.Status)
		}
	}
	done := r.do("POST", path, "answer=allow&reason=", "Authorization", "", "Content-Type", asForm, "Accept", "text/html")
	if done.StatusCode != 200 || !strings.Contains(string(done.body), "Allowed.") {
		t.Fatalf("%s %s", done.Status, done.body)
	}
	if got := r.wait(run.Run); got.Status != agent.Completed {
		t.Errorf("%+v", got.Error)
	}
	if text, _ := n.has("a"); text != "<b>\u202e" {
		t.Errorf("%q", text)
	}
	for _, method := range []string{"GET", "POST"} { // twice
		res := r.do(method, path, map[string]string{"POST": `{"allow":false}`}[method], "Authorization", "", "Accept", typeJSON)
		if p := res.problem(t); p.Kind != agent.Conflict || !strings.Contains(p.Detail, "answered before") || p.Hint == "" {
			t.Errorf("%s %+v", method, p)
		}
	}
	again := r.do("GET", path, "", "Authorization", "", "Accept", "text/html")
	if again.StatusCode != 409 || !strings.Contains(string(again.body), "answered before") {
		t.Errorf("%s %s", again.Status, again.body)
	}
	r.do("GET", path+"/x", "", "Authorization", "")
	r.do("DELETE", path, "", "Authorization", "")
	if text := path[len(approvePath):]; strings.Contains(r.log.String(), text[:40]) || strings.Contains(r.log.String(), text[40:]) {
		t.Errorf("the log has the link:\n%s", r.log)
	}
	var audit strings.Builder
	for e, err := range r.c.Events(context.Background(), client.AuditLog(client.AuditFilter{}), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		audit.Write(e.Data)
	}
	if got := audit.String(); !strings.Contains(got, "approval.link") || !strings.Contains(got, "allowed once by link ") || strings.Contains(got, path[len(approvePath):]) {
		t.Errorf("audit: %s", got)
	}
}

func TestApproveLinkThatIsWrong(t *testing.T) {
	var shift atomic.Int64
	r, n := startTools(t, Options{Now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }})
	run, _, path := linked(t, r)
	try := func(path string, kind agent.Kind, says string) {
		t.Helper()
		for _, method := range []string{"GET", "POST"} {
			res := r.do(method, path, map[string]string{"POST": `{"allow":true}`}[method], "Authorization", "", "Accept", typeJSON)
			if p := res.problem(t); p.Kind != kind || !strings.Contains(p.Detail, says) || p.Hint == "" {
				t.Errorf("%s: %+v", method, p)
			}
		}
	}
	try(path[:len(path)-9]+"A"+path[len(path)-8:], agent.Denied, "no link of this server")
	try(approvePath+"x", agent.Denied, "no link of this server")

	other, _ := startTools(t, Options{}) // another server has another key
	_, _, foreign := linked(t, other)
	try(foreign, agent.Denied, "no link of this server")

	shift.Store(int64(15 * time.Minute))
	try(path, agent.Denied, "has expired")
	shift.Store(0)

	if _, err := r.c.CancelRuns(context.Background(), run.Run); err != nil {
		t.Fatal(err)
	}
	try(path, agent.Conflict, "waits for no answer")
	if _, there := n.has("a"); there {
		t.Error("a link that is wrong had an effect")
	}
	if res := r.do("POST", "/v1/approvals/"+string(agent.NewApprovalID(run.Run, 7))+"/link", ""); res.StatusCode/100 != 4 {
		t.Errorf("a link to nothing: %s", res.body)
	}
}
