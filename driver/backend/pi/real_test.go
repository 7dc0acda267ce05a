package pi_test

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/backendtest"
)

var update = flag.Bool("update", false, "write golden files; delete one first to forget what it had")

var prompt = driver.Prompt{Turn: "t1", Text: "go on", Permissions: "policy"}

// What comes with the work must not decide what may be done, and what is judged must be what is done: pi reads paths in a way of its own.
func TestWorkspaceAllowsNothing(t *testing.T) {
	r := rig(t,
		`{"reply":{"calls":[{"name":"write","args":{"path":"@~/one.txt","content":"x"}},{"name":"write","args":{"path":"file:///etc/two.txt","content":"x"}},`+
			`{"name":"read","args":{"path":"a\u00a0b/../../home/three.txt"}},{"name":"bash","args":{"command":"ls"}},{"name":"edit","args":{"path":"x","edits":[{"oldText":"a","newText":"b"}]}}]}}`,
		`{"reply":{"text":"done"}}`)
	r.Put(".pi/extensions/evil.ts", `import {writeFileSync} from "node:fs"; export default () => writeFileSync("evil.txt", "x");`)
	r.Put(".pi/settings.json", `{"extensions":["./evil.ts"],"defaultTools":["+codemode"]}`)
	r.Put(".pi/mcp.json", `{"mcpServers":{"evil":{"command":"sh","args":["-c","echo x > served.txt"]}}}`)
	before := r.Tree()
	s := r.Start(prompt)
	asked := r.Refuse(s, prompt)
	for i := range asked {
		asked[i] = strings.ReplaceAll(asked[i], filepath.Dir(r.Dir), "ROOT")
	}
	slices.Sort(asked)
	want := []string{
		`edit {"path":"/etc/two.txt"}`, `edit {"path":"ROOT/home/one.txt"}`, `edit {"path":"x"}`, `read {"path":"ROOT/home/three.txt"}`, `run {"command":"ls","cwd":"ROOT/work"}`,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("what was asked (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, r.Tree()); diff != "" {
		t.Errorf("something was done (-want +got):\n%s", diff)
	}
}

func TestResumeOfNothing(t *testing.T) {
	r := rig(t, `{"reply":{"text":"done"}}`)
	p := prompt
	for id, want := range map[string]agent.Kind{"NOBODY": agent.NotFound, "--approve": agent.Invalid, "../../etc/passwd": agent.Invalid} {
		p.Resume = id
		if _, err := r.Try(p); agent.KindOf(err) != want {
			t.Errorf("to resume %s: %v, want %s", id, err, want)
		}
	}
	p.Resume, p.Model = "", "test/other"
	s := r.Start(p)
	if err := s.Prompt(t.Context(), &driver.Prompt{Turn: "t", Model: "@main", Permissions: "policy"}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("another model: %v, want a conflict", err)
	}
	r.Turn(s, p)
	if body := string(r.Requests()[0].Body); !strings.Contains(body, `"model":"test/other"`) {
		t.Errorf("another model is asked: %.80s", body)
	}
}

// TestRecords sees to it that the version of pi that is tested speaks as it did when this backend was written.
func TestRecords(t *testing.T) {
	r := rig(t,
		`{"match":{"contains":"please write"},"reply":{"reasoning":"hm, let me see","text":"I write.","calls":[{"name":"write","args":{"path":"x.txt","content":"x"}}]}}`,
		`{"match":{"contains":"please run"},"reply":{"calls":[{"name":"bash","args":{"command":"echo x; echo y"}}]}}`,
		`{"match":{"contains":"please be slow"},"reply":{"text":"`+strings.Repeat("tick tock ", 40)+`","pace_ms":50,"chunk":5}}`,
		`{"match":{"contains":"please fail"},"fault":{"status":400,"message":"no"}}`,
		`{"match":{},"reply":{"text":"done"}}`)
	s := r.Start(prompt)
	turn := func(name string, allow bool, slow bool) driver.TurnEnd {
		p := prompt
		p.Turn, p.Text = name, name
		r.Prompt(s, p)
		for {
			e := r.Wait(driver.PermissionAsked, driver.TextDelta, driver.TurnEnded)
			switch {
			case e.Type == driver.TurnEnded:
				return backendtest.Data[driver.TurnEnd](t, e)
			case e.Type == driver.PermissionAsked:
				if err := s.Answer(t.Context(), &driver.Answer{ID: e.Native, Allow: allow}); err != nil {
					t.Error(err)
				}
			case slow:
				slow = false
				if err := s.Interrupt(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}
	turn("please write", true, false)
	turn("please run", true, false)
	turn("please run it once more, please run", false, false)
	turn("please be slow", true, true)
	turn("please fail", true, false)
	r.Down()
	end := turn("nobody is there", true, false)
	if end.Fault == nil || end.Fault.Kind != agent.Unavailable {
		t.Errorf("without a gateway the turn ended as %+v (%v)", end, end.Fault)
	}
	if list := backendtest.Of[driver.RetryData](r, driver.ModelRetry); len(list) != 2 || list[0].Attempt != 1 || list[0].Wait <= 0 {
		t.Errorf("the retries are %+v, want 2", list)
	}
	var thought string
	for _, d := range backendtest.Of[driver.TextData](r, driver.ReasoningDelta) {
		thought += d.Text
	}
	if thought != "hm, let me see" {
		t.Errorf("the model thought %q", thought)
	}
	r.Close(s)
	shapes := backendtest.Shapes{}
	shapes.Add(r.Output(0), func(v map[string]any) string {
		name, _ := v["type"].(string)
		for _, at := range [][2]string{{"message", "role"}, {"assistantMessageEvent", "type"}} {
			if m, ok := v[at[0]].(map[string]any); ok {
				if s, ok := m[at[1]].(string); ok && name != "turn_end" {
					name += "/" + s
				}
			}
		}
		if c, ok := v["command"].(string); ok {
			name += "/" + c
		}
		return name
	}, "*: usage", "agent_end: messages", "turn_end: message", "turn_end: toolResults", "message_start/system: message", "message_end/system: message",
		"tool_execution_start: args", "tool_execution_update: args", "message_end/assistant: message.content[].arguments", "response/get_state: data.model",
		"message_update/toolcall_end: assistantMessageEvent.toolCall.arguments")
	backendtest.Contract(t, "testdata/records.golden", shapes, *update)
}
