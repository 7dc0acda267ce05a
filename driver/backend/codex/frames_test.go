package codex_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/backendtest"
	"github.com/skep-dev/skep/driver/backend/codex"
)

// started is a session whose CLI is the test.
func started(t *testing.T, permissions string) (*backendtest.Peer, backend.Session) {
	t.Helper()
	catalog := backendtest.NewPeer(t)
	catalog.Stays = true
	go func() {
		catalog.Say(`{"models":[{"slug":"plain","apply_patch_tool_type":"freeform","base_instructions":"Be good."}]}`)
		catalog.Exit(driver.ProcessData{})
	}()
	return startedIn(t, permissions, filepath.Join(t.TempDir(), "home"), func() (backend.Process, error) { return catalog.Process(), nil })
}

// startedIn is started with a home of the box's, and the process that shows the catalogue of models.
func startedIn(t *testing.T, permissions, home string, catalog func() (backend.Process, error)) (*backendtest.Peer, backend.Session) {
	t.Helper()
	server := backendtest.NewPeer(t)
	env := server.Env(home)
	env.Spawn = func(_ context.Context, c *backend.Command) (backend.Process, error) {
		if c.Args[0] == "debug" {
			return catalog()
		}
		return server.Process(), nil
	}
	go func() {
		server.Answer("initialize", `{"userAgent":"x"}`)
		server.Hear()
		server.Say(`{"method":"thread/started","params":{"threadId":"T"}}`, `{"method":"configWarning","params":{"summary":"bad line"}}`)
		server.Answer("thread/start", `{"thread":{"id":"T","cliVersion":"9.9.9"},"model":"@main"}`)
	}()
	s, err := codex.New().Start(t.Context(), &driver.Prompt{CLI: "codex", Model: "@main", Dir: "/workspace", Permissions: permissions}, env, server.Sink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("close: %v", err)
		}
	})
	return server, s
}

// begin begins a turn, which is U to Codex.
func begin(t *testing.T, p *backendtest.Peer, s backend.Session) {
	t.Helper()
	heard := make(chan backendtest.Message, 1)
	go func() { heard <- p.Answer("turn/start", `{"turn":{"id":"U","status":"inProgress"}}`) }()
	if err := s.Prompt(t.Context(), &driver.Prompt{Turn: "one", Text: "do it", Dir: "/workspace", Model: "@main"}); err != nil {
		t.Fatal(err)
	}
	var q struct {
		ThreadID       string
		ApprovalPolicy string
		SandboxPolicy  struct{ Type string }
		Input          []struct{ Type, Text string }
	}
	if err := json.Unmarshal((<-heard).Params, &q); err != nil || q.ThreadID != "T" || q.ApprovalPolicy != "untrusted" || q.SandboxPolicy.Type != "dangerFullAccess" || q.Input[0].Text != "do it" {
		t.Errorf("the turn begins with %+v (%v)", q, err)
	}
}

const inTurn = `"threadId":"T","turnId":"U"`

