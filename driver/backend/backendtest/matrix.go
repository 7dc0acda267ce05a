package backendtest

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/gateway/script"
)

// Matrix is what a backend has to stand, with the CLI that it is for. What is allowed and denied, and sessions that go on, are in the matrix of containers
// (cmd/skep).
type Matrix struct {
	New     func() backend.Backend
	CLI     CLI
	Edit    func(path, text string) script.Call // calls the CLI's own tool that makes a file; path is absolute
	Run     func(command string) script.Call    // calls its shell
	Prepare func(*Rig)                          // before the CLI starts, if given
}

// What is said in the matrix. Each prompt ends in a word of its own, by which the script knows it.
const (
	askWrite, askRun, askSlow, askAgain, askNote, askRefuse = "please WRITE", "please RUN", "please be SLOW", "once AGAIN", "take a NOTE of albatross", "please FAIL"

	fileName, fileText = "hello.txt", "Hello from the model.\n"
	runName            = "made-by-shell.txt"
)

// script is what the model says.
func (m *Matrix) script(dir string) string {
	turns := []script.Turn{
		{Match: &script.Match{Contains: askWrite}, Reply: &script.Reply{
			Text: "I write it.", Chunk: 6, Calls: []script.Call{m.Edit(filepath.Join(dir, fileName), fileText)},
		}},
		{Match: &script.Match{Contains: askSlow}, Reply: &script.Reply{Text: strings.Repeat("tick tock ", 400), Chunk: 10, Pace: 50}},
		{Match: &script.Match{Contains: askAgain}, Reply: &script.Reply{Text: "Here I am again."}},
		{Match: &script.Match{Contains: askNote}, Reply: &script.Reply{Text: "Noted."}},
		{Match: &script.Match{Contains: askRefuse}, Fault: &script.Fault{Status: 400, Type: "invalid_request_error", Message: "I will not"}},
		{Match: &script.Match{Contains: askRun}, Reply: &script.Reply{Calls: []script.Call{m.Run("echo done > " + runName)}}},
		{Match: &script.Match{}, Reply: &script.Reply{Text: "All done, in the end."}},
	}
	b, err := json.Marshal(map[string]any{"turns": turns})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Rig returns a rig for the matrix's CLI, with its script.
func (m *Matrix) Rig(t testing.TB) *Rig {
	t.Helper()
	r := m.rig(t, &Options{Lines: m.script})
	t.Cleanup(func() {
		if hosts := r.Elsewhere(); len(hosts) != 0 {
			t.Errorf("the CLI wanted to reach %q", hosts)
		}
	})
	return r
}

// Scripted returns a rig for the matrix's CLI whose model says the turns, one after the other.
func (m *Matrix) Scripted(t testing.TB, turns ...string) *Rig {
	t.Helper()
	return m.rig(t, &Options{Script: strings.Join(turns, "\n")})
}

func (m *Matrix) rig(t testing.TB, o *Options) *Rig {
	t.Helper()
	o.CLI = m.CLI
	r := New(t, m.New(), o)
	if m.Prepare != nil {
		m.Prepare(r)
	}
	t.Cleanup(func() { Check(t, r) })
	return r
}

// Test runs the matrix.
func (m *Matrix) Test(t *testing.T) {
	m.CLI.Need(t)
	cell := func(name string, f func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t)
		})
	}
	t.Run("spec", m.spec)
	cell("run", m.run)
	cell("all", m.all)
	cell("interrupt", m.interrupt)
	cell("interrupt while it asks", m.withdraw)
	cell("gateway down", m.down)
	cell("model fails", m.fails)
	cell("killed", m.killed)
	cell("killed while it asks", m.killedAsking)
}

// spec checks what the backend says of itself.
func (m *Matrix) spec(t *testing.T) {
	s := m.New().Spec()
	for _, a := range s.Abilities {
		if !slices.Contains(backend.Abilities(), a) {
			t.Errorf("nobody knows the ability %s", a)
		}
	}
	for _, name := range s.Models {
		if p := agent.NoProtocol; p.UnmarshalText([]byte(name)) != nil {
			t.Errorf("nobody knows the protocol %s", name)
		}
	}
	if s.Name == "" || s.Title == "" || s.Protocol == "" || len(s.Models) == 0 {
		t.Errorf("it does not say what it is: %+v", s)
	}
	if at := strings.LastIndex(s.Package, "@"); at > 0 {
		if have := m.CLI.Version(t, s.Package[:at]); have != s.Package[at+1:] {
			t.Errorf("it is for %s, and the tests run %s", s.Package, have)
		}
	}
}

// prompt is one of the matrix. Its turn is named by what is asked.
func prompt(text string) driver.Prompt {
	return driver.Prompt{Turn: text, Text: text, Permissions: "policy"}
}

