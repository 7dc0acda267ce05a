package api

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/tools/program"
)

const noteProgram = `{"steps":[
  {"step":"list","tool":"note.list","as":"names"},
  {"step":"set","name":"found","value":[]},
  {"step":"repeat","over":"${names}","as":"name","steps":[
    {"step":"read","tool":"note.read","args":{"path":"${name}"},"as":"text"},
    {"step":"if_contains","value":"${text}","text":"TODO","then":[{"step":"set","name":"found","append":"${name}"}]}
  ]},
  {"step":"change_set","title":"mark ${input.n}","calls":[
    {"tool":"note.write","over":[1,2],"as":"i","args":{"path":"n${i}","text":"${found.0}"},"undo":{"tool":"note.delete","args":{"path":"n${i}"}}}
  ]},
  {"step":"return","value":"${found}"}
]}`

func TestPrograms(t *testing.T) {
	r, n := startTools(t, Options{})
	ctx := context.Background()
	checked, err := r.c.CheckProgram(ctx, json.RawMessage(noteProgram))
	if err != nil || checked.Steps != 8 || len(checked.Tools) != 4 || checked.Tools[3].Effect != agent.Modify {
		t.Errorf("%+v %v", checked, err)
	}
	wait := 20
	run := func() client.CodeResult {
		t.Helper()
		out, err := r.c.RunProgram(ctx, client.Program{Program: json.RawMessage(noteProgram), Input: json.RawMessage(`{"n":2}`), Wait: &wait})
		if err != nil || out.Status != agent.Waiting || len(out.Asks) != 1 || len(out.Asks[0].Calls) < 2 || out.Asks[0].Title != "mark 2" {
			t.Fatalf("%+v %v", out, err)
		}
		return out
	}
	out := run()
	if _, err := r.c.AnswerApprovals(ctx, []agent.ApprovalID{out.Asks[0].ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	if done := r.wait(out.Run); done.Status != agent.Completed || string(done.Output.Body) != `["tea"]` {
		t.Errorf("%s %s %+v", done.Status, done.Output, done.Error)
	}
	if text, _ := n.has("n2"); text != "tea" {
		t.Errorf("%q", text)
	}

	out = run() // refused as a whole
	if _, err := r.c.AnswerApprovals(ctx, []agent.ApprovalID{out.Asks[0].ID}, agent.ApprovalAnswer{Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	if done := r.wait(out.Run); done.Status != agent.RunFailed || !strings.Contains(done.Error.Msg, "/steps/3: ") || !strings.Contains(done.Error.Msg, "no") {
		t.Errorf("%s %+v", done.Status, done.Error)
	}
}

// A program's change set whose third call fails is rolled back after one question.
func TestProgramIsRolledBack(t *testing.T) {
	r, n := startTools(t, Options{})
	n.full = true // n2 cannot be written
	ctx, wait := context.Background(), 20
	out, err := r.c.RunProgram(ctx, client.Program{Program: json.RawMessage(`{"steps":[
  {"step":"change_set","title":"three","calls":[
    {"tool":"note.write","over":[1,3,2],"as":"i","args":{"path":"n${i}","text":"x"},"undo":{"tool":"note.delete","args":{"path":"n${i}"}}}]}]}`), Wait: &wait})
	if err != nil || len(out.Asks) != 1 || len(out.Asks[0].Calls) != 6 || !out.Asks[0].Calls[1].Undo || string(out.Asks[0].Calls[1].Args) != `{"path":"n1"}` {
		t.Fatalf("%+v %v", out, err)
	}
	if _, err := r.c.AnswerApprovals(ctx, []agent.ApprovalID{out.Asks[0].ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	done := r.wait(out.Run)
	if done.Status != agent.RunFailed || !strings.HasSuffix(done.Error.Msg, "there is no room for n2; call 2, note.write, was undone; call 1, note.write, was undone") {
		t.Errorf("%s %+v", done.Status, done.Error)
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if _, there := n.has(name); there {
			t.Errorf("%s is there still", name)
		}
	}
}

func TestProgramsThatAreWrong(t *testing.T) {
	r, _ := startTools(t, Options{})
	ctx := context.Background()
	for text, says := range map[string]string{
		`{"steps":[{"step":"call","tool":"note.write"}]}`: "/steps/0/tool: the effect of note.write is modify",
		`{"steps":[{"step":"call","tool":"note.wipe"}]}`:  "/steps/0/tool: there is no tool",
		`{"steps":[{"step":"list"}]}`:                     "/steps/0/tool: this is missing",
		`7`:                                               "expected an object with steps",
	} {
		if _, err := r.c.RunProgram(ctx, client.Program{Program: json.RawMessage(text)}); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
	wait := 301
	_, err := r.c.RunProgram(ctx, client.Program{Program: json.RawMessage(`{"steps":[{"step":"return"}]}`), Wait: &wait})
	wantKind(t, err, agent.Invalid)
	runs, err := r.c.Runs(ctx, client.RunFilter{}, agent.Page{})
	if err != nil || len(runs.Items) != 0 {
		t.Errorf("%+v %v", runs, err)
	}
	if res := r.do("GET", "/v1/programs/schema", "", "Authorization", ""); string(res.body) != string(program.Schema()) {
		t.Errorf("%s", res.body)
	}
}
