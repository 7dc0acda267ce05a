package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

const allowEdits = "rules:\n  - allow cli.edit\n"

// A CLI works, says what it does, and what it changed is kept as a patch. Its box goes with the run.
func TestBoxRun(t *testing.T) {
	w := newBoxWorld(t, allowEdits, "", agent.Cattle, func(c *cliTurn) {
		c.tell(driver.ReasoningDelta, driver.TextData{Item: "1", Text: "Hm. "})
		if why := c.write("a.txt", "hello\n"); why != "" {
			t.Errorf("it is denied: %s", why)
		}
		c.tell(driver.UsageTold, driver.UsageData{Input: 10, Output: 3})
		c.tell(driver.UsageTold, driver.UsageData{Input: 5, Output: 1})
		c.say("2", "It is ", "done: ", c.prompt.Text)
	})
	w.start()
	run := w.task(`"write it"`, "")
	out := w.outcome(run)
	if out.Text != "It is done: write it" || out.Status != "completed" || out.Usage["input"] != 15 || out.Usage["output"] != 4 || len(out.Changed) != 1 {
		t.Errorf("%+v", out)
	}
	if patch := w.file(run, out.Patch); !strings.Contains(patch, "+++ b/a.txt") || !strings.Contains(patch, "+hello") {
		t.Errorf("patch %s", patch)
	}
	var list abi.SandboxList
	if err := json.Unmarshal([]byte(w.file(run, out.List)), &list); err != nil || list.Files != 1 || list.Base == "" || len(list.Changed) != 1 || list.Changed[0].Path != "a.txt" {
		t.Errorf("list %+v, %v", list, err)
	}
	told := strings.Join(w.told(run), ", ")
	for _, want := range []string{
		"cli session.started", "cli turn.started", "cli permission.asked", "tool.called", "tool.returned", "cli file.changed, cli usage, cli usage, message.delta", "message.done, cli turn.ended",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not in %s", want, told)
		}
	}
	w.yard.none()
}

// What nobody allows leaves no trace, and the CLI is told why. Several permissions are asked about at once, also of a person.
func TestBoxDenied(t *testing.T) {
	var said []string
	w := newBoxWorld(t, "rules:\n  - deny cli.run(rm *)\n  - ask cli.edit\n  - allow cli.read\n", "", agent.Cattle, func(c *cliTurn) {
		said = make([]string, 4)
		var all sync.WaitGroup
		all.Go(func() {
			said[0] = c.permit(driver.ActionRun, map[string]string{"command": "make && rm -rf .", "cwd": "/workspace"})
		})
		all.Go(func() { said[1] = c.write("denied.txt", "no") })
		all.Go(func() { said[2] = c.write("allowed.txt", "yes") })
		all.Go(func() { said[3] = c.permit(driver.ActionRead, map[string]string{"path": "x"}) })
		all.Wait()
		c.say("1", "over")
	})
	w.start()
	run := w.task(`{"task": "try"}`, "")
	asks := w.asks(2)
	for _, a := range asks {
		w.answer(strings.Contains(string(a.Calls[0].Args), "allowed"), a)
	}
	out := w.outcome(run)
	if len(out.Changed) != 1 || out.Changed[0].Path != "allowed.txt" || out.Text != "over" {
		t.Errorf("%+v", out)
	}
	if !strings.Contains(said[0], "cli.run is denied") || !strings.Contains(said[1], "so it is") || said[2] != "" || said[3] != "" {
		t.Errorf("the CLI was told %q", said)
	}
}