// completed fails unless a turn ended well, with the text.
func completed(t *testing.T, end driver.TurnEnd, text string) {
	t.Helper()
	if end.Status != driver.TurnCompleted || end.Fault != nil || strings.TrimSpace(end.Text) != text {
		t.Errorf("the turn ended as %+v (fault %v), want completed with the text %q", end, end.Fault, text)
	}
}

// asked waits until the CLI asks to be allowed to do what the script makes it do.
func asked(t *testing.T, r *Rig, action string) driver.PermissionData {
	t.Helper()
	d := Data[driver.PermissionData](t, r.Wait(driver.PermissionAsked))
	if d.ID == "" || d.Tool == "" || d.Action != action {
		t.Errorf("what is asked is %+v, want the action %s", d, action)
	}
	var args struct {
		Path, Command string
		Paths         []string
	}
	if err := json.Unmarshal(d.Args, &args); err != nil {
		t.Errorf("the arguments of %s cannot be read: %v", action, err)
	}
	switch action {
	case driver.ActionEdit:
		path := filepath.Join(r.Dir, fileName)
		if list := append(args.Paths, args.Path); !slices.Contains(list, path) && !slices.Contains(list, fileName) {
			t.Errorf("it asks to edit %s, want %s", d.Args, path)
		}
	case driver.ActionRun:
		if !strings.Contains(args.Command, runName) {
			t.Errorf("it asks to run %q", args.Command)
		}
	}
	if len(r.Tree()) != 0 {
		t.Errorf("something was done before it was allowed: %q", r.Tree())
	}
	return d
}

func answer(t *testing.T, r *Rig, s backend.Session, a driver.Answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.wait)
	defer cancel()
	if err := s.Answer(ctx, &a); err != nil {
		t.Fatalf("answer: %v", err)
	}
}

func gone(t *testing.T, s backend.Session, id string) {
	t.Helper()
	if err := s.Answer(t.Context(), &driver.Answer{ID: id, Allow: true}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("to answer what is not asked is %v, want not found", err)
	}
}

func sameTree(t *testing.T, r *Rig, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, r.Tree()); diff != "" {
		t.Errorf("the workspace is not what it should be (-want +got):\n%s", diff)
	}
}

// begin starts the CLI, and a turn under a policy.
func (m *Matrix) begin(t *testing.T, text string) (*Rig, backend.Session) {
	t.Helper()
	r := m.Rig(t)
	p := prompt(text)
	s := r.Start(p)
	r.Prompt(s, p)
	return r, s
}

// beginEdit begins a turn, and waits until the CLI asks to make the file.
func (m *Matrix) beginEdit(t *testing.T) (*Rig, backend.Session, driver.PermissionData) {
	t.Helper()
	r, s := m.begin(t, askWrite)
	return r, s, asked(t, r, driver.ActionEdit)
}

// wrote checks what is told of the file that was made.
func wrote(t *testing.T, r *Rig) {
	t.Helper()
	if diff := cmp.Diff([]driver.FileData{{Path: fileName, Op: "add"}}, Of[driver.FileData](r, driver.FileChanged)); diff != "" {
		t.Errorf("what is told of files (-want +got):\n%s", diff)
	}
	if len(Of[driver.TextData](r, driver.TextDelta)) < 3 {
		t.Error("the text did not come in pieces")
	}
	used := func(u driver.UsageData) bool { return u.Input > 0 && u.Output > 0 }
	if !slices.ContainsFunc(Of[driver.UsageData](r, driver.UsageTold), used) {
		t.Error("nothing is told of usage")
	}
	var texts []string
	for _, d := range Of[driver.TextData](r, driver.TextDone) {
		texts = append(texts, strings.TrimSpace(d.Text))
	}
	if diff := cmp.Diff([]string{"I write it.", "All done, in the end."}, texts); diff != "" {
		t.Errorf("the texts (-want +got):\n%s", diff)
	}
	ended := Of[driver.ToolData](r, driver.ToolEnded)
	if len(ended) != 1 || ended[0].Failed || len(Of[driver.ToolData](r, driver.ToolStarted)) != 1 {
		t.Errorf("tools ended: %+v", ended)
	}
}

func (m *Matrix) run(t *testing.T) {
	r, s := m.begin(t, askRun)
	d := asked(t, r, driver.ActionRun)
	answer(t, r, s, driver.Answer{ID: d.ID, Allow: true})
	gone(t, s, d.ID)
	completed(t, Data[driver.TurnEnd](t, r.Wait(driver.TurnEnded)), "All done, in the end.")
	sameTree(t, r, map[string]string{runName: "done\n"})
}

