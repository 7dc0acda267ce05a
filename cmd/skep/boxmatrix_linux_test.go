package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/acp"
	"github.com/skep-dev/skep/driver/backend/backendtest"
	"github.com/skep-dev/skep/driver/backend/claude"
	"github.com/skep-dev/skep/driver/backend/codex"
	"github.com/skep-dev/skep/driver/backend/pi"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/sandbox/dockertest"
)

// boxCLI is a command-line agent of the matrix.
type boxCLI struct {
	*boxServer
	backend backend.Backend
	image   string
	memory  int64                               // that it needs, in MiB
	edit    func(path, text string) script.Call // calls its own tool that makes a file
	ballast int64                               // MiB of 64, that leave too little for it
	shell   func(command string) script.Call
	plan    *script.Call // calls its tool for plans; nil without one

	name    string
	session agent.SessionID
	first   agent.Run
	has     map[string]bool // abilities that were seen
}

func boxCLIs() []*boxCLI {
	call := backendtest.Call
	plan := func(name string, args any) *script.Call { c := call(name, args); return &c }
	type m = map[string]any
	return []*boxCLI{
		{
			backend: acp.OpenCode(), memory: 3 << 10, ballast: 32,
			edit:  func(path, text string) script.Call { return call("write", m{"filePath": path, "content": text}) },
			shell: func(c string) script.Call { return call("bash", m{"command": c, "description": "Do it"}) },
			plan:  plan("todowrite", m{"todos": []m{{"content": "look", "status": "pending", "priority": "high", "id": "1"}}}),
		},
		{
			backend: acp.Gemini(), memory: 1 << 10, ballast: 32,
			edit:  func(path, text string) script.Call { return call("write_file", m{"file_path": path, "content": text}) },
			shell: func(c string) script.Call { return call("run_shell_command", m{"command": c}) },
			plan:  plan("write_todos", m{"todos": []m{{"description": "look", "status": "pending"}}}),
		},
		{
			backend: pi.New(), memory: 1 << 10, ballast: 32,
			edit:  func(path, text string) script.Call { return call("write", m{"path": path, "content": text}) },
			shell: func(c string) script.Call { return call("bash", m{"command": c}) },
		},
		{
			backend: claude.New(), memory: 1 << 10, ballast: 32,
			edit:  func(path, text string) script.Call { return call("Write", m{"file_path": path, "content": text}) },
			shell: func(c string) script.Call { return call("Bash", m{"command": c, "description": "Do it"}) },
			plan:  plan("TaskCreate", m{"subject": "look", "description": "at it"}),
		},
		{
			backend: codex.New(), memory: 1 << 10, ballast: 52,
			edit: func(path, text string) script.Call {
				return call("apply_patch", m{"input": "*** Begin Patch\n*** Add File: " + path + "\n+" + strings.TrimSuffix(text, "\n") + "\n*** End Patch\n"})
			},
			shell: func(c string) script.Call { return call("exec_command", m{"cmd": c}) },
			plan:  plan("update_plan", m{"plan": []m{{"step": "look", "status": "pending"}}}),
		},
	}
}

// TestBoxMatrix has each command-line agent in real containers of a real server: what it wants is allowed, and denied; it is interrupted; its gateway goes
// down; its box is killed, and its session goes on in the next; it gets too little memory, and a disk that is full. Each is looked at as a user would.
func TestBoxMatrix(t *testing.T) {
	t.Parallel()
	s := serveBoxes(t, dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep-driver"), nil)
	image := boxImage(t)
	if _, err := s.PutModelLogging(t.Context(), agent.ModelLogging{Days: 1, Size: agent.MaxLogSize}); err != nil {
		t.Fatal(err)
	}
	t.Run("cli", func(t *testing.T) {
		for _, c := range boxCLIs() {
			c.boxServer, c.image, c.name, c.has = s, image, c.backend.Spec().Name, map[string]bool{}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.travel(t)
			})
		}
	})
	s.nothing(t)
}

const (
	boxText  = "Hello from the model.\n"
	boxSlow  = "tick tock "
	boxNoted = "albatross"
	boxDot   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" // a picture, in base64
)

