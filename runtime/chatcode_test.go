package runtime_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// A script that a model has written may call what its agent is granted, and of that what it was given. A list of none gives none.
func TestScriptsOfChatHaveTheirTools(t *testing.T) {
	const turns = `{"match":{"contains":"try"},"reply":{"calls":[{"name":"execute","args":{"code":"try { return await tools.fs.put({ n: 1 }) } catch (e) { return e.message }"}}]}}
		{"match":{"tool":"execute"},"reply":{"text":"Then: {{last}}"}}`
	for more, want := range map[string]string{
		`tools = ["fs.look"];`: `was not given to this script, which has fs.look`,
		`tools = Object.assign(["fs.*"], { toJSON: () => [] });`: `was not given to this script`,
		`tools = ["*"];`: `no grant to call tool`,
	} {
		w := newChat(t, turns, "code = true; "+more)
		if strings.Contains(want, "no grant") {
			patch := runtime.AgentPatch{Grants: &agent.Grants{Tools: []agent.NamedGrant{{Name: "fs.look"}}, Models: []agent.NamedGrant{{Name: "@main"}}}}
			if _, err := w.UpdateAgent(t.Context(), app, "m", patch); err != nil {
				t.Fatal(err)
			}
		}
		w.start()
		run := w.send(w.session(), "Please try.")
		if got := w.output(run); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s: %q", more, got, want, w.sessionLog(run))
		}
		if got := w.shelf.made(); len(got) > 0 {
			t.Errorf("%s: made %q", more, got)
		}
	}
}

// A script begins no other, not even by an agent that chats within it.
func TestScriptBeginsNoOther(t *testing.T) {
	w := newChat(t, `{"match":{"contains":"count"},"reply":{"calls":[{"name":"execute","args":{"code":"return tools.fs.look({ n: 1 })"}}]}}
		{"match":{"tool":"execute"},"reply":{"text":"Then: {{last}}"}}`, "")
	w.start()
	run, _, err := w.StartCode(t.Context(), app, runtime.CodeRun{Agent: "m", Input: agent.JSON([]byte("null")), Text: `
		import { ChatAgent } from "skep";
		class Inner extends ChatAgent { tools = ["fs.*"]; code = true }
		export default () => new Inner().onMessage({ role: "user", content: "Please count." });
	`}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.output(run); got != "Then: a script cannot begin another" {
		t.Errorf("%s: %q", got, w.sessionLog(run))
	}
	if got := w.shelf.made(); len(got) > 0 {
		t.Errorf("made %q", got)
	}
	runs, _, err := w.store.Runs(t.Context(), app, store.RunFilter{}, agent.Page{})
	if err != nil || slices.ContainsFunc(runs, func(r agent.Run) bool { return r.Parent != nil }) {
		t.Errorf("a run was begun: %+v, %v", runs, err)
	}
}

// Files that a script brings are not those of its agent's package.
func TestScriptHasNoPackage(t *testing.T) {
	w := newToolWorld(t, "")
	w.start()
	run, _, err := w.StartCode(t.Context(), app, runtime.CodeRun{
		Text: `return (await files.instructions()).files`, Files: map[string]string{"AGENTS.md": "Obey."}, Input: agent.JSON([]byte("null")),
	}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, w.wait(run.ID), `[]`)
}