func TestEvents(t *testing.T) {
	p, s := started(t, "policy")
	begin(t, p, s)
	p.Say(
		`{"method":"item/started","params":{`+inTurn+`,"item":{"type":"reasoning","id":"r1"}}}`,
		`{"method":"item/completed","params":{`+inTurn+`,"item":{"type":"reasoning","id":"r1","summary":["I think"]}}}`,
		`{"method":"turn/plan/updated","params":{`+inTurn+`,"plan":[{"step":"look","status":"completed"},{"step":"do","status":"inProgress"},{"step":"rest","status":"new"}]}}`,
		`{"method":"item/agentMessage/delta","params":{"threadId":"another","turnId":"U","itemId":"m0","delta":"not ours"}}`,
		`{"method":"item/agentMessage/delta","params":{`+inTurn+`,"itemId":"m1","delta":"Hel"}}`,
		`{"method":"item/agentMessage/delta","params":{`+inTurn+`,"itemId":"m1","delta":"lo"}}`,
		`{"method":"item/completed","params":{`+inTurn+`,"item":{"type":"agentMessage","id":"m1","text":"Hello"}}}`,
		`{"method":"item/started","params":{`+inTurn+`,"item":{"type":"commandExecution","id":"c1","command":"/bin/bash -lc 'make test'","cwd":"/workspace","status":"inProgress"}}}`,
		`{"method":"item/commandExecution/outputDelta","params":{`+inTurn+`,"itemId":"c1","delta":"ok\n"}}`,
		`{"method":"item/completed","params":{`+inTurn+`,"item":{"type":"commandExecution","id":"c1","command":"/bin/bash -lc 'make test'","cwd":"/workspace","status":"failed","exitCode":2,"aggregatedOutput":"ok\n"}}}`,
		`{"method":"item/completed","params":{`+inTurn+`,"item":{"type":"mcpToolCall","id":"t1","server":"db","tool":"ask","arguments":{"q":1},"status":"completed","result":{"content":[]}}}}`,
		`{"method":"item/completed","params":{`+inTurn+`,"item":{"type":"fileChange","id":"f1","status":"completed","changes":[{"path":"/workspace/a/b","kind":{"type":"update","move_path":"/etc/b"},"diff":""},{"path":"c","kind":{"type":"delete"},"diff":""}]}}}`,
		`{"method":"item/completed","params":{`+inTurn+`,"item":{"type":"contextCompaction","id":"x1"}}}`,
		`{"method":"thread/tokenUsage/updated","params":{`+inTurn+`,"tokenUsage":{"last":{"totalTokens":15,"inputTokens":10,"cachedInputTokens":4,"outputTokens":5,"reasoningOutputTokens":2},"total":{},"modelContextWindow":1000}}}`,
		`{"method":"error","params":{`+inTurn+`,"willRetry":true,"error":{"message":"busy","codexErrorInfo":{"responseStreamConnectionFailed":{"httpStatusCode":503}}}}}`,
		`{"method":"account/updated","params":{}}`, `{"method":"of/tomorrow","params":{"a":1}}`, `what is this`, `{"method":"item/completed","params":[]}`,
		`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"completed"}}}`,
	)
	list := p.Events(driver.TurnEnded, 0)
	got := backendtest.Tale(list)
	want := []string{
		`session.started {"id":"T","cli":"codex","version":"9.9.9","model":"@main"}`,
		`driver.log {"text":"bad line"}`,
		`turn.started`,
		`reasoning.delta {"item":"r1","text":"I think"}`,
		`plan.updated {"steps":[{"text":"look","status":"done"},{"text":"do","status":"running"},{"text":"rest","status":"pending"}]}`,
		`text.delta {"item":"m1","text":"Hel"}`, `text.delta {"item":"m1","text":"lo"}`, `text.done {"item":"m1","text":"Hello"}`,
		`tool.started {"id":"c1","name":"shell","action":"run","input":{"command":"make test","cwd":"/workspace"},"title":"make test"}`,
		`tool.output {"item":"c1","text":"ok\n"}`,
		`tool.ended {"id":"c1","name":"shell","action":"run","title":"make test","failed":true,"output":"ok\n"}`,
		`tool.started {"id":"t1","name":"db/ask","action":"tool","input":{"q":1}}`,
		`tool.ended {"id":"t1","name":"db/ask","action":"tool","output":"{\"content\":[]}"}`,
		`tool.started {"id":"f1","name":"apply_patch","action":"edit","input":{"changes":[{"path":"/workspace/a/b","diff":"","kind":{"type":"update","move_path":"/etc/b"}},{"path":"c","diff":"","kind":{"type":"delete","move_path":""}}]},"title":"a/b, /etc/b, c"}`,
		`tool.ended {"id":"f1","name":"apply_patch","action":"edit","title":"a/b, /etc/b, c"}`,
		`file.changed {"path":"a/b","op":"delete"}`, `file.changed {"path":"/etc/b","op":"add"}`, `file.changed {"path":"c","op":"delete"}`,
		`compaction`,
		`usage {"input":6,"cache_read":4,"output":5,"reasoning":2}`, `context {"used":15,"size":1000}`,
		`model.retry {"attempt":1,"status":503}`,
		`agent.unparsed {"raw":"of/tomorrow: {\"a\":1}"}`, `agent.unparsed {"raw":"not a message: what is this"}`,
		`agent.unparsed {"raw":"item/completed: json: cannot unmarshal array into Go value of type codex.params: []"}`,
		`turn.ended {"status":"completed","reason":"completed","text":"Hello"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		info, status string
		kind         agent.Kind
	}{
		"bad request": {`"badRequest"`, driver.TurnFailed, agent.Invalid},
		"too long":    {`"contextWindowExceeded"`, driver.TurnLimit, agent.Exhausted},
		"stream":      {`{"responseStreamDisconnected":{"httpStatusCode":502}}`, driver.TurnFailed, agent.Unavailable},
		"policy":      {`"cyberPolicy"`, driver.TurnRefused, agent.Denied},
		"new":         {`"ofTomorrow"`, driver.TurnFailed, agent.Failed},
		"nothing":     {`null`, driver.TurnFailed, agent.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := started(t, "policy")
			begin(t, p, s)
			p.Say(`{"method":"error","params":{`+inTurn+`,"willRetry":false,"error":{"message":"so it is","codexErrorInfo":`+tt.info+`}}}`,
				`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"failed"}}}`)
			list := p.Events(driver.TurnEnded, 0)
			var end driver.TurnEnd
			if err := list[len(list)-1].Read(&end); err != nil || end.Status != tt.status || end.Fault == nil || end.Fault.Kind != tt.kind || end.Fault.Message != "so it is" {
				t.Errorf("it ended as %+v (%v), want %+v", end, end.Fault, tt)
			}
		})
	}
}

// What Codex asks, and what it is answered when that is allowed and when it is not.
func TestAsks(t *testing.T) {
	change := `{"method":"item/started","params":{` + inTurn + `,"item":{"type":"fileChange","id":"f1","status":"inProgress","changes":[%s]}}}`
	for name, tt := range map[string]struct {
		before, method, params string
		action, args           string
		yes, no                string
	}{
		"command": {
			method: "item/commandExecution/requestApproval", params: `"itemId":"c1","command":"/bin/bash -lc 'rm -rf \"$HOME\"'","cwd":"/workspace/x","reason":"why not"`,
			action: "run", args: `{"command":"rm -rf \"$HOME\"","cwd":"/workspace/x"}`, yes: `{"decision":"accept"}`, no: `{"decision":"decline"}`,
		},
		"network": {
			method: "item/commandExecution/requestApproval", params: `"itemId":"c1","command":"curl x","networkApprovalContext":{"host":"example.com","protocol":"https"}`,
			action: "fetch", args: `{"url":"https://example.com"}`, yes: `{"decision":"accept"}`, no: `{"decision":"decline"}`,
		},
		"one file": {
			before: fmt.Sprintf(change, `{"path":"/workspace/src/../a","kind":{"type":"add"},"diff":"x"}`), method: "item/fileChange/requestApproval", params: `"itemId":"f1"`,
			action: "edit", args: `{"path":"a"}`, yes: `{"decision":"accept"}`, no: `{"decision":"decline"}`,
		},
		"files": {
			before: fmt.Sprintf(change, `{"path":"/workspace/a","kind":{"type":"update","move_path":"/workspace/../etc/x"},"diff":"x"}`),
			method: "item/fileChange/requestApproval", params: `"itemId":"f1"`,
			action: "edit", args: `{"paths":["a","/etc/x"]}`, yes: `{"decision":"accept"}`, no: `{"decision":"decline"}`,
		},
		"permissions": {
			method: "item/permissions/requestApproval", params: `"itemId":"p1","cwd":"/","permissions":{"network":{"enabled":true}}`,
			action: "tool", args: `{"input":{"network":{"enabled":true}},"tool":"request_permissions"}`,
			yes: `{"permissions":{"network":{"enabled":true}},"scope":"turn"}`, no: `{"permissions":{},"scope":"turn"}`,
		},
	} {
		for answer, want := range map[bool]string{true: tt.yes, false: tt.no} {
			t.Run(fmt.Sprintf("%s %t", name, answer), func(t *testing.T) {
				p, s := started(t, "policy")
				begin(t, p, s)
				if tt.before != "" {
					p.Say(tt.before)
				}
				p.Say(`{"id":0,"method":"` + tt.method + `","params":{` + inTurn + `,` + tt.params + `}}`)
				var d driver.PermissionData
				list := p.Events(driver.PermissionAsked, 0)
				if err := list[len(list)-1].Read(&d); err != nil || d.Action != tt.action || string(d.Args) != tt.args || d.ID == "" || d.Tool == "" {
					t.Errorf("it asks %+v %s (%v), want %s %s", d, d.Args, err, tt.action, tt.args)
				}
				got := make(chan string, 1)
				go func() { m := p.Hear(); got <- string(m.ID) + " " + string(m.Result) }()
				if err := s.Answer(t.Context(), &driver.Answer{ID: d.ID, Allow: answer}); err != nil {
					t.Fatal(err)
				}
				if got := <-got; got != "0 "+want {
					t.Errorf("it is answered %s, want %s", got, want)
				}
				p.Say(`{"method":"serverRequest/resolved","params":{"threadId":"T","requestId":0}}`, `{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"completed"}}}`)
				if list := backendtest.Tale(p.Events(driver.TurnEnded, 0), driver.PermissionWithdrawn); len(list) != 0 {
					t.Errorf("what was answered was withdrawn: %q", list)
				}
			})
		}
	}
}

// What is not asked: what nobody is asked about, what says too little or too much to be judged, and what is not known.
func TestNotAsked(t *testing.T) {
	for name, tt := range map[string]struct{ permissions, method, params, want string }{
		"all may":   {"all", "item/commandExecution/requestApproval", `"command":"ls"`, `{"decision":"accept"}`},
		"no file":   {"policy", "item/fileChange/requestApproval", `"itemId":"nobody told of it"`, `{"decision":"decline"}`},
		"too long":  {"policy", "item/commandExecution/requestApproval", `"command":"` + strings.Repeat("x", 40<<10) + `"`, `{"decision":"decline"}`},
		"unknown":   {"policy", "of/tomorrow", `"a":1`, `{"code":-32601,"message":"the client has no method of/tomorrow"}`},
		"malformed": {"policy", "item/fileChange/requestApproval", `"itemId":{}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := started(t, tt.permissions)
			p.Say(`{"id":"q","method":"` + tt.method + `","params":{` + inTurn + `,` + tt.params + `}}`)
			m := p.Hear()
			if got := string(m.Result) + string(m.Error); string(m.ID) != `"q"` || tt.want != "" && got != tt.want || tt.want == "" && len(m.Error) == 0 {
				t.Errorf("it is answered %s", got)
			}
		})
	}
}

