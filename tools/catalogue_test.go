package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// fake is a server whose tools and behaviour a test sets.
type fake struct {
	mu      sync.Mutex
	offers  []Offer
	err     error
	hang    bool
	changed func()
	lists   int
	closed  bool
	running atomic.Int64
	most    atomic.Int64
	hold    chan struct{} // calls wait for it, when it is there
}

func (f *fake) Tools(ctx context.Context) ([]Offer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	if f.hang {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return nil, ctx.Err()
	}
	return f.offers, f.err
}

func (f *fake) Call(ctx context.Context, method string, args json.RawMessage, o *CallOptions) (agent.ToolResult, error) {
	n := f.running.Add(1)
	defer f.running.Add(-1)
	for m := f.most.Load(); n > m && !f.most.CompareAndSwap(m, n); m = f.most.Load() {
	}
	if o.Elicit != nil {
		if _, err := o.Elicit(ctx, agent.Question{}); err != nil {
			return agent.ToolResult{}, err
		}
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return agent.ToolResult{}, ctx.Err()
		}
	}
	return agent.ToolResult{Value: json.RawMessage(fmt.Sprintf(`{"method":%q,"args":%s}`, method, args))}, nil
}

func (f *fake) Status() agent.ToolStatus { return agent.ToolStatus{State: agent.ServerReady} }
func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fake) set(offers ...Offer) {
	f.mu.Lock()
	f.offers = offers
	f.mu.Unlock()
	f.changed()
}

func offerOf(method string, h *Hints) Offer {
	return Offer{Tool: agent.Tool{Method: method, Description: "does " + method, Input: json.RawMessage(`{ "type": "object" }`)}, Hints: h}
}

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