// The process ends in the middle of a turn, and of a permission about which a person is asked. The next one goes on: nothing is done or told twice.
func TestBoxRestart(t *testing.T) {
	for _, how := range []string{"stop", "crash"} {
		t.Run(how, func(t *testing.T) {
			gate, prompts := make(chan struct{}), 0
			w := newBoxWorld(t, "rules:\n  - ask cli.edit\n", "", agent.Cattle, func(c *cliTurn) {
				prompts++
				c.say("1", "first. ")
				if why := c.write("a.txt", "once\n"); why != "" {
					t.Errorf("it is denied: %s", why)
				}
				<-gate // in the middle of the turn
				c.say("2", "second.")
			})
			if how == "crash" {
				w.opts.Grace = time.Nanosecond
				w.Runtime = runtime.New(w.store, w.cells, &w.opts)
				w.yard.serve(w.Runtime)
			}
			stop := w.start()
			run := w.task(`"go"`, "")
			asks := w.asks(1)
			began := time.Now()
			w.yard.serve(nil)
			stop()
			if took := time.Since(began); took > 900*time.Millisecond && how == "stop" {
				t.Logf("it took %s to stop", took)
			}
			w = w.again()
			stop = w.start()
			w.answer(true, asks...)
			w.untilTold(run, driver.FileChanged)
			w.yard.serve(nil)
			stop()
			w = w.again()
			close(gate) // nobody is there to hear it
			w.start()
			out := w.outcome(run)
			if out.Text != "second." || len(out.Changed) != 1 || prompts != 1 || out.Status != "completed" {
				t.Errorf("%+v after %d turns", out, prompts)
			}
			told := w.told(run)
			for what, n := range map[string]int{
				"cli turn.started": 1, "cli permission.asked": 1, "approval.requested": 1, "approval.answered": 1, "tool.called": 1, "cli file.changed": 1,
				"cli turn.ended": 1, "message.done": 2, "cli session.started": 1,
			} {
				if got := len(slices.DeleteFunc(slices.Clone(told), func(s string) bool { return s != what })); got != n {
					t.Errorf("%d of %s in %q", got, what, told)
				}
			}
			w.yard.none()
		})
	}
}

func (w *boxWorld) untilTold(run agent.Run, name string) {
	w.t.Helper()
	eventually(w.t, "the session does not tell of "+name, func() bool { return slices.Contains(w.told(run), "cli "+name) })
}

// A run that is cancelled or terminated takes its CLI along. A sandbox that the agent keeps stays, and can be used again.
func TestBoxCancelled(t *testing.T) {
	for _, keep := range []agent.SandboxKeep{agent.Cattle, agent.Pet} {
		for _, how := range []string{"cancel", "terminate"} {
			t.Run(keep.String()+" "+how, func(t *testing.T) {
				ended := make(chan struct{}, 2)
				w := newBoxWorld(t, "", "", keep, func(c *cliTurn) {
					if c.prompt.Text == "hang" {
						c.tell(driver.PlanUpdated, driver.PlanData{})
						<-c.ctx.Done()
					}
					ended <- struct{}{}
				})
				w.start()
				run := w.task(`"hang"`, "")
				w.untilTold(run, driver.PlanUpdated)
				end := w.Cancel
				if how == "terminate" {
					end = w.TerminateRuns
				}
				if _, err := end(t.Context(), app, run.ID); err != nil {
					t.Fatal(err)
				}
				if run = w.wait(run.ID); run.Status != agent.RunCancelled {
					t.Errorf("the run is %s: %s", run.Status, shown(run.Error))
				}
				select {
				case <-ended:
				case <-time.After(20 * time.Second):
					t.Fatal("the CLI goes on")
				}
				if keep == agent.Cattle {
					w.yard.none()
					return
				}
				next := w.task(`"more"`, run.Session)
				if out := w.outcome(next); out.Status != "completed" {
					t.Errorf("the next run: %+v", out)
				}
				w.yard.only()
			})
		}
	}
}

// Runs of an agent that keeps its sandbox have it one after the other. One of the same session goes on with the CLI's session.
func TestBoxPet(t *testing.T) {
	gate := make(chan struct{})
	var resumed sync.Map // by task
	w := newBoxWorld(t, allowEdits, "", agent.Pet, func(c *cliTurn) {
		resumed.Store(c.prompt.Text, c.prompt.Resume)
		if c.prompt.Text == "first" {
			<-gate
		}
		c.write(c.prompt.Text+".txt", c.prompt.Text)
		c.say("1", "session "+c.s.id)
	})
	w.start()
	first := w.task(`"first"`, "")
	w.untilTold(first, driver.TurnStarted)
	other := w.task(`"other"`, "")
	if _, ok := w.ended(other, 300*time.Millisecond); ok {
		t.Error("two runs have the sandbox at once")
	}
	close(gate)
	if out := w.outcome(first); len(out.Changed) != 1 || out.Changed[0].Path != "first.txt" {
		t.Errorf("the first: %+v", out)
	}
	if out := w.outcome(other); len(out.Changed) != 1 || out.Changed[0].Path != "other.txt" {
		t.Errorf("the other: %+v", out)
	}
	box := w.yard.only()
	if err := box.link.Do(t.Context(), driver.DoSignal, driver.SignalArgs{ID: "cli"}, nil); err != nil { // a CLI that dies between runs
		t.Log(err)
	}
	w.outcome(w.task(`{"task": "third"}`, first.Session))
	if d := cmp.Diff(1, len(w.yard.boxes)); d != "" {
		t.Error(d)
	}
	if files, _ := filepath.Glob(box.work + "/*.txt"); len(files) != 3 {
		t.Errorf("the workspace has %q", files)
	}
	// One whose files have begun anew knows no session of the CLI's.
	if _, err := w.store.ChangeSandbox(t.Context(), box.id, func(r *agent.SandboxRecord) error { r.Kept = 2; return nil }); err != nil {
		t.Fatal(err)
	}
	w.outcome(w.task(`"fourth"`, first.Session))
	for task, want := range map[string]string{"first": "", "third": "native-1", "fourth": ""} {
		if got, _ := resumed.Load(task); got != want {
			t.Errorf("the %s task goes on with the session %q, want %q", task, got, want)
		}
	}
}

