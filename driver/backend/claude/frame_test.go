package claude

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/backendtest"
)

const success = `{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"version":"9.9.9"}}}`

// begun is a session in a turn, whose CLI says what the test wants, and the uuid of its message.
func begun(t *testing.T, permissions string) (*backendtest.Puppet, backend.Session, string) {
	t.Helper()
	pup := backendtest.NewPuppet(t)
	p := &driver.Prompt{Turn: "t", CLI: "claude", Model: "@main", Text: "go on", Dir: "/workspace", Permissions: permissions}
	started := make(chan backend.Session, 1)
	go func() {
		s, err := New().Start(t.Context(), p, pup.Env, pup.Sink)
		if err != nil {
			t.Errorf("start: %v", err)
		}
		started <- s
	}()
	for range 2 {
		f := pup.Hear()
		pup.Say(fmt.Sprintf(success, f["request_id"]))
	}
	s := <-started
	if s == nil {
		t.FailNow()
	}
	if err := s.Prompt(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	id, _ := pup.Hear()["uuid"].(string)
	return pup, s, id
}

// What the CLI never says to the tests that run it, or not when it is wanted.
func TestFramesOfAllKinds(t *testing.T) {
	const event = `{"type":"stream_event","event":%s}`
	for _, c := range []struct {
		name  string
		lines []string
		want  []string // type and data of events
	}{
		{"no JSON", []string{"Warning: something"}, []string{`agent.unparsed {"raw":"Warning: something"}`}},
		{"a type of tomorrow", []string{`{"type":"hologram","x":1}`}, []string{`agent.unparsed {"raw":"{\"type\":\"hologram\",\"x\":1}"}`}},
		{"a subtype of tomorrow", []string{`{"type":"system","subtype":"dreams"}`}, []string{`agent.unparsed {"raw":"{\"type\":\"system\",\"subtype\":\"dreams\"}"}`}},
		{"another type in a field", []string{`{"type":"system","subtype":"api_retry","attempt":"many"}`}, []string{`agent.unparsed {"raw":"{\"type\":\"system\",\"subtype\":\"api_retry\",\"attempt\":\"many\"}"}`}},
		{"an event of tomorrow", []string{fmt.Sprintf(event, `{"type":"content_block_magic"}`)}, []string{`agent.unparsed {"raw":"{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_magic\"}}"}`}},
		{"nothing to tell", []string{`{"type":"keep_alive"}`, `{"type":"system","subtype":"status","status":"requesting"}`, `{"type":"rate_limit_event"}`}, nil},
		{"compaction", []string{`{"type":"system","subtype":"compact_boundary","compact_metadata":{"trigger":"auto","pre_tokens":9}}`}, []string{"compaction"}},
		{"retry", []string{`{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":500.5,"error_status":null}`}, []string{`model.retry {"attempt":1,"wait":500500000}`}},
		{"a text without pieces", []string{`{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"hello"}]}}`},
			[]string{`text.done {"item":"m1/0","text":"hello"}`}},
		{"a text in pieces", []string{
			fmt.Sprintf(event, `{"type":"message_start","message":{"id":"m1"}}`), fmt.Sprintf(event, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
			fmt.Sprintf(event, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hel"}}`),
			fmt.Sprintf(event, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}`),
			`{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"hello"}]}}`, fmt.Sprintf(event, `{"type":"content_block_stop","index":0}`),
		}, []string{`text.delta {"item":"m1/0","text":"hel"}`, `text.delta {"item":"m1/0","text":"lo"}`, `text.done {"item":"m1/0","text":"hello"}`}},
		{"a piece of nothing", []string{fmt.Sprintf(event, `{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}`)},
			[]string{`agent.unparsed {"raw":"{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"index\":7,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}}"}`}},
		{"an error in place of an answer", []string{`{"type":"assistant","error":"server_error","message":{"id":"m1","content":[{"type":"text","text":"API Error"}]}}`}, nil},
		{"a tool that edits", []string{
			`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"c1","name":"Edit","input":{"file_path":"/workspace/a.go","description":"d"}}]}}`,
			`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"ok"},{"type":"image"}]}]},"tool_use_result":{"filePath":"/workspace/a.go","originalFile":"x"}}`,
		}, []string{
			`tool.started {"id":"c1","name":"Edit","action":"edit","input":{"file_path":"/workspace/a.go","description":"d"},"title":"d"}`,
			`tool.ended {"id":"c1","name":"Edit","action":"edit","output":"ok\n[image]"}`, `file.changed {"path":"a.go","op":"change"}`,
		}},
		{"a tool that fails", []string{
			`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"c1","name":"Write","input":{"file_path":"/etc/x"}}]}}`,
			`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":"no"}]},"tool_use_result":"Error: no"}`,
		}, []string{
			`tool.started {"id":"c1","name":"Write","action":"edit","input":{"file_path":"/etc/x"}}`, `tool.ended {"id":"c1","name":"Write","action":"edit","failed":true,"output":"no"}`,
		}},
		{"a notebook", []string{
			`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"c1","name":"NotebookEdit","input":{"notebook_path":"/workspace/a.ipynb"}}]}}`,
			`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":"ok"}]},"tool_use_result":{"notebook_path":"/workspace/a.ipynb"}}`,
		}, []string{
			`tool.started {"id":"c1","name":"NotebookEdit","action":"edit","input":{"notebook_path":"/workspace/a.ipynb"}}`,
			`tool.ended {"id":"c1","name":"NotebookEdit","action":"edit","output":"ok"}`, `file.changed {"path":"a.ipynb","op":"change"}`,
		}},
		{"what a subagent says", []string{`{"type":"assistant","parent_tool_use_id":"c9","message":{"id":"m2","content":[{"type":"text","text":"sub"}]}}`},
			[]string{`tool.output {"item":"c9","text":"sub"}`}},
		{"a message of ours", []string{`{"type":"user","message":{"role":"user","content":"[Request interrupted by user]"}}`}, nil},
		{"a notice", []string{`{"type":"system","subtype":"informational","content":"disk is full","level":"warning"}`}, []string{`driver.log {"text":"claude: disk is full"}`}},
		{"withdrawn, and nobody has asked", []string{`{"type":"control_cancel_request","request_id":"x"}`}, nil},
		{"a result of another turn", []string{`{"type":"result","subtype":"success","result":"x","user_message_uuid":"another"}`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			pup, _, id := begun(t, "policy")
			pup.Say(c.lines...)
			pup.Say(fmt.Sprintf(`{"type":"result","subtype":"success","result":"end","user_message_uuid":%q}`, id))
			pup.Wait(driver.TurnEnded)
			list := pup.Events()
			if diff := cmp.Diff(c.want, backendtest.Tale(list[2:len(list)-1])); diff != "" { // between the beginning of the turn and its end
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResults(t *testing.T) {
	for _, c := range []struct {
		result, status, reason, text string
		kind                         agent.Kind // of the fault, if failed
	}{
		{`"subtype":"success","result":"yes","terminal_reason":"completed"`, driver.TurnCompleted, "completed", "yes", 0},
		{`"subtype":"success","is_error":true,"api_error_status":401,"terminal_reason":"api_error","result":"API Error: 401"`, driver.TurnFailed, "api_error", "", agent.Unauthenticated},
		{`"subtype":"success","is_error":true,"api_error_status":null,"terminal_reason":"api_error","result":"Connection error"`, driver.TurnFailed, "api_error", "", agent.Unavailable},
		{`"subtype":"success","is_error":true,"api_error_status":429,"terminal_reason":"api_error","result":"slow down"`, driver.TurnFailed, "api_error", "", agent.Exhausted},
		{`"subtype":"success","is_error":true,"api_error_status":400,"terminal_reason":"api_error","result":"bad"`, driver.TurnFailed, "api_error", "", agent.Invalid},
		{`"subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming"`, driver.TurnInterrupted, "aborted_streaming", "", 0},
		{`"subtype":"error_during_execution","is_error":true,"errors":["one","two"]`, driver.TurnFailed, "error_during_execution", "", agent.Failed},
		{`"subtype":"error_max_turns","is_error":true,"terminal_reason":"max_turns"`, driver.TurnLimit, "max_turns", "", 0},
		{`"subtype":"success","stop_reason":"refusal","result":"I cannot","terminal_reason":"completed"`, driver.TurnRefused, "completed", "I cannot", 0},
		{`"subtype":"success","is_error":true,"terminal_reason":"prompt_too_long","result":"Prompt is too long"`, driver.TurnLimit, "prompt_too_long", "Prompt is too long", 0},
		{`"subtype":"dreamt"`, driver.TurnFailed, "dreamt", "", agent.Failed},
	} {
		pup, _, _ := begun(t, "policy")
		pup.Say(`{"type":"result",` + c.result + `}`)
		end := backendtest.Data[driver.TurnEnd](t, pup.Wait(driver.TurnEnded))
		if end.Status != c.status || end.Reason != c.reason || end.Text != c.text || (end.Fault != nil) != (c.status == driver.TurnFailed) {
			t.Errorf("%s ends the turn as %+v", c.result, end)
		}
		if end.Fault != nil && (end.Fault.Kind != c.kind || end.Fault.Message == "") {
			t.Errorf("%s is the fault %+v", c.result, end.Fault)
		}
	}
}

func TestUsageIsOfTheTurn(t *testing.T) {
	pup, s, _ := begun(t, "policy")
	use := func(in, out int) {
		pup.Say(fmt.Sprintf(`{"type":"result","subtype":"success","modelUsage":{"a":{"inputTokens":%d,"outputTokens":%d,"costUSD":0.5,"contextWindow":200000},"b":{"inputTokens":1}}}`, in, out))
		pup.Wait(driver.TurnEnded)
	}
	use(10, 5)
	if err := s.Prompt(t.Context(), &driver.Prompt{Turn: "t2", Permissions: "policy"}); err != nil {
		t.Fatal(err)
	}
	use(25, 6)
	want := []driver.UsageData{{Model: "a", Input: 10, Output: 5, Dollars: 0.5}, {Model: "b", Input: 1}, {Model: "a", Input: 15, Output: 1}}
	if diff := cmp.Diff(want, backendtest.Of[driver.UsageData](pup, driver.UsageTold)); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func TestRequestsOfTheCLI(t *testing.T) {
	const ask = `{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"decision_reason":"why"}}`
	for _, c := range []struct{ tool, input, want string }{
		{"Bash", `{"command":"rm -rf /"}`, `run {"command":"rm -rf /"}`},
		{"Bash", `{}`, `tool {"input":{},"tool":"Bash"}`}, // what cannot be judged as a command is judged as a tool
		{"Bash", `{"command":7}`, `tool {"input":{"command":7},"tool":"Bash"}`},
		{"Edit", `{"file_path":"/workspace/x/../../etc/passwd"}`, `edit {"path":"/etc/passwd"}`},
		{"Grep", `{"pattern":"key"}`, `read {"path":".","pattern":"key"}`},
		{"Read", `{"file_path":"/root/x"}`, `read {"path":"/root/x"}`},
		{"WebFetch", `{"url":"http://a"}`, `fetch {"url":"http://a"}`},
		{"mcp__a__b", `{"x":[1]}`, `tool {"input":{"x":[1]},"tool":"mcp__a__b"}`},
	} {
		pup, s, _ := begun(t, "policy")
		pup.Say(fmt.Sprintf(ask, c.tool, c.input))
		d := backendtest.Data[driver.PermissionData](t, pup.Wait(driver.PermissionAsked))
		if got := d.Action + " " + string(d.Args); got != c.want || d.ID != "r1" || d.Reason != "why" {
			t.Errorf("%s is asked as %s, want %s", c.tool, got, c.want)
		}
		if err := s.Answer(t.Context(), &driver.Answer{ID: "r1", Allow: true}); err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(pup.Hear())
		if want := `"behavior":"allow","updatedInput":` + c.input; !strings.Contains(string(b), want) {
			t.Errorf("the CLI is answered %s, want %s", b, want)
		}
	}

	pup, s, _ := begun(t, "policy")
	pup.Say(`{"type":"control_request","request_id":"r2","request":{"subtype":"read_your_mind"}}`)
	pup.Wait(driver.Unparsed)
	if b, _ := json.Marshal(pup.Hear()); !strings.Contains(string(b), `"subtype":"error"`) || !strings.Contains(string(b), `"r2"`) {
		t.Errorf("a request that is not known is answered %s", b)
	}
	pup.Say(fmt.Sprintf(ask, "Write", `{"file_path":"x","content":"`+strings.Repeat("x", 60_000)+`"}`))
	e := pup.Wait(driver.PermissionAsked)
	if e.Fit(); e.Cut {
		t.Error("what is asked is cut, since the file is large: nobody could decide by a rule")
	}
	pup.Exit(driver.ProcessData{Code: 1})
	pup.Wait(driver.TurnEnded)
	if err := s.Answer(t.Context(), &driver.Answer{ID: "r1"}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("an answer to the dead: %v", err)
	}
}

// With all permissions the CLI still asks about some tools. Nobody else is asked.
func TestAllIsAll(t *testing.T) {
	pup, _, _ := begun(t, "all")
	pup.Say(`{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"ExitPlanMode","input":{"plan":"p"}}}`)
	if b, _ := json.Marshal(pup.Hear()); !strings.Contains(string(b), `"behavior":"allow"`) {
		t.Errorf("the CLI is answered %s", b)
	}
}

func TestStartOfWhatNeverAnswers(t *testing.T) {
	pup := backendtest.NewPuppet(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := New().Start(ctx, &driver.Prompt{Dir: "/workspace"}, pup.Env, pup.Sink); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("a CLI that says nothing: %v", err)
	}
	<-pup.Process().Done()
	pup = backendtest.NewPuppet(t)
	go func() { pup.Hear(); pup.Exit(driver.ProcessData{Code: 1, Tail: "libc is too old"}) }()
	_, err := New().Start(t.Context(), &driver.Prompt{Dir: "/workspace"}, pup.Env, pup.Sink)
	if err == nil || !strings.Contains(err.Error(), "libc is too old") {
		t.Errorf("a CLI that dies: %v", err)
	}
	if list := pup.Events(); len(list) != 0 {
		t.Errorf("it told %+v", list)
	}
}

// FuzzFrames sees to it that whatever a CLI writes, events keep to their order and nothing is lost without a word.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"type":"result","subtype":"success","modelUsage":{"a":{"inputTokens":1}}}` + "\n" + `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"a","name":"TaskCreate","input":{"subject":"x"}}]}}`))
	f.Add([]byte(`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}` + "\n" + `{"type":"stream_event","event":{"type":"content_block_start","index":-1,"content_block":{"type":"text","text":"x"}}}`))
	f.Add([]byte(`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"q","options":[{"label":"l"}]}]}}}`))
	f.Add([]byte(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a"}]},"tool_use_result":{"task":{"id":"1"}}}` + "\n" + `{"type":"system","subtype":"task_started","task_id":"t"}` + "\nnull\n[]\n7"))
	f.Fuzz(func(t *testing.T, in []byte) {
		pup := backendtest.NewPuppet(t)
		s := newSession(&driver.Prompt{Dir: "/workspace"}, "id", pup.Process(), pup.Sink)
		s.Started(driver.SessionData{ID: "id", CLI: "claude"})
		if err := s.Begin("t"); err != nil {
			t.Fatal(err)
		}
		go s.read()
		pup.Babble(in, s.Done())
	})
}