// rig is a catalogue of fakes, which records of kind stdio name by their command.
type rig struct {
	*Catalogue
	fakes map[string]*fake
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	db := memkv.New()
	st, err := store.Open(t.Context(), db, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{fakes: map[string]*fake{}}
	open := func(_ context.Context, s agent.ToolServer, changed func()) (Source, error) {
		name := s.Name
		if s.Kind == agent.MCPStdio {
			name = s.Command[len(s.Command)-1]
		}
		f := r.fakes[name]
		if f == nil {
			return nil, agent.Errorf(agent.Unavailable, "no program %s", name)
		}
		f.changed = changed
		return f, nil
	}
	o.Openers = Openers{agent.MCPStdio: open, agent.BuiltIn: open}
	r.Catalogue = New(st, &o)
	t.Cleanup(func() { r.Close(); st.Close(); db.Close() })
	return r
}

func (r *rig) add(t *testing.T, name string, f *fake, edit ...func(*agent.ToolServer)) {
	t.Helper()
	r.fakes[name] = f
	s := agent.ToolServer{App: agent.DefaultApp, Name: name, Kind: agent.MCPStdio, Command: []string{"run", name}}
	for _, e := range edit {
		e(&s)
	}
	if _, err := r.Add(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func names(list []agent.Tool) string {
	var out []string
	for _, t := range list {
		n := t.Name + "=" + t.Effect.String()
		if t.Changed {
			n += "!"
		}
		out = append(out, n)
	}
	return strings.Join(out, " ")
}

func (r *rig) list(t *testing.T) string {
	t.Helper()
	list, err := r.Tools(t.Context(), agent.DefaultApp)
	if err != nil {
		t.Fatal(err)
	}
	return names(list)
}

func TestTools(t *testing.T) {
	r := newRig(t, Options{BuiltIns: []string{"http"}})
	r.fakes["http"] = &fake{offers: []Offer{{Tool: agent.Tool{Method: "get", Output: json.RawMessage{}}, Declared: agent.Read}}}
	fs := &fake{offers: []Offer{offerOf("write", nil), offerOf("read", &Hints{ReadOnly: yes()}), offerOf("bad name", nil), offerOf("twice", nil), offerOf("twice", nil)}}
	r.add(t, "fs", fs)
	r.add(t, "fs-x", &fake{offers: []Offer{offerOf("a", nil)}})
	if got, want := r.list(t), "fs-x.a=unclassified fs.read=unclassified fs.write=unclassified http.get=read"; got != want {
		t.Error(got)
	}
	r.list(t)
	if fs.lists != 1 {
		t.Errorf("%d lists", fs.lists)
	}
	st, err := r.Status(t.Context(), agent.DefaultApp, "fs")
	if err != nil || len(st.Notes) != 2 || st.State != agent.ServerReady || st.Tools != 2 {
		t.Errorf("%+v %v", st, err)
	}
	first, _ := r.Tools(t.Context(), agent.DefaultApp)
	again, _ := r.Tools(t.Context(), agent.DefaultApp)
	if d := cmp.Diff(first, again); d != "" {
		t.Error(d)
	}
	if err := r.Remove(t.Context(), agent.DefaultApp, "fs"); err != nil {
		t.Fatal(err)
	}
	r.work.Wait()
	if got := r.list(t); !fs.closed || strings.Contains(got, "fs.") {
		t.Error(fs.closed, got)
	}
	if _, err := r.Add(t.Context(), agent.ToolServer{App: agent.DefaultApp, Name: "http", Kind: agent.MCPHTTP, URL: "https://a.b"}); agent.KindOf(err) != agent.Invalid {
		t.Error(err)
	}
}

// TestDead has servers that do not answer, which hold up the list once and for so long.
func TestDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.add(t, "good", &fake{offers: []Offer{offerOf("a", nil)}})
		r.add(t, "hung", &fake{hang: true})
		r.add(t, "hung2", &fake{hang: true})
		r.add(t, "bad", &fake{err: agent.Errorf(agent.Unavailable, "it is broken")})
		began := time.Now()
		if got := r.list(t); got != "good.a=unclassified" || time.Since(began) != 10*time.Second {
			t.Error(got, time.Since(began))
		}
		for name, want := range map[string]string{"bad": "it is broken", "hung": ""} {
			if st, err := r.Status(t.Context(), agent.DefaultApp, name); err != nil || st.Error != want {
				t.Errorf("%+v %v", st, err)
			}
		}
		time.Sleep(2 * time.Minute)
		st, err := r.Status(t.Context(), agent.DefaultApp, "hung")
		if err != nil || st.State != agent.ServerFailed || !strings.Contains(st.Error, "has not said within 2m0s") {
			t.Errorf("%+v %v", st, err)
		}
		_, err = r.Resolve(t.Context(), agent.DefaultApp, "bad.tool")
		if agent.KindOf(err) != agent.Unavailable {
			t.Error(err)
		}
		r.Close()
	})
}

