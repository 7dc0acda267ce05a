package claude_test

import (
	"flag"
	"testing"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/backendtest"
)

var update = flag.Bool("update", false, "write golden files; delete one first to forget what it had")

// kindOf names a frame.
func kindOf(f map[string]any) string {
	name, _ := f["type"].(string)
	for _, at := range []struct{ in, field string }{{"", "subtype"}, {"request", "subtype"}, {"event", "type"}} {
		v := f
		if at.in != "" {
			v, _ = f[at.in].(map[string]any)
		}
		if s, ok := v[at.field].(string); ok && name != "result" {
			name += "/" + s
		}
	}
	if name == "control_response" { // what it has in it differs with what was asked
		r, _ := f["response"].(map[string]any)
		if r["request_id"] == "skep-1" {
			return ""
		}
	}
	return name
}

// TestFrames sees to it that the version of the CLI that is tested speaks as it did when this backend was written.
func TestFrames(t *testing.T) {
	shapes := backendtest.Shapes{}
	add := func(r *backendtest.Rig) {
		shapes.Add(r.Output(0), kindOf,
			"assistant: message.usage", "assistant: message.content[].input", "user: tool_use_result", "control_request/can_use_tool: request.input",
			"result: usage", "result: modelUsage", "result: model_usage_since_last_result", "result: subagent_stats", "result: permission_denials",
			"system/init: slash_commands", "stream_event/message_start: event.message.usage", "stream_event/message_delta: event.usage", "system/init: plugins")
	}
	r := rig(t,
		`{"match":{"contains":"please write"},"reply":{"reasoning":"hm","signature":"c2ln","text":"I write.","calls":[{"name":"Write","args":{"file_path":"x.txt","content":"x"}}]}}`,
		`{"match":{"contains":"please run"},"reply":{"calls":[{"name":"Bash","args":{"command":"echo x","description":"say x"}}]}}`,
		`{"match":{"contains":"please be slow"},"reply":{"text":"`+long+`","pace_ms":50,"chunk":5}}`,
		`{"match":{"contains":"please fail"},"fault":{"status":400,"message":"no"}}`,
		`{"match":{},"reply":{"text":"done"}}`)
	s := r.Start(prompt)
	turn := func(name string, each func(driver.Event) bool) {
		p := prompt
		p.Turn, p.Text = name, name
		r.Prompt(s, p)
		for e := r.Wait(driver.PermissionAsked, driver.TextDelta, driver.TurnEnded); e.Type != driver.TurnEnded; {
			if each(e) {
				r.Wait(driver.TurnEnded)
				return
			}
			e = r.Wait(driver.PermissionAsked, driver.TextDelta, driver.TurnEnded)
		}
	}
	answer := func(allow bool) func(driver.Event) bool {
		return func(e driver.Event) bool {
			if e.Type == driver.PermissionAsked {
				if err := s.Answer(t.Context(), &driver.Answer{ID: e.Native, Allow: allow}); err != nil {
					t.Error(err)
				}
			}
			return false
		}
	}
	interrupt := func(on string) func(driver.Event) bool {
		return func(e driver.Event) bool {
			if e.Type != on {
				return false
			}
			if err := s.Interrupt(t.Context()); err != nil {
				t.Error(err)
			}
			return true
		}
	}
	turn("please write", answer(true))
	turn("please run", answer(false))
	turn("please be slow", interrupt(driver.TextDelta))
	turn("please run it again; please run", interrupt(driver.PermissionAsked))
	turn("please fail", answer(true))
	r.Down()
	turn("nobody is there", answer(true))
	r.Close(s)
	add(r)
	backendtest.Contract(t, "testdata/frames.golden", shapes, *update)
}

const long = "tick tock tick tock tick tock tick tock tick tock tick tock tick tock tick tock tick tock tick tock tick tock tick tock tick tock tick tock"