// turns are what the model says: by the word that a prompt ends in, and by what a tool has said.
func (c *boxCLI) turns() []script.Turn {
	says := func(word string, r script.Reply) script.Turn {
		return script.Turn{Match: &script.Match{Contains: word}, Reply: &r}
	}
	does := func(calls ...script.Call) script.Reply { return script.Reply{Calls: calls} }
	write := script.Reply{
		Text: "I write it.", Chunk: 2, Reasoning: "hm, let me see", Signature: "c2ln",
		Calls: []script.Call{c.edit("/workspace/allowed.txt", boxText), c.edit("/workspace/denied.txt", boxText)},
	}
	if c.plan != nil {
		write.Calls = append(write.Calls, *c.plan)
	}
	return []script.Turn{
		says("WRITE", write),
		says("SLOW", script.Reply{Text: strings.Repeat(boxSlow, 400), Chunk: 10, Pace: 50}),
		says("AGAIN", script.Reply{Text: "Here I am again."}),
		says("EATEN", does(c.shell("head -c 8G /dev/zero > fill; echo it is FILL''ED"))),
		says("FILLED", does(c.edit("/workspace/full.txt", boxText))),
		says("HUNGRY", does(c.shell("head -c 8G /dev/zero | tail; echo it is EAT''EN"))),
		says("FALL", does(c.edit("/workspace/fall.txt", boxText))),
		{Match: &script.Match{}, Reply: &script.Reply{Text: "All done, in the end."}},
	}
}

func (c *boxCLI) travel(t *testing.T) {
	env := agent.Environment{Image: c.image, Size: agent.SandboxSize{Memory: c.memory << 20}, Variables: map[string]string{"CLAUDE_CODE_MAX_RETRIES": "1"}}
	c.agent(t, c.name, c.name, agent.Pet, env, c.turns()...)
	c.decide(t)
	c.interrupt(t)
	c.down(t)
	c.resume(t)
	if c.name == "codex" { // which is the quickest; it is the server's doing, and the same for each
		c.killed(t, env)
	}
	env.Size.Disk = 256 << 20
	c.agent(t, c.name+"-full", c.name, agent.Cattle, env, c.turns()...)
	c.full(t)
	env.Size.Memory = 64 << 20
	env.Setup = fmt.Sprintf("head -c %dM /dev/zero >/tmp/ballast", c.ballast) // which is memory, too
	c.agent(t, c.name+"-little", c.name, agent.Cattle, env, c.turns()...)
	c.starve(t)
	c.agrees(t)
}

// begin begins a run of the agent that keeps its box, in its one session.
func (c *boxCLI) begin(t *testing.T, text string, attached ...string) agent.Run {
	t.Helper()
	run := c.task(t, c.name, c.session, text, attached...)
	c.session = run.Session
	return run
}