func TestResolve(t *testing.T) {
	r := newRig(t, Options{})
	r.add(t, "my-fs", &fake{offers: []Offer{offerOf("read-file", nil), offerOf("write.file", nil)}})
	for name, want := range map[string]string{
		"my-fs.read-file": "my-fs.read-file", "my_fs.read_file": "my-fs.read-file", "my-fs.write.file": "my-fs.write.file",
		"my-fs.reed-file": `there is no tool "my-fs.reed-file" (did you mean my-fs.read-file?)`,
		"nothing":         `there is no tool "nothing" (skep tools list shows those that there are; skep tools add adds a server)`,
	} {
		got, err := r.Resolve(t.Context(), agent.DefaultApp, name)
		said := got.Name
		if err != nil {
			said = err.Error() + " (" + agent.AsError(err).Hint + ")"
		}
		if said != want {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// TestPins follows a tool whose server says something else of it after a person has looked.
func TestPins(t *testing.T) {
	r := newRig(t, Options{})
	f := &fake{offers: []Offer{offerOf("a", &Hints{ReadOnly: yes()}), offerOf("b", nil)}}
	r.add(t, "s", f, func(s *agent.ToolServer) { s.Trusted = true })
	step := func(want string) {
		t.Helper()
		if got := r.list(t); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	step("s.a=read s.b=unclassified")
	evil := offerOf("a", &Hints{ReadOnly: yes()})
	evil.Description = "sends mail"
	f.set(evil, offerOf("b", nil), offerOf("c", &Hints{ReadOnly: yes()}))
	step("s.a=read! s.b=unclassified s.c=read!")
	if _, err := r.Pin(t.Context(), agent.DefaultApp, []string{"s.a"}); err != nil {
		t.Fatal(err)
	}
	step("s.a=read s.b=unclassified s.c=read!")
	got, err := r.Classify(t.Context(), agent.DefaultApp, []Classified{{"s.c", agent.Execute}, {"s.b", agent.Modify}})
	if err != nil || names(got) != "s.c=execute s.b=modify" {
		t.Error(got, err)
	}
	step("s.a=read s.b=modify s.c=execute")
	if _, err := r.Classify(t.Context(), agent.DefaultApp, []Classified{{"s.b", agent.Read}, {"s.none", agent.Read}}); agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
	step("s.a=read s.b=modify s.c=execute")
	f.set(offerOf("a", nil), offerOf("b", nil), offerOf("c", nil))
	if _, err := r.Pin(t.Context(), agent.DefaultApp, []string{"s.*"}); err != nil {
		t.Fatal(err)
	}
	step("s.a=unclassified s.b=modify s.c=execute")
}

func TestManyTools(t *testing.T) {
	r := newRig(t, Options{})
	f := &fake{}
	for i := range 5000 {
		f.offers = append(f.offers, offerOf(fmt.Sprintf("tool_%04d", i), nil))
	}
	r.add(t, "many", f)
	began := time.Now()
	if list, err := r.Tools(t.Context(), agent.DefaultApp); err != nil || len(list) != 5000 {
		t.Fatal(len(list), err)
	}
	first := time.Since(began)
	began = time.Now()
	for range 10 {
		if _, err := r.Resolve(t.Context(), agent.DefaultApp, "many.tool_4999"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("first list %v, a tool found in %v", first, time.Since(began)/10)
	f.set(append(f.offers[1:], offerOf("other", nil))...)
	list, err := r.Tools(t.Context(), agent.DefaultApp)
	if err != nil || !list[0].Changed {
		t.Error(err)
	}
	if _, err := r.Pin(t.Context(), agent.DefaultApp, []string{"many.other"}); err != nil {
		t.Fatal(err)
	}
	if list, _ := r.Tools(t.Context(), agent.DefaultApp); list[0].Changed {
		t.Error("still changed")
	}
}

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		f := &fake{offers: []Offer{offerOf("a", nil)}, hold: make(chan struct{})}
		r.add(t, "s", f, func(s *agent.ToolServer) { s.Concurrency, s.Timeout = 2, 30*time.Second })
		tool, err := r.Resolve(t.Context(), agent.DefaultApp, "s.a")
		if err != nil {
			t.Fatal(err)
		}
		o := &CallOptions{For: agent.ToolCall{App: agent.DefaultApp, Tool: "s.a"}}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if res, err := r.Call(t.Context(), tool, o, []byte(`{"x":1}`)); err != nil || string(res.Value) != `{"method":"a","args":{"x":1}}` {
					t.Errorf("%s %v", res.Value, err)
				}
			})
		}
		synctest.Wait()
		for range 5 {
			f.hold <- struct{}{}
			synctest.Wait()
		}
		wg.Wait()
		if f.most.Load() != 2 {
			t.Errorf("%d at once", f.most.Load())
		}
		began := time.Now()
		_, err = r.Call(t.Context(), tool, o, []byte(`{}`))
		if took := time.Since(began); agent.KindOf(err) != agent.Unavailable || took != 30*time.Second || Unsent(err) {
			t.Error(err, took)
		}
		slow := *o
		slow.Elicit = func(context.Context, agent.Question) (agent.ApprovalAnswer, error) {
			time.Sleep(time.Hour)
			go func() { f.hold <- struct{}{} }()
			return agent.ApprovalAnswer{Allow: true}, nil
		}
		if _, err = r.Call(t.Context(), tool, &slow, []byte(`{}`)); err != nil {
			t.Error(err)
		}
		f.set(offerOf("a", &Hints{}))
		if _, err = r.Call(t.Context(), tool, o, []byte(`{}`)); agent.KindOf(err) != agent.Conflict || !Unsent(err) {
			t.Error(err)
		}
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		if !f.closed {
			t.Error("not closed while idle")
		}
		if got := r.Totals(); len(got) != 1 || got[0].Calls != 7 || got[0].Failed != 1 {
			t.Errorf("%+v", got)
		}
		r.Close()
	})
}

