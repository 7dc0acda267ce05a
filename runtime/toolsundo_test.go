package runtime_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// threePuts is a change whose third call fails, in worlds that failThird has prepared. What is undone is written with fs.run.
const threePuts = `[1, 2, 3].map((n) => ({ tool: "fs.put", args: { n }, undo: { tool: "fs.run", args: { n } } }))`

func failThird(w *toolWorld) *toolWorld {
	puts := 0
	w.shelf.hold = func(_ context.Context, method string, _ *tools.CallOptions) error {
		if method != "put" {
			return nil
		}
		if puts++; puts%3 == 0 {
			return agent.Errorf(agent.Failed, "the disk is full")
		}
		return nil
	}
	w.start()
	return w
}

// A change set is rolled back by what was approved with it: there is one question.
func TestUndoIsApproved(t *testing.T) {
	for name, policy := range map[string]string{"all are asked about": "", "only undos are": "read: allow\nmodify: allow\nexecute: ask\n"} {
		t.Run(name, func(t *testing.T) {
			w := failThird(newToolWorld(t, policy))
			run := w.code(`try { await tools.change("three", ` + threePuts + `); } catch (e) { return e.data; }`)
			ask := w.asks(1)[0]
			var shown []string
			for i, c := range ask.Calls {
				n, of := ask.Position(i)
				shown = append(shown, fmt.Sprintf("%d/%d %s%s %v", n, of, c.Tool, c.Args, c.Undo))
			}
			want := []string{
				`1/3 fs.put{"n":1} false`, `1/3 fs.run{"n":1} true`, `2/3 fs.put{"n":2} false`, `2/3 fs.run{"n":2} true`, `3/3 fs.put{"n":3} false`, `3/3 fs.run{"n":3} true`,
			}
			if d := cmp.Diff(want, shown); d != "" {
				t.Errorf("question (-want +got):\n%s", d)
			}
			w.answer(true, ask)
			wantOutput(t, w.wait(run.ID), `{"failed":3,"undone":[{"call":2,"tool":"fs.put"},{"call":1,"tool":"fs.put"}],"kept":[]}`)
			if d := cmp.Diff([]string{`put{"n":1}`, `put{"n":2}`, `put{"n":3}`, `run{"n":2}`, `run{"n":1}`}, w.shelf.made()); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
		})
	}
}

// What was approved as an undo is nothing else: not the same call by itself, not one with other arguments, and not for the rest of the run.
func TestUndoIsNothingElse(t *testing.T) {
	w := failThird(newToolWorld(t, ""))
	run := w.code(`const said = [];
await tools.change("works", [{ tool: "fs.put", args: { n: 1 }, undo: { tool: "fs.run", args: { n: 1 } } }]);
try { await tools.fs.run({ n: 1 }); } catch (e) { said.push(e.kind); }
try {
  await tools.change("fails", [
    { tool: "fs.put", args: { n: 2 }, undo: () => tools.fs.run({ n: 99 }) },
    { tool: "fs.put", args: { n: 3 }, undo: { tool: "fs.run", args: { n: 3 } } },
  ]);
} catch (e) { said.push(e.message); }
return said;`)
	first := w.asks(1)[0]
	if _, err := w.AnswerApprovals(t.Context(), app, "test", []agent.ApprovalID{first.ID}, agent.ApprovalAnswer{Allow: true, Scope: agent.ScopeRun}); err != nil {
		t.Fatal(err)
	}
	byItself := w.asks(1)[0]
	if len(byItself.Calls) != 1 || byItself.Calls[0].Tool != "fs.run" || byItself.Calls[0].Undo {
		t.Fatalf("question: %s", shown(byItself))
	}
	w.answer(false, byItself)
	w.answer(true, w.asks(1)[0]) // the second change, because of its undo
	other := w.asks(1)[0]
	if len(other.Calls) != 1 || string(other.Calls[0].Args) != `{"n":99}` {
		t.Fatalf("question: %s", shown(other))
	}
	w.answer(false, other)
	wantOutput(t, w.wait(run.ID), `["denied","call 2 of 2, fs.put, failed: the disk is full; call 1, fs.put, was not undone: its undo failed: `+
		`the call of fs.run was not approved: a person has denied it: so it is"]`)
	if d := cmp.Diff([]string{`put{"n":1}`, `put{"n":2}`, `put{"n":3}`}, w.shelf.made()); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// A change whose undo policy denies is refused before any of it is done, and nobody is asked.
func TestUndoThatIsDenied(t *testing.T) {
	w := failThird(newToolWorld(t, "read: allow\nmodify: ask\nexecute: deny\n"))
	run := w.wait(w.code(`try { await tools.change("three", ` + threePuts + `); } catch (e) { return [e.kind, e.message.slice(0, 57)]; }`).ID)
	wantOutput(t, run, `["denied","the call of fs.run, which would undo another, is denied: "]`)
	if w.asks(0); len(w.shelf.made()) > 0 {
		t.Errorf("calls: %q", w.shelf.made())
	}
}