// decides answers what a run asks until it has ended: what has the word, if that is given, is denied. It returns what was asked.
func (c *boxCLI) decides(t *testing.T, run agent.Run, denied string) (asked []string) {
	t.Helper()
	seen := map[agent.ApprovalID]bool{}
	c.until(t, "the run has ended", func() bool {
		r, err := c.Run(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range r.Asks {
			if seen[a.ID] || len(a.Calls) != 1 {
				continue
			}
			seen[a.ID] = true
			what := a.Calls[0].Tool + " " + string(a.Calls[0].Args)
			asked = append(asked, what)
			no := denied != "" && strings.Contains(what, denied)
			reason := ""
			if no {
				reason = "not on a Monday"
			}
			if _, err := c.AnswerApprovals(t.Context(), []agent.ApprovalID{a.ID}, agent.ApprovalAnswer{Allow: !no, Reason: reason}); err != nil {
				t.Fatal(err)
			}
		}
		return r.Status.Terminal()
	})
	return asked
}

// decide has two files made, of which a person allows one.
func (c *boxCLI) decide(t *testing.T) {
	run := c.begin(t, "take a note of "+boxNoted+", and WRITE")
	c.first = run
	asked := c.decides(t, run, "denied.txt")
	run = c.ended(t, run, agent.Completed)
	for _, name := range []string{"allowed.txt", "denied.txt"} {
		if !slices.ContainsFunc(asked, func(s string) bool { return strings.HasPrefix(s, "cli.edit ") && strings.Contains(s, name) }) {
			t.Errorf("nobody was asked about %s, but about %q", name, asked)
		}
	}
	sb := c.box(t, c.name)
	if text, _ := c.file(t, sb.ID, "allowed.txt"); text != boxText {
		t.Errorf("what was allowed has made %q", text)
	}
	if text, there := c.file(t, sb.ID, "denied.txt"); there {
		t.Errorf("what was denied has made %q", text)
	}
	if patch := c.patch(t, run); !strings.Contains(patch, "+++ b/allowed.txt\n") || strings.Contains(patch, "denied.txt") {
		t.Errorf("the patch is\n%s", patch)
	}
	if !c.speaksACP() && !strings.Contains(strings.Join(c.requests(t, run), ""), "not on a Monday") {
		t.Error("the model was not told why")
	}
	list := c.events(t, run)
	var edits, failed int
	for _, d := range toldOf[driver.ToolData](t, list, driver.ToolEnded) {
		if d.Action == driver.ActionEdit {
			edits++
			if d.Failed {
				failed++
			}
		}
	}
	if edits != 2 || failed != 1 {
		t.Errorf("%d edits, of which %d have failed\n%s", edits, failed, c.tale(t, run))
	}
	pieces := 0
	for _, ev := range list {
		if ev.Kind != agent.EventMessageDelta {
			continue
		}
		pieces++
		var d abi.MessageDelta
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			t.Fatal(err)
		}
		c.has[backend.Thinks] = c.has[backend.Thinks] || d.Type == "reasoning"
	}
	counts := slices.ContainsFunc(toldOf[driver.UsageData](t, list, driver.UsageTold), func(u driver.UsageData) bool { return u.Input > 0 && u.Output > 0 })
	files := toldOf[driver.FileData](t, list, driver.FileChanged)
	c.has[backend.Asks], c.has[backend.Streams], c.has[backend.Counts] = len(asked) > 0, pieces >= 3, counts
	c.has[backend.Diffs] = slices.Equal(files, []driver.FileData{{Path: "allowed.txt", Op: "add"}})
	c.has[backend.Plans] = len(toldOf[driver.PlanData](t, list, driver.PlanUpdated)) > 0
}

// speaksACP reports whether it is spoken to by the Agent Client Protocol, in which a denial has no reason and an error no kind.
func (c *boxCLI) speaksACP() bool { return strings.HasPrefix(c.backend.Spec().Protocol, "ACP") }

