package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
)

// shelf is a server of tools in memory: it notes each call, and may hold one up.
type shelf struct {
	mu    sync.Mutex
	calls []string
	hold  func(ctx context.Context, method string, o *tools.CallOptions) error
}

func (s *shelf) open(_ context.Context, rec agent.ToolServer, _ func()) (tools.Source, error) {
	return shelfSource{s, rec.Name}, nil
}

func (s *shelf) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

type shelfSource struct {
	*shelf
	name string
}

func (s shelfSource) Tools(context.Context) ([]tools.Offer, error) {
	var out []tools.Offer
	for _, method := range []string{"blob", "look", "put", "run"} {
		out = append(out, tools.Offer{Tool: agent.Tool{
			Method: method, Description: "What " + method + " does.", Input: json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}}}`),
			Digest: agent.DigestOf([]byte(method)),
		}})
	}
	return out, nil
}

func (s shelfSource) Call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	s.mu.Lock()
	s.calls = append(s.calls, method+string(args))
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		if err := hold(ctx, method, o); err != nil {
			return agent.ToolResult{}, err
		}
	}
	if method == "blob" {
		return agent.ToolResult{Value: json.RawMessage(`{"image":{"$blob":0}}`), Blobs: []agent.ToolBlob{{Type: "image/png", Body: []byte("PNG")}}}, nil
	}
	return agent.ToolResult{Value: json.RawMessage(fmt.Sprintf(`{"did":%q}`, method))}, nil
}

func (s shelfSource) Status() agent.ToolStatus { return agent.ToolStatus{State: agent.ServerReady} }
func (s shelfSource) Close() error             { return nil }

// bench is a world with a server of tools called fs.
type toolWorld struct {
	*world
	shelf *shelf
	tools *tools.Catalogue
}

func newToolWorld(t testing.TB, policy string) *toolWorld {
	t.Helper()
	w := &toolWorld{world: newWorld(t, "export {}", nil), shelf: &shelf{}}
	ctx := t.Context()
	if _, err := w.store.PutDoc(ctx, store.ToolServers, app, "fs", 0, agent.ToolServer{
		App: app, Name: "fs", Kind: agent.MCPStdio, Command: []string{"fs"},
		Effects: map[string]agent.Effect{"look": agent.Read, "blob": agent.Read, "put": agent.Modify, "run": agent.Execute},
	}); err != nil {
		t.Fatal(err)
	}
	if policy != "" {
		if _, err := w.store.PutDoc(ctx, store.Policies, app, "policy", 0, map[string]string{"text": policy}); err != nil {
			t.Fatal(err)
		}
	}
	w.tools = tools.New(w.store, &tools.Options{Openers: tools.Openers{agent.MCPStdio: w.shelf.open}})
	t.Cleanup(func() { _ = w.tools.Close() })
	w.Runtime = runtime.New(w.store, w.cells, &runtime.Options{Tools: w.tools, Grace: time.Second})
	return w
}

// again is the world after its process has died.
func (w *toolWorld) again() *toolWorld {
	return &toolWorld{world: w.next(&runtime.Options{Tools: w.tools, Grace: time.Second}), shelf: w.shelf, tools: w.tools}
}

func (w *toolWorld) code(text string) agent.Run {
	w.t.Helper()
	run, _, err := w.StartCode(w.t.Context(), app, runtime.CodeRun{Text: text, Input: agent.JSON([]byte("null"))}, store.Once{})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// asks returns the questions that are open, once there are so many.
func (w *toolWorld) asks(n int) []agent.Approval {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	for {
		list, _, err := w.Approvals(ctx, app, agent.Page{})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(list) == n {
			return list
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("%d questions are open, want %d", len(list), n)
		}
	}
}

func (w *toolWorld) answer(allow bool, asks ...agent.Approval) {
	w.t.Helper()
	var ids []agent.ApprovalID
	for _, a := range asks {
		ids = append(ids, a.ID)
	}
	if _, err := w.AnswerApprovals(w.t.Context(), app, "test", ids, agent.ApprovalAnswer{Allow: allow, Reason: "so it is"}); err != nil {
		w.t.Fatal(err)
	}
}

func wantOutput(t testing.TB, run agent.Run, want string) {
	t.Helper()
	if run.Status != agent.Completed || string(run.Output.Body) != want {
		t.Errorf("the run is %s with %s, want %s", run.Status, shown(run.Output, run.Error), want)
	}
}

func shown(v ...any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestCodeReads(t *testing.T) {
	w := newToolWorld(t, "")
	w.start()
	run := w.wait(w.code(`const all = await Promise.all([1, 2, 3].map((n) => tools.fs.look({ n })));
return all.map((r) => r.did).join();`).ID)
	wantOutput(t, run, "look,look,look")
	if d := cmp.Diff([]string{`look{"n":1}`, `look{"n":2}`, `look{"n":3}`}, sorted(w.shelf.made())); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	log := strings.Join(w.sessionLog(run), "\n")
	if strings.Count(log, "tool.called") != 3 || strings.Count(log, "tool.returned") != 3 {
		t.Errorf("log:\n%s", log)
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// A person is asked about what modifies, in the middle of a Promise.all: the run waits without a cell, shows all questions at once, and each call is made once.
func TestCodeAsks(t *testing.T) {
	w := newToolWorld(t, "")
	stop := w.start()
	run := w.code(`const [a, b, c] = await Promise.allSettled([tools.fs.put({ n: 1 }), tools.fs.look({ n: 2 }), tools.fs.put({ n: 3 })]);
const d = await tools.fs.look({ n: 4 });
return [a.value?.did, b.value?.did, c.reason?.kind, c.reason?.message, d.did];`)
	asks := w.asks(2)
	if got := w.until(run, agent.EventRunWaiting); got.Status != agent.Waiting || len(got.Asks) != 2 {
		t.Errorf("the run is %s with %d questions", got.Status, len(got.Asks))
	}
	if d := cmp.Diff([]string{`look{"n":2}`}, w.shelf.made()); d != "" {
		t.Errorf("calls before the answer (-want +got):\n%s", d)
	}
	stop()
	w = w.again() // days later
	w.start()
	w.answer(true, asks[0])
	if _, err := w.AnswerApprovals(t.Context(), app, "test", []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("a second answer: %v", err)
	}
	w.answer(false, asks[1])
	wantOutput(t, w.wait(run.ID), `["put","look","denied","the call of fs.put was not approved: a person has denied it: so it is","look"]`)
	if d := cmp.Diff([]string{`look{"n":2}`, `look{"n":4}`, `put{"n":1}`}, sorted(w.shelf.made())); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

func TestCodeDenied(t *testing.T) {
	w := newToolWorld(t, "read: allow\nmodify: deny\nexecute: deny\n")
	w.start()
	run := w.wait(w.code(`try { await tools.fs.run({}); } catch (e) { return [e.name, e.kind, e.tool, e instanceof ToolError]; }`).ID)
	wantOutput(t, run, `["ToolError","denied","fs.run",true]`)
	if len(w.shelf.made()) != 0 {
		t.Errorf("calls: %v", w.shelf.made())
	}
	run = w.wait(w.code("await tools.fs.look({});\n\nawait tools.fs.put({ n: 1 });\n").ID)
	if run.Status != agent.RunFailed || run.Error.Kind != agent.Failed || run.Error.Pos.Line != 3 || !strings.Contains(run.Error.Msg, "the call of fs.put is denied: ") {
		t.Errorf("the run is %s with %s", run.Status, shown(run.Error))
	}
}

// A change set is approved as a whole: one question, then each of its calls once.
func TestCodeChangeSet(t *testing.T) {
	w := newToolWorld(t, "")
	w.start()
	run := w.code(`return (await tools.change("two things", [{ tool: "fs.put", args: { n: 1 } }, { tool: "fs.put", args: { n: 2 } }])).length;`)
	asks := w.asks(1)
	if len(asks[0].Calls) != 2 || asks[0].Title != "two things" {
		t.Errorf("question: %s", shown(asks[0]))
	}
	w.answer(true, asks[0])
	wantOutput(t, w.wait(run.ID), "2")
	if d := cmp.Diff([]string{`put{"n":1}`, `put{"n":2}`}, w.shelf.made()); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	run = w.code(`await tools.change("again", [{ tool: "fs.put", args: { n: 1 } }]);
await tools.fs.put({ n: 1 });`) // the second is not a part of it
	w.answer(true, w.asks(1)[0])
	w.answer(false, w.asks(1)[0])
	if run = w.wait(run.ID); run.Status != agent.RunFailed {
		t.Errorf("the run is %s", run.Status)
	}
}

// Nobody answers: the call is denied when its time is up.
func TestCodeNobodyAnswers(t *testing.T) {
	w := newToolWorld(t, "timeout: 2s\nread: allow\nmodify: ask\n")
	w.start()
	run := w.code(`try { await tools.fs.put({}); } catch (e) { return e.message.slice(0, 60); }`)
	asks := w.asks(1)
	wantOutput(t, w.wait(run.ID), "the call of fs.put was not approved: nobody has answered by ")
	w.asks(0)
	if _, err := w.AnswerApprovals(t.Context(), app, "test", []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("an answer that is late: %v", err)
	}
}

// A call that may have had an effect when the process died is not made again: a person says what became of it.
func TestCodeUncertain(t *testing.T) {
	w := newToolWorld(t, "read: allow\nmodify: allow\n")
	held := make(chan struct{}, 1)
	w.shelf.hold = func(ctx context.Context, method string, _ *tools.CallOptions) error {
		if method != "put" {
			return nil
		}
		held <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	w.start()
	run := w.code(`return (await tools.fs.put({ n: 1 })).said;`)
	<-held
	w = w.again()
	w.shelf.hold = nil
	w.start()
	got := w.until(run, agent.EventRunUncertain)
	if got.Status != agent.Uncertain || got.Wait == nil {
		t.Fatalf("the run is %s", got.Status)
	}
	if _, err := w.ResolveRun(t.Context(), app, run.ID, agent.Resolution{Call: got.Wait.Call, Action: "answer", Output: json.RawMessage(`{"said":"it was done"}`)}); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, w.wait(run.ID), "it was done")
	if n := len(w.shelf.made()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A server of tools asks a person something while it works.
func TestCodeQuestion(t *testing.T) {
	w := newToolWorld(t, "")
	w.shelf.hold = func(ctx context.Context, _ string, o *tools.CallOptions) error {
		a, err := o.Elicit(ctx, agent.Question{Server: "fs", Message: "which one?", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}}}`)})
		if err == nil && (!a.Allow || string(a.Content) != `{"n":7}`) {
			err = agent.Errorf(agent.Failed, "the answer is %s", shown(a))
		}
		return err
	}
	w.start()
	run := w.code(`return (await tools.fs.look({})).did;`)
	asks := w.asks(1)
	if asks[0].Asks == nil || asks[0].Asks.Message != "which one?" {
		t.Errorf("question: %s", shown(asks[0]))
	}
	if _, err := w.AnswerApprovals(t.Context(), app, "test", []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true, Content: json.RawMessage(`{"n":7}`)}); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, w.wait(run.ID), "look")
	w.asks(0)
}