// ended waits for a run for a while.
func (w *boxWorld) ended(run agent.Run, d time.Duration) (agent.Run, bool) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	run, err := w.Wait(ctx, app, run.ID)
	return run, err == nil
}

// A CLI that does not ask any more takes the question to a person back, and the turn's end all that are left.
func TestBoxWithdrawn(t *testing.T) {
	w := newBoxWorld(t, "rules:\n  - ask cli.edit\n", "", agent.Cattle, func(c *cliTurn) {
		for _, path := range []string{"a", "b"} {
			go c.write(path, "no")
		}
		<-c.ctx.Done()
		c.withdraw()
	})
	w.start()
	run := w.task(`"go"`, "")
	asks := w.asks(2)
	box := w.yard.only()
	var turn string
	eventually(t, "no turn", func() bool {
		list, err := w.store.Read(t.Context(), store.SessionLog(app, run.Session), 0, 0)
		for _, ev := range list {
			var d struct{ Turn string }
			if ev.Name == driver.TurnStarted && json.Unmarshal(ev.Data, &d) == nil {
				turn = d.Turn
			}
		}
		return err == nil && turn != ""
	})
	if err := box.Do(t.Context(), driver.DoInterrupt, driver.InterruptArgs{Turn: turn}, nil); err != nil {
		t.Fatal(err)
	}
	if out := w.outcome(run); out.Status != "interrupted" || len(out.Changed) != 0 {
		t.Errorf("%+v", out)
	}
	w.asks(0)
	if _, err := w.AnswerApprovals(t.Context(), app, "test", []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("a late answer: %v", err)
	}
	if told := strings.Count(strings.Join(w.told(run), " "), "approval.answered"); told != 2 {
		t.Errorf("%d answers are told of", told)
	}
}

// A question of a CLI is for a person.
func TestBoxQuestion(t *testing.T) {
	w := newBoxWorld(t, "", "", agent.Cattle, func(c *cliTurn) {
		for i, q := range []driver.QuestionData{
			{Text: "Which?", Options: []string{"red", "blue"}}, {Text: "Really?"},
			{Text: "Whose?", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)},
		} {
			a, _ := c.ask(driver.QuestionAsked, func(id string) any { q.ID = id; return q })
			c.say(fmt.Sprint(i), c.end.Text, fmt.Sprintf("%v %s;", a.Allow, a.Message))
		}
	})
	w.start()
	run := w.task(`"go"`, "")
	for _, a := range []agent.ApprovalAnswer{{Allow: true, Content: json.RawMessage(`{"answer":"blue"}`)}, {Reason: "no time"}, {Allow: true, Content: json.RawMessage(`{"name":"Ann"}`)}} {
		ask := w.asks(1)[0]
		if ask.Asks == nil || ask.Title != "claude" {
			t.Errorf("%+v", ask)
		}
		if _, err := w.AnswerApprovals(t.Context(), app, "test", []agent.ApprovalID{ask.ID}, a); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the question stays", func() bool {
			list, _, err := w.Approvals(t.Context(), app, agent.Page{})
			return err == nil && !slices.ContainsFunc(list, func(o agent.Approval) bool { return o.ID == ask.ID })
		})
	}
	if out := w.outcome(run); out.Text != `true blue;false no time;true {"name":"Ann"};` {
		t.Errorf("%q", out.Text)
	}
}