// patch is what a run has changed, as its output names it.
func (c *boxCLI) patch(t *testing.T, run agent.Run) string {
	t.Helper()
	var out struct{ Patch string }
	if run.Output == nil || json.Unmarshal(run.Output.Body, &out) != nil || out.Patch == "" {
		t.Fatalf("the run has no patch: %+v", run.Output)
	}
	f, err := c.File(t.Context(), run.Session, out.Patch, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *boxCLI) interrupt(t *testing.T) {
	run := c.begin(t, "go SLOW")
	c.until(t, "the CLI speaks", func() bool { return strings.Contains(c.tale(t, run), strings.TrimSpace(boxSlow)) })
	if _, err := c.CancelRuns(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	c.ended(t, run, agent.RunCancelled)
	end := c.turnEnd(t, run)
	c.has[backend.Interrupts] = end.Status == driver.TurnInterrupted
	if strings.Count(c.tale(t, run), strings.TrimSpace(boxSlow)) >= 400 {
		t.Error("it said all that it had to say")
	}
}

// down has the gateway lose the model: nobody listens where its provider is.
func (c *boxCLI) down(t *testing.T) {
	run := c.begin(t, "pride goes before a FALL")
	ask := c.asked(t, run)
	gone := agent.Provider{Name: c.name, URL: "http://127.0.0.1:1", Private: true}
	for _, name := range c.backend.Spec().Models {
		var p agent.Protocol
		if err := p.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		gone.Protocols = append(gone.Protocols, p)
	}
	if c.name == "opencode" { // it tries for a minute, unless it is told when to try again
		c.provide(t, c.name, []script.Turn{{Match: &script.Match{}, Fault: &script.Fault{Status: 503, Message: "there is nobody", RetryAfter: 1}}})
	} else if _, err := c.PutProvider(t.Context(), client.NewProvider{Provider: gone}); err != nil {
		t.Fatal(err)
	}
	c.answer(t, ask, agent.ApprovalAnswer{Allow: true})
	kind := agent.Unavailable
	if c.speaksACP() { // in which nobody says what kind of error it is
		kind = agent.Failed
	}
	c.failed(t, run, kind, c.name+" has failed: ")
	if end := c.turnEnd(t, run); end.Status != driver.TurnFailed || end.Fault == nil || end.Fault.Kind != kind {
		t.Errorf("the turn ended as %+v (%+v)", end, end.Fault)
	}
	c.provide(t, c.name, c.turns())
}

// resume kills the box, as somebody at the machine would. The next run has another, and what the CLI knows of the session.
func (c *boxCLI) resume(t *testing.T) {
	sb := c.box(t, c.name)
	c.kill(t, sb)
	picture, err := base64.StdEncoding.DecodeString(boxDot)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutFile(t.Context(), c.session, "dot.png", "image/png", nil, bytes.NewReader(picture), int64(len(picture))); err != nil {
		t.Fatal(err)
	}
	run := c.begin(t, "once AGAIN", "dot.png")
	run = c.ended(t, run, agent.Completed)
	if now := c.box(t, c.name); now.ID != sb.ID || now.Generation != sb.Generation+1 {
		t.Errorf("the sandbox is %s, generation %d", now.ID, now.Generation)
	}
	if text, _ := c.file(t, sb.ID, "allowed.txt"); text != boxText {
		t.Errorf("what was kept has %q", text)
	}
	began := toldOf[driver.SessionData](t, c.events(t, run), driver.SessionStarted)
	requests := strings.Join(c.requests(t, run), "\n")
	c.has[backend.Resumes] = len(began) == 1 && began[0].Resumed && strings.Contains(requests, boxNoted)
	c.has[backend.Images] = strings.Contains(requests, boxDot)
	if err := c.DeleteSandbox(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
}

// full has the CLI start a program that eats all memory there is, and one that fills the disk; then it is to make a file.
func (c *boxCLI) full(t *testing.T) {
	run := c.task(t, c.name+"-full", "", "be HUNGRY")
	asked := c.decides(t, run, "")
	run = c.failed(t, run, agent.Exhausted, "o space left on device")
	if len(asked) != 3 || run.Error == nil || !strings.Contains(run.Error.Hint, "size.disk") {
		t.Errorf("asked was %q, and the run says %+v", asked, run.Error)
	}
	list := c.events(t, run)
	if len(toldOf[driver.ProcessData](t, list, driver.OutOfMemory)) == 0 {
		t.Error("nothing is told of a program that was ended for want of memory")
	}
	tools := toldOf[driver.ToolData](t, list, driver.ToolEnded)
	if len(tools) != 3 || tools[2].Action != driver.ActionEdit || !tools[2].Failed || len(toldOf[driver.FileData](t, list, driver.FileChanged)) != 0 {
		t.Errorf("the edit has not failed: %+v\n%s", tools, c.tale(t, run))
	}
}

// starve has the CLI in a box that is too small for it.
func (c *boxCLI) starve(t *testing.T) {
	run := c.task(t, c.name+"-little", "", "once AGAIN")
	run = c.failed(t, run, agent.Exhausted, "memory")
	if e := run.Error; e == nil || !strings.Contains(e.Hint, "memory") {
		t.Errorf("the run says %+v", e)
	}
}

// agrees compares what was seen of the CLI with what its backend says of it.
func (c *boxCLI) agrees(t *testing.T) {
	seen := []string{backend.Questions} // which no model can make each of them ask
	for ability, ok := range c.has {
		if ok {
			seen = append(seen, ability)
		}
	}
	says := slices.Clone(c.backend.Spec().Abilities)
	slices.Sort(says)
	slices.Sort(seen)
	if diff := cmp.Diff(says, seen); diff != "" {
		t.Errorf("what the backend says that it can, and what was seen (-says +seen):\n%s\n%s\n%q", diff, c.tale(t, c.first), regexp.MustCompile(`"name": ?"[a-z_]*"`).FindAllString(strings.Join(c.requests(t, c.first), ""), -1))
	}
}