// The narrower list of a script holds, whatever its agent is granted, and the grants of the agent whatever the script names.
func TestCodeGrants(t *testing.T) {
	w := newToolWorld(t, "")
	w.agent(agent.Agent{Name: "reader", Grants: agent.Grants{Tools: []agent.NamedGrant{{Name: "fs.look"}}}})
	w.start()
	for _, tt := range []struct {
		agent string
		tools []string
		want  string
	}{
		{"", nil, "look"}, {"", []string{"fs.*"}, "look"}, {"reader", nil, "look"}, {"reader", []string{"*"}, "look"},
		{"", []string{"fs.put"}, "denied"}, {"", []string{}, "denied"}, {"a", nil, "denied"},
	} {
		run, _, err := w.StartCode(t.Context(), app, runtime.CodeRun{Agent: tt.agent, Tools: tt.tools, Text: `try { return (await tools.fs.look({})).did } catch (e) { return e.kind }`}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		wantOutput(t, w.wait(run.ID), tt.want)
	}
}

func TestStartTool(t *testing.T) {
	w := newToolWorld(t, "")
	w.start()
	run, _, err := w.StartTool(t.Context(), app, runtime.ToolRun{Tool: "fs.look", Args: json.RawMessage(`{"n": 1}`)}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, w.wait(run.ID), `{"did":"look"}`)
	if _, _, err := w.StartTool(t.Context(), app, runtime.ToolRun{Tool: "fs.lok"}, store.Once{}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("a tool that is not there: %v", err)
	}
}

// Mistakes are told before anything is done, and errors with the line and column of the script as its author wrote it.
func TestCodePlaces(t *testing.T) {
	w := newToolWorld(t, "")
	w.start()
	_, _, err := w.StartCode(t.Context(), app, runtime.CodeRun{Text: "await tools.fs.look({});\n  await tools.fs.lok({});\n"}, store.Once{})
	if e := agent.AsError(err); kind(err) != "invalid" || e.Pos.Line != 2 || !strings.Contains(e.Msg+e.Hint, "look") {
		t.Errorf("a tool that is not there: %v at %v", err, e.Pos)
	}
	for _, tt := range []struct {
		text string
		pos  agent.Pos
	}{
		{`const x = null; return x.y;`, agent.Pos{File: "main.ts", Line: 1, Column: 24}},
		{"const x = null;\nreturn x.y;", agent.Pos{File: "main.ts", Line: 2, Column: 8}},
		{"const x = ;", agent.Pos{File: "main.ts", Line: 1, Column: 11}},
	} {
		run, _, err := w.StartCode(t.Context(), app, runtime.CodeRun{Text: tt.text}, store.Once{})
		pos := agent.Pos{}
		if err != nil {
			pos = agent.AsError(err).Pos
		} else if run = w.wait(run.ID); run.Error != nil {
			pos = run.Error.Pos
			if !strings.Contains(run.Error.Stack, fmt.Sprintf("main.ts:%d:%d", tt.pos.Line, tt.pos.Column)) {
				t.Errorf("%s: stack %s", tt.text, run.Error.Stack)
			}
		}
		if pos != tt.pos {
			t.Errorf("%s: at %v, want %v", tt.text, pos, tt.pos)
		}
	}
	if n := len(w.shelf.made()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// What the call of a tool leads to is judged by itself, although it be of the same tool and the same arguments.
func TestCodeCallWithinCall(t *testing.T) {
	w := newToolWorld(t, "")
	var again atomic.Pointer[string]
	w.shelf.hold = func(ctx context.Context, method string, o *tools.CallOptions) error {
		if method == "put" && again.Load() == nil {
			_, err := o.Call(ctx, abi.CallTool, []byte(`{"tool":"fs.put","args":{"n":1}}`))
			said := kind(err)
			again.Store(&said)
		}
		return nil
	}
	w.start()
	run := w.code(`return (await tools.fs.put({ n: 1 })).did;`)
	w.answer(true, w.asks(1)[0])
	wantOutput(t, w.wait(run.ID), "put")
	if got := again.Load(); got == nil || *got != "denied" {
		t.Errorf("a call within the call is not denied: %v", shown(got))
	}
	if n := len(w.shelf.made()); n != 1 {
		t.Errorf("%d calls", n)
	}
}