func (m *Matrix) all(t *testing.T) {
	r := m.Rig(t)
	p := prompt(askWrite)
	p.Permissions = "all"
	s := r.Start(p)
	completed(t, r.Turn(s, p), "All done, in the end.")
	sameTree(t, r, map[string]string{fileName: fileText})
	if list := Of[driver.PermissionData](r, driver.PermissionAsked); len(list) != 0 {
		t.Errorf("it asks to be allowed: %+v", list)
	}
	wrote(t, r)
}

func (m *Matrix) interrupt(t *testing.T) {
	r, s := m.begin(t, askSlow)
	for range 3 {
		r.Wait(driver.TextDelta)
	}
	p := prompt(askAgain)
	if err := s.Prompt(t.Context(), &p); agent.KindOf(err) != agent.Conflict {
		t.Errorf("a second turn at once is %v, want a conflict", err)
	}
	began := time.Now()
	if err := s.Interrupt(t.Context()); err != nil {
		t.Fatalf("interrupt: %v", err)
	}
	end := Data[driver.TurnEnd](t, r.Wait(driver.TurnEnded))
	if end.Status != driver.TurnInterrupted {
		t.Errorf("the turn ended as %+v", end)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("an interrupt took %s", took)
	}
	r.Until(r.wait, "the request of the turn was given up", func() bool {
		return slices.ContainsFunc(r.Requests(), func(q Request) bool { return q.Gone })
	})
	completed(t, r.Turn(s, p), "Here I am again.")
}

func (m *Matrix) withdraw(t *testing.T) {
	r, s, d := m.beginEdit(t)
	if err := s.Interrupt(t.Context()); err != nil {
		t.Fatalf("interrupt: %v", err)
	}
	if got := Data[driver.PermissionData](t, r.Wait(driver.PermissionWithdrawn)); got.ID != d.ID {
		t.Errorf("%q was withdrawn, want %q", got.ID, d.ID)
	}
	if end := Data[driver.TurnEnd](t, r.Wait(driver.TurnEnded)); end.Status != driver.TurnInterrupted {
		t.Errorf("the turn ended as %+v", end)
	}
	gone(t, s, d.ID)
	sameTree(t, r, map[string]string{})
}

func (m *Matrix) down(t *testing.T) {
	r := m.Rig(t)
	p := prompt(askNote)
	s := r.Start(p)
	r.Down()
	end := r.Turn(s, p)
	if end.Status != driver.TurnFailed || end.Fault == nil || end.Fault.Message == "" {
		t.Errorf("the turn ended as %+v (%v)", end, end.Fault)
	}
	r.Up()
	select {
	case <-s.Done():
	default:
		completed(t, r.Turn(s, prompt(askAgain)), "Here I am again.")
	}
}

func (m *Matrix) fails(t *testing.T) {
	r := m.Rig(t)
	p := prompt(askRefuse)
	s := r.Start(p)
	end := r.Turn(s, p)
	if end.Status != driver.TurnFailed || end.Fault == nil || !strings.Contains(end.Fault.Message, "I will not") {
		t.Errorf("the turn ended as %+v (%v), want what the model said", end, end.Fault)
	}
}

func (m *Matrix) killed(t *testing.T) {
	r, s := m.begin(t, askSlow)
	r.Wait(driver.TextDelta)
	r.Kill()
	died(t, r, s)
}

func (m *Matrix) killedAsking(t *testing.T) {
	r, s, d := m.beginEdit(t)
	r.Kill()
	if got := Data[driver.PermissionData](t, r.Wait(driver.PermissionWithdrawn)); got.ID != d.ID {
		t.Errorf("%q was withdrawn, want %q", got.ID, d.ID)
	}
	died(t, r, s)
	gone(t, s, d.ID)
	sameTree(t, r, map[string]string{})
}

// died checks what a session is whose CLI was killed in a turn.
func died(t *testing.T, r *Rig, s backend.Session) {
	t.Helper()
	end := Data[driver.TurnEnd](t, r.Wait(driver.TurnEnded))
	if end.Status != driver.TurnFailed || end.Fault == nil || end.Fault.Kind != agent.Unavailable {
		t.Errorf("the turn ended as %+v (%v)", end, end.Fault)
	}
	select {
	case <-s.Done():
	case <-time.After(r.wait):
		t.Fatal("the session is not done")
	}
	p := prompt(askAgain)
	if err := s.Prompt(t.Context(), &p); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("a turn of a CLI that is dead is %v, want unavailable", err)
	}
	if err := s.Interrupt(t.Context()); agent.KindOf(err) != agent.Unavailable && err != nil {
		t.Errorf("to interrupt a CLI that is dead is %v", err)
	}
}