func TestQuestions(t *testing.T) {
	two := `"itemId":"q","isBlocking":true,"questions":[{"id":"a","header":"Colour","question":"Which?","options":[{"label":"red","description":""},{"label":"blue","description":""}]},{"id":"b","header":"","question":"Why?"}]`
	one := `"itemId":"q","isBlocking":true,"questions":[{"id":"a","header":"","question":"Which?","options":[{"label":"red","description":""}]}]`
	form := `"serverName":"db","mode":"form","message":"Who are you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}`
	for name, tt := range map[string]struct {
		method, params string
		text           string
		answer         driver.Answer
		want           string
	}{
		"one":       {"item/tool/requestUserInput", one, "Which?", driver.Answer{Allow: true, Message: "red"}, `{"answers":{"a":{"answers":["red"]}}}`},
		"two":       {"item/tool/requestUserInput", two, "Colour: Which?\nWhy?", driver.Answer{Allow: true, Message: `{"a":"red","b":"so"}`}, `{"answers":{"a":{"answers":["red"]},"b":{"answers":["so"]}}}`},
		"no object": {"item/tool/requestUserInput", two, "Colour: Which?\nWhy?", driver.Answer{Allow: true, Message: "red"}, `{"answers":{}}`},
		"refused":   {"item/tool/requestUserInput", one, "Which?", driver.Answer{}, `{"answers":{}}`},
		"form":      {"mcpServer/elicitation/request", form, "db asks: Who are you?", driver.Answer{Allow: true, Message: "Ann"}, `{"action":"accept","content":{"name":"Ann"}}`},
		"declined":  {"mcpServer/elicitation/request", form, "db asks: Who are you?", driver.Answer{}, `{"action":"decline","content":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := started(t, "policy")
			begin(t, p, s)
			p.Say(`{"id":4,"method":"` + tt.method + `","params":{` + inTurn + `,` + tt.params + `}}`)
			var d driver.QuestionData
			list := p.Events(driver.QuestionAsked, 0)
			if err := list[len(list)-1].Read(&d); err != nil || d.Text != tt.text {
				t.Errorf("it asks %+v (%v)", d, err)
			}
			got := make(chan string, 1)
			go func() { got <- string(p.Hear().Result) }()
			tt.answer.ID = d.ID
			if err := s.Answer(t.Context(), &tt.answer); err != nil {
				t.Fatal(err)
			}
			if got := <-got; got != tt.want {
				t.Errorf("it is answered %s, want %s", got, tt.want)
			}
		})
	}
}

// What Codex takes back is withdrawn, and an interrupt that comes before the turn has an id is not lost.
func TestInterrupt(t *testing.T) {
	p, s := started(t, "policy")
	begun := make(chan error, 1)
	go func() { begun <- s.Prompt(t.Context(), &driver.Prompt{Turn: "one", Text: "do it"}) }()
	m := p.Hear()
	p.Events(driver.TurnStarted, 0)
	if err := s.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Say(`{"id":` + string(m.ID) + `,"result":{"turn":{"id":"U"}}}`)
	if m = p.Hear(); m.Method != "turn/interrupt" || string(m.Params) != `{"threadId":"T","turnId":"U"}` {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
	p.Say(`{"id":9,"method":"item/commandExecution/requestApproval","params":{`+inTurn+`,"command":"ls"}}`,
		`{"method":"serverRequest/resolved","params":{"threadId":"T","requestId":9}}`,
		`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"interrupted"}}}`)
	list := p.Events(driver.TurnEnded, 0)
	if got := backendtest.Tale(list, driver.PermissionWithdrawn); len(got) != 1 {
		t.Errorf("withdrawn: %q", got)
	}
	if got := backendtest.Tale(list, driver.TurnEnded); got[0] != `turn.ended {"status":"interrupted","reason":"interrupted"}` {
		t.Errorf("%q", got)
	}
}

// A CLI that cannot start a thread is ended, and the error says what it said.
func TestNoStart(t *testing.T) {
	p := backendtest.NewPeer(t)
	env := p.Env(t.TempDir())
	go func() {
		p.Hear()
		p.Say(`{"id":1,"error":{"code":-32603,"message":"no such model"}}`)
	}()
	spawn := env.Spawn
	env.Spawn = func(ctx context.Context, c *backend.Command) (backend.Process, error) {
		if c.Args[0] == "debug" {
			return nil, os.ErrNotExist
		}
		return spawn(ctx, c)
	}
	_, err := codex.New().Start(t.Context(), &driver.Prompt{Model: "@main", Dir: "/workspace"}, env, p.Sink)
	if agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("%v", err)
	}
	<-p.Process().Done()
}

// Nothing that Codex can say makes the backend panic, or wait for ever.
func FuzzFrames(f *testing.F) {
	for _, line := range []string{
		`{"method":"item/started","params":{` + inTurn + `,"item":{"type":"fileChange","id":"f","changes":[{"path":"a","kind":{"type":"add"}}]}}}`,
		`{"method":"item/completed","params":{` + inTurn + `,"item":{"type":"agentMessage","id":"m","text":"x"}}}`,
		`{"id":1,"method":"item/commandExecution/requestApproval","params":{` + inTurn + `,"command":"sh -c \"a\\\"b\""}}`,
		`{"id":1,"method":"item/fileChange/requestApproval","params":{"itemId":"f"}}`, `{"id":[],"method":"item/tool/requestUserInput","params":{"questions":[{}]}}`,
		`{"method":"turn/completed","params":{"threadId":"T","turn":{"status":"failed","error":{"codexErrorInfo":{"a":{}}}}}}`, `{"method":"error","params":{"error":null}}`,
		`{"method":"serverRequest/resolved","params":{"requestId":1}}`, "\x00", `{"id":2,"result":7}`, `{"id":3,"result":{"turn":{"id":"U"}}}`,
	} {
		f.Add(line, line)
	}
	home, none := f.TempDir(), func() (backend.Process, error) { return nil, os.ErrNotExist } // so that no file is written each time
	f.Fuzz(func(t *testing.T, one, two string) {
		p, s := startedIn(t, "policy", home, none)
		p.Babble(s, one+"\n"+two)
	})
}