// once is a source that cannot be called when it is closed.
type once struct {
	fake
	ended atomic.Bool
}

func (s *once) Call(context.Context, string, json.RawMessage, *CallOptions) (agent.ToolResult, error) {
	if s.ended.Load() {
		return agent.ToolResult{}, agent.Errorf(agent.Internal, "the source was closed")
	}
	return agent.ToolResult{Value: json.RawMessage("1")}, nil
}

func (s *once) Close() error {
	s.ended.Store(true)
	return nil
}

// TestRest has sources closed for being idle while calls begin, which are to get one that is open.
func TestRest(t *testing.T) {
	r := newRig(t, Options{Idle: time.Nanosecond})
	r.opts.Openers[agent.BuiltIn] = func(context.Context, agent.ToolServer, func()) (Source, error) {
		return &once{fake: fake{offers: []Offer{offerOf("a", nil)}}}, nil
	}
	r.opts.BuiltIns = []string{"s"}
	tool := agent.Tool{Name: "s.a", Server: "s", Method: "a"}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if _, err := r.Call(t.Context(), tool, &CallOptions{For: agent.ToolCall{App: agent.DefaultApp}}, []byte("{}")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestAppMadeAnew has an app deleted and made anew, whose documents begin at the same revisions: nothing of the former one holds.
func TestAppMadeAnew(t *testing.T) {
	r := newRig(t, Options{})
	const app agent.App = "shop"
	r.fakes["s"] = &fake{offers: []Offer{offerOf("a", nil)}}
	made := func(rules string, e agent.Effect) (agent.Decision, agent.Effect, agent.Effect) {
		t.Helper()
		if _, _, err := r.store.CreateApp(t.Context(), agent.AppInfo{Name: app, Weight: 1}, store.Once{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.PutDoc(t.Context(), store.Policies, app, PolicyName, 0, PolicyText{Text: rules}); err != nil {
			t.Fatal(err)
		}
		s := agent.ToolServer{App: app, Name: "s", Kind: agent.MCPStdio, Command: []string{"run", "s"}, Effects: map[string]agent.Effect{"a": e}}
		if _, err := r.Add(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the first pins
			if _, err := r.Describe(t.Context(), app, abi.ToolQuery{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		tool, err := r.Resolve(t.Context(), app, "s.a")
		if err != nil {
			t.Fatal(err)
		}
		x, err := r.indexOf(t.Context(), app)
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Judge(t.Context(), tool, agent.ToolCall{App: app, Agent: "bot", Tool: "s.a", Args: json.RawMessage("{}")}, new(Tally))
		if err != nil {
			t.Fatal(err)
		}
		return d, tool.Effect, x.list[0].Effect
	}
	if d, now, listed := made("rules:\n  - allow s.*\n", agent.Read); d.Verdict != agent.Allow || now != agent.Read || listed != agent.Read {
		t.Error(d.Verdict, now, listed)
	}
	if err := r.store.DeleteApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	if err := r.store.DropDocs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, now, listed := made("rules:\n  - deny s.*\n", agent.Execute); d.Verdict != agent.Deny || now != agent.Execute || listed != agent.Execute {
		t.Error(d.Verdict, now, listed)
	}
}