// A turn that fails fails the run. What it has changed is kept.
func TestBoxFails(t *testing.T) {
	w := newBoxWorld(t, allowEdits, "", agent.Cattle, func(c *cliTurn) {
		c.write("half.txt", "half")
		c.end = driver.TurnEnd{Status: driver.TurnFailed, Fault: &driver.Fault{Kind: agent.Unavailable, Message: "the model does not answer"}}
	})
	w.start()
	run := w.task(`"go"`, "")
	if got := w.output(run); !strings.Contains(got, "claude has failed: the model does not answer") {
		t.Error(got)
	}
	log := strings.Join(w.sessionLog(run), "\n")
	if !strings.Contains(log, `sandbox.changes {"patch":"artifacts/`) {
		t.Errorf("log:\n%s", log)
	}
}

// A sandbox that is lost ends the run, with the reason.
func TestBoxLost(t *testing.T) {
	w := newBoxWorld(t, "", "", agent.Cattle, func(c *cliTurn) { <-c.ctx.Done() })
	w.start()
	run := w.task(`"go"`, "")
	w.untilTold(run, driver.TurnStarted)
	sb := w.yard.only()
	if used, err := w.BoxInUse(t.Context(), sb.Record()); !used || err != nil {
		t.Errorf("in use: %v, %v", used, err)
	}
	rec, err := w.store.ChangeSandbox(t.Context(), sb.id, func(r *agent.SandboxRecord) error {
		r.State, r.Error = agent.SandboxLost, &agent.RunError{Kind: agent.Failed, Msg: "someone has killed it"}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.BoxChanged(t.Context(), rec.Sandbox)
	if got := w.output(run); !strings.Contains(got, "the sandbox was lost in the middle of the turn: it is lost: someone has killed it") {
		t.Error(got)
	}
	w.yard.none()
	if gone, err := w.BoxGone(t.Context(), rec.Sandbox); !gone || err != nil {
		t.Errorf("gone: %v, %v", gone, err)
	}
	if used, err := w.BoxInUse(t.Context(), rec.Sandbox); used || err != nil {
		t.Errorf("in use: %v, %v", used, err)
	}
}

// A run that waits for the sandbox of an agent has it, though it was lost while another run had it.
func TestBoxPetLost(t *testing.T) {
	turn := make(chan string, 1)
	w := newBoxWorld(t, "", "", agent.Pet, func(c *cliTurn) {
		if c.prompt.Text == "hang" {
			turn <- c.prompt.Turn
			<-c.ctx.Done()
		}
	})
	w.start()
	first := w.task(`"hang"`, "")
	w.untilTold(first, driver.TurnStarted)
	sb, hangs := w.yard.only(), <-turn
	w.yard.mu.Lock()
	w.yard.fail = func(name string) error {
		switch {
		case name == driver.DoPrompt: // in the same box, as the yard has no other: its CLI has to be free
			return sb.link.Do(t.Context(), driver.DoInterrupt, driver.InterruptArgs{Turn: hangs}, nil)
		case sb.Record().State == agent.SandboxLost:
			return agent.Errorf(agent.Unavailable, "the sandbox was lost")
		}
		return nil
	}
	w.yard.mu.Unlock()
	next := w.task(`"other"`, "")
	if _, ok := w.ended(next, 300*time.Millisecond); ok {
		t.Error("two runs have the sandbox at once")
	}
	rec, err := w.store.ChangeSandbox(t.Context(), sb.id, func(r *agent.SandboxRecord) error { r.State = agent.SandboxLost; return nil })
	if err != nil {
		t.Fatal(err)
	}
	w.BoxChanged(t.Context(), rec.Sandbox)
	if got := w.output(first); !strings.Contains(got, "the sandbox was lost") {
		t.Error(got)
	}
	if out := w.outcome(next); out.Status != "completed" {
		t.Errorf("%+v", out)
	}
}

const boxScript = `
import { sandbox, files, Agent } from "skep";
export async function run() {
	const box = await sandbox.open();
	await files.write("in/a.txt", "attached");
	const { commit } = await box.repo();
	const put = await box.attach(["in/a.txt"]);
	const info = await box.write("d/x.json", { n: 1 });
	await box.write("big", new Uint8Array(5000));
	const exit = await box.exec("cat .attachments/in/a.txt; echo oops >&2; exit 3");
	const words = await box.exec(["printf", "%s", "a b"], { dir: "d", env: { X: "1" } });
	const bg = await box.exec("sleep 100", { background: true });
	const ran = (await box.processes()).some((p) => p.id === bg.id && !p.ended);
	await box.signal(bg.id);
	const diff = await box.diff({ commit: "All of it", branch: "work" });
	const saved = await box.checkpoint(["d"]);
	await box.delete("d", { recursive: true });
	await box.delete("d", { recursive: true });
	const left = (await box.list()).map((f) => f.path).filter((p) => !p.startsWith("."));
	await box.restore(saved);
	const again = await box.restore(saved.file);
	await files.write(saved.file, "not a tar");
	const broken = await box.restore(saved).catch((e) => e.message);
	const none = await box.read("gone").catch((e) => e.kind);
	const outside = await box.checkpoint(["../x"]).catch((e) => e.kind);
	return {
		keep: box.keep, put, size: info.size, out: exit.stdout, err: exit.stderr, code: exit.code, words: words.stdout, ran, left, x: await box.read("d/x.json", { as: "json" }),
		part: (await box.read("big", { as: "bytes", offset: 4990 })).length, changed: diff.changed.map((c) => c.path), bundle: diff.bundle?.endsWith(".bundle"), commit: diff.commit !== commit,
		saved: [saved.files, again.digest === saved.digest], broken, none, outside,
	};
}
export async function call() { return sandbox.open().catch((e) => e.kind); }
export async function cli() {
	const box = await sandbox.open();
	return box.work("go").catch((e) => e.message);
}
`

// Code of an agent drives its sandbox.
func TestBoxScript(t *testing.T) {
	w := newBoxWorld(t, "", boxScript, agent.Cattle, nil)
	w.agent(agent.Agent{Name: "own", Sandbox: &agent.SandboxUse{Environment: "env@1"}})
	w.start()
	run := func(name, function string) string {
		t.Helper()
		run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: name, Function: function, Input: agent.JSON([]byte("null"))}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		return w.output(run)
	}
	want := `{"keep":"cattle","put":{"paths":[".attachments/in/a.txt"],"images":[]},"size":7,"out":"attached","err":"oops\n","code":3,"words":"a b","ran":true,"left":["big"],"x":{"n":1},` +
		`"part":10,"changed":["big","d/x.json"],"bundle":true,"commit":true,"saved":[2,true],"broken":"it is no tar: unexpected EOF","none":"not_found","outside":"invalid"}`
	if d := cmp.Diff(want, run("own", "run")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := run("own", "cli"); !strings.Contains(got, "has no CLI that could be prompted") {
		t.Error(got)
	}
	if got := run("a", "call"); got != "denied" { // which has no sandbox
		t.Error(got)
	}
	if res, err := w.Call(t.Context(), app, runtime.CallRequest{Agent: "own", Function: "call", Input: agent.JSON([]byte("null"))}); err != nil || string(res.Output.Body) != "denied" {
		t.Errorf("outside of a run: %s, %v", res.Output.Body, err)
	}
	w.yard.none()
}

// Tools that stand for what a CLI asks are for nobody else.
func TestBoxToolsHidden(t *testing.T) {
	w := newBoxWorld(t, "rules:\n  - allow cli.*\n  - allow http.*\n", "", agent.Cattle, nil)
	w.start()
	for code, want := range map[string]string{
		`return (await tools.list()).filter((t) => t.name.startsWith("cli.")).length`:                  `0`,
		`return tools.call(["cli", "run"].join("."), { command: "ls" }).catch((e) => e.kind)`:          `denied`,
		`return tools.search("sandbox command").then((l) => l.some((t) => t.name.startsWith("cli.")))`: `false`,
	} {
		if got := w.output(w.code(code)); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
	list, err := w.tools.Tools(t.Context(), app)
	if err != nil || slices.ContainsFunc(list, func(t agent.Tool) bool { return t.Server == "cli" }) {
		t.Errorf("the list has them: %v", err)
	}
}

// An agent whose work a CLI does has no functions, and takes tasks and messages.
func TestBoxTasks(t *testing.T) {
	var prompts []string
	w := newBoxWorld(t, "", "", agent.Cattle, func(c *cliTurn) {
		b, _ := os.ReadFile(filepath.Join(c.s.b.work, ".attachments/notes/n.txt"))
		info, err := os.Stat(filepath.Join(c.s.b.work, ".attachments/notes/n.txt"))
		if err == nil && info.Mode().Perm() != 0o444 {
			t.Errorf("the attachment's mode is %s", info.Mode())
		}
		prompts = append(prompts, c.prompt.Text+string(b))
		c.say("1", "ok")
	})
	w.start()
	_, err := w.Call(t.Context(), app, runtime.CallRequest{Agent: "coder", Function: "run"})
	if agent.KindOf(err) != agent.Invalid || !strings.Contains(agent.AsError(err).Hint, "skep run coder") {
		t.Errorf("a call: %v", err)
	}
	if _, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "coder", Function: "greet"}, store.Once{}); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a function: %v", err)
	}
	for input, want := range map[string]string{
		`null`: "the input is a text", `{"task":""}`: "task is a text", `{"task":"x","rep":1}`: `no field \"rep\"`, `{"task":"x","attachments":["gone"]}`: "gone",
	} {
		if got := w.output(w.task(input, "")); !strings.Contains(got, strings.ReplaceAll(want, `\"`, `"`)) {
			t.Errorf("%s: %s", input, got)
		}
	}
	s, _, err := w.store.CreateSession(t.Context(), agent.Session{App: app, Agent: "coder", Key: "default"}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.PutFile(t.Context(), agent.File{App: app, Session: s.ID, Path: "notes/n.txt"}, store.AnyRev, strings.NewReader("!")); err != nil {
		t.Fatal(err)
	}
	msg := agent.Message{Content: json.RawMessage(`{"text":"read it","attachments":["notes/n.txt"]}`)}
	run, _, err := w.Send(t.Context(), app, s.ID, msg, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	if out := w.outcome(run); out.Text != "ok" || len(out.Changed) != 0 {
		t.Errorf("%+v", out)
	}
	if len(prompts) != 1 || !strings.HasPrefix(prompts[0], "read it\n") || !strings.HasSuffix(prompts[0], "- .attachments/notes/n.txt!") {
		t.Errorf("prompts %q", prompts)
	}
}

func TestBoxAgents(t *testing.T) {
	w := newBoxWorld(t, "", "", agent.Cattle, nil)
	for _, x := range []struct {
		use  agent.SandboxUse
		want string
	}{
		{agent.SandboxUse{}, "environment"},
		{agent.SandboxUse{Environment: "gone"}, "gone"},
		{agent.SandboxUse{Environment: "env@9"}, "env"},
		{agent.SandboxUse{Environment: "env@x"}, "revision"},
		{agent.SandboxUse{Environment: "env", CLI: "vim"}, "none of acp, claude, codex, gemini, opencode, pi"},
		{agent.SandboxUse{Environment: "env", CLI: "acp"}, "command is missing"},
		{agent.SandboxUse{Environment: "env", CLI: "codex", Command: []string{"x"}}, "the cli acp"},
		{agent.SandboxUse{Environment: "env", Model: "@main"}, "cli is missing"},
	} {
		_, _, err := w.CreateAgent(t.Context(), agent.Agent{App: app, Name: "x", Sandbox: &x.use}, store.Once{})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v, want %s", x.use, err, x.want)
		}
		if x.use.Environment != "" {
			if _, err := w.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Sandbox: &x.use}); err == nil {
				t.Errorf("%+v: the patch is taken", x.use)
			}
		}
	}
	for _, use := range []agent.SandboxUse{{Environment: "env", CLI: "pi", Permissions: agent.AllowAll}, {Environment: "env@1", CLI: "acp", Command: []string{"x", "--acp"}}} {
		a, err := w.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Sandbox: &use})
		if err != nil || a.Sandbox == nil || a.Sandbox.CLI != use.CLI {
			t.Errorf("%+v: %+v, %v", use, a.Sandbox, err)
		}
	}
	if a, err := w.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Sandbox: &agent.SandboxUse{}}); err != nil || a.Sandbox != nil {
		t.Errorf("it keeps %+v, %v", a.Sandbox, err)
	}
	bare := runtime.New(w.store, w.cells, nil)
	_, _, err := bare.CreateAgent(t.Context(), agent.Agent{App: app, Name: "y", Sandbox: &agent.SandboxUse{Environment: "env"}}, store.Once{})
	if err == nil || !strings.HasPrefix(err.Error(), agent.SandboxUnavailable) {
		t.Errorf("without sandboxes: %v", err)
	}
}
