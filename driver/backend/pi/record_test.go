package pi

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/backendtest"
)

// begun is a session in a turn, whose pi says what the test wants.
func begun(t *testing.T, permissions string) (*backendtest.Puppet, backend.Session) {
	t.Helper()
	pup := backendtest.NewPuppet(t)
	pup.Env.Home = t.TempDir()
	p := &driver.Prompt{Turn: "t", CLI: "pi", Model: "@main", Text: "go on", Dir: "/workspace", Permissions: permissions}
	started := make(chan backend.Session, 1)
	go func() {
		s, err := New().Start(t.Context(), p, pup.Env, pup.Sink)
		if err == nil {
			err = s.Prompt(t.Context(), p)
		}
		if err != nil {
			t.Errorf("start: %v", err)
		}
		started <- s
	}()
	pup.Say(`{"type":"extension_ui_request","id":"0","method":"setStatus","statusKey":"skep:gate","statusText":"on"}`)
	for range 2 {
		f := pup.Hear()
		pup.Say(fmt.Sprintf(`{"type":"response","id":%q,"success":true,"data":{"sessionId":"s1","disposition":"started"}}`, f["id"]))
	}
	s := <-started
	if s == nil {
		t.FailNow()
	}
	return pup, s
}

// What pi never says to the tests that run it, or not when it is wanted.
func TestRecordsOfAllKinds(t *testing.T) {
	const start = `{"type":"message_start","message":{"role":"assistant"}}`
	const update = `{"type":"message_update","assistantMessageEvent":%s}`
	for _, c := range []struct {
		name  string
		lines []string
		want  []string // type and data of events
		end   driver.TurnEnd
	}{
		{"no JSON", []string{"(node:1) Warning"}, []string{`agent.unparsed {"raw":"(node:1) Warning"}`}, driver.TurnEnd{Status: driver.TurnCompleted}},
		{"a type of tomorrow", []string{`{"type":"hologram"}`}, []string{`agent.unparsed {"raw":"{\"type\":\"hologram\"}"}`}, driver.TurnEnd{Status: driver.TurnCompleted}},
		{"an update of tomorrow", []string{start, fmt.Sprintf(update, `{"type":"smell_delta"}`)},
			[]string{`agent.unparsed {"raw":"{\"type\":\"message_update\",\"assistantMessageEvent\":{\"type\":\"smell_delta\"}}"}`}, driver.TurnEnd{Status: driver.TurnCompleted}},
		{"a text without pieces", []string{start, `{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"hello"}],"stopReason":"stop"}}`},
			[]string{`text.done {"item":"1/0","text":"hello"}`}, driver.TurnEnd{Status: driver.TurnCompleted, Reason: "stop", Text: "hello"}},
		{"no room", []string{start, `{"type":"message_end","message":{"role":"assistant","stopReason":"length"}}`}, nil, driver.TurnEnd{Status: driver.TurnLimit, Reason: "length"}},
		{"an error", []string{start, `{"type":"message_end","message":{"role":"assistant","stopReason":"error","errorMessage":"429: {\"message\":\"slow down\"}"}}`}, nil,
			driver.TurnEnd{Status: driver.TurnFailed, Reason: "error", Fault: &driver.Fault{Kind: agent.Exhausted, Message: "429: slow down"}}},
		{"output that grows", []string{
			`{"type":"tool_execution_start","toolCallId":"c","toolName":"bash","args":{"command":"make"}}`,
			`{"type":"tool_execution_update","toolCallId":"c","partialResult":{"content":[{"type":"text","text":"a\n"}]}}`,
			`{"type":"tool_execution_update","toolCallId":"c","partialResult":{"content":[{"type":"text","text":"a\nb\n"}]}}`,
			`{"type":"tool_execution_update","toolCallId":"c","partialResult":{"content":[{"type":"text","text":"b\nc\n"}]}}`,
			`{"type":"tool_execution_end","toolCallId":"c","toolName":"bash","result":{"content":[{"type":"text","text":"all"}]},"isError":true}`,
		}, []string{
			`tool.started {"id":"c","name":"bash","action":"run","input":{"command":"make"}}`, `tool.output {"item":"c","text":"a\n"}`, `tool.output {"item":"c","text":"b\n"}`,
			`tool.ended {"id":"c","name":"bash","action":"run","failed":true,"output":"all"}`,
		}, driver.TurnEnd{Status: driver.TurnCompleted}},
		{"compaction", []string{`{"type":"compaction_start","reason":"threshold"}`, `{"type":"compaction_end","result":{}}`}, []string{"compaction"}, driver.TurnEnd{Status: driver.TurnCompleted}},
		{"an extension that fails", []string{`{"type":"extension_error","error":"boom"}`}, []string{`driver.log {"text":"pi: an extension failed: boom"}`}, driver.TurnEnd{Status: driver.TurnCompleted}},
		{"a notice", []string{`{"type":"extension_ui_request","id":"1","method":"notify","message":"hi"}`, `{"type":"extension_ui_request","id":"2","method":"setStatus"}`},
			[]string{`driver.log {"text":"pi: hi"}`}, driver.TurnEnd{Status: driver.TurnCompleted}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pup, _ := begun(t, "policy")
			pup.Say(c.lines...)
			pup.Say(`{"type":"agent_settled","aborted":false}`)
			end := backendtest.Data[driver.TurnEnd](t, pup.Wait(driver.TurnEnded))
			if diff := cmp.Diff(c.end, end); diff != "" {
				t.Errorf("the end (-want +got):\n%s", diff)
			}
			list := pup.Events()
			if diff := cmp.Diff(c.want, backendtest.Tale(list[2:len(list)-1])); diff != "" { // between the beginning of the turn and its end
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDialogs(t *testing.T) {
	for _, c := range []struct {
		ask, text string
		answer    driver.Answer
		want      string
	}{
		{`"method":"select","title":"Which?","options":["a","b"]`, "Which?", driver.Answer{Allow: true, Message: "b"}, `{"id":"q","type":"extension_ui_response","value":"b"}`},
		{`"method":"confirm","title":"Sure?","message":"really"`, "Sure?\nreally", driver.Answer{Allow: true, Message: "yes"}, `{"confirmed":true,"id":"q","type":"extension_ui_response"}`},
		{`"method":"confirm","title":"Sure?"`, "Sure?", driver.Answer{Allow: true, Message: "no"}, `{"confirmed":false,"id":"q","type":"extension_ui_response"}`},
		{`"method":"input","title":"Name"`, "Name", driver.Answer{}, `{"cancelled":true,"id":"q","type":"extension_ui_response"}`},
	} {
		pup, s := begun(t, "all")
		pup.Say(`{"type":"extension_ui_request","id":"q",` + c.ask + `}`)
		if d := backendtest.Data[driver.QuestionData](t, pup.Wait(driver.QuestionAsked)); d.Text != c.text {
			t.Errorf("the question is %q, want %q", d.Text, c.text)
		}
		c.answer.ID = "q"
		if err := s.Answer(t.Context(), &c.answer); err != nil {
			t.Fatal(err)
		}
		if b, _ := json.Marshal(pup.Hear()); string(b) != c.want {
			t.Errorf("the answer is %s, want %s", b, c.want)
		}
	}
	pup, _ := begun(t, "policy")
	pup.Say(`{"type":"extension_ui_request","id":"q","method":"input","title":"skep:permission","placeholder":"no JSON"}`) // a no, and a word
	pup.Wait(driver.Unparsed)
	if b, _ := json.Marshal(pup.Hear()); string(b) != `{"cancelled":true,"id":"q","type":"extension_ui_response"}` {
		t.Errorf("what cannot be judged is answered %s", b)
	}
}

// A pi that does not have the gate would do whatever it likes.
func TestNoGate(t *testing.T) {
	pup := backendtest.NewPuppet(t)
	pup.Env.Home = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	go func() {
		pup.Say(fmt.Sprintf(`{"type":"response","id":%q,"success":true,"data":{"sessionId":"s1"}}`, pup.Hear()["id"]))
	}()
	_, err := New().Start(ctx, &driver.Prompt{Dir: "/workspace", Model: "@main", Permissions: "policy"}, pup.Env, pup.Sink)
	if agent.KindOf(err) != agent.Failed {
		t.Errorf("pi without the gate: %v, want failed", err)
	}
	<-pup.Process().Done()
}

func TestPromptIsRefused(t *testing.T) {
	pup, s := begun(t, "policy")
	pup.Say(`{"type":"agent_settled"}`)
	pup.Wait(driver.TurnEnded)
	go func() {
		f := pup.Hear()
		pup.Say(fmt.Sprintf(`{"type":"response","id":%q,"success":false,"error":"no model"}`, f["id"]))
	}()
	if err := s.Prompt(t.Context(), &driver.Prompt{Turn: "t2", Permissions: "policy"}); err != nil {
		t.Fatal(err)
	}
	if end := backendtest.Data[driver.TurnEnd](t, pup.Wait(driver.TurnEnded)); end.Status != driver.TurnFailed || end.Fault == nil {
		t.Errorf("the turn ended as %+v", end)
	}
}

// FuzzRecords sees to it that whatever pi writes, events keep to their order and nothing is lost without a word.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"type":"message_start","message":{"role":"assistant"}}` + "\n" + `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":-1,"delta":"x"}}` + "\n" + `{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"y"}]}}`))
	f.Add([]byte(`{"type":"tool_execution_start","toolCallId":"c","toolName":"write","args":{"path":"x"}}` + "\n" + `{"type":"tool_execution_end","toolCallId":"c"}` + "\nnull\n[]\n7"))
	f.Add([]byte(`{"type":"extension_ui_request","id":"q","method":"input","title":"skep:permission","placeholder":"{\"tool\":\"bash\",\"input\":{\"command\":\"x\"}}"}` + "\n" + `{"type":"agent_settled"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		pup := backendtest.NewPuppet(t)
		s := newSession(&driver.Prompt{Dir: "/workspace"}, "/home/agent", pup.Process(), pup.Sink)
		s.Started(driver.SessionData{ID: "id", CLI: "pi"})
		if err := s.Begin("t"); err != nil {
			t.Fatal(err)
		}
		go s.read()
		pup.Babble(in, s.Done())
	})
}
