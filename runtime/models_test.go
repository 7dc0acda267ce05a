package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// oracle is a provider of models with a script. While hold is set, its streams stop after so many bytes until let is called.
type oracle struct {
	next http.RoundTripper

	mu    sync.Mutex
	asked []string // bodies of requests
	hold  int
	gate  chan struct{}
}

func (o *oracle) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	res, err := o.next.RoundTrip(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, string(body))
	if err == nil && o.hold > 0 {
		res.Body = &heldBody{ReadCloser: res.Body, ctx: r.Context(), left: o.hold, gate: o.gate}
	}
	return res, err
}

// holds has streams stop after so many bytes from now on.
func (o *oracle) holds(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hold, o.gate = n, make(chan struct{})
}

// let has them go on, and later ones go through.
func (o *oracle) let() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hold = 0
	close(o.gate)
}

func (o *oracle) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.asked...)
}

type heldBody struct {
	io.ReadCloser
	ctx  context.Context
	left int
	gate chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		select {
		case <-b.gate:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
		return b.ReadCloser.Read(p)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// oneProvider are the records of an app with a provider "fake" of any model, and the routes @main and @summarizer.
type oneProvider struct{ routes []string }

func (oneProvider) Stamp(context.Context, agent.App) (gateway.Stamp, error) {
	return gateway.Stamp{Providers: 1, Routes: 1}, nil
}

func (o oneProvider) Read(context.Context, agent.App) ([]agent.Provider, []agent.ModelRoute, error) {
	p := agent.Provider{Name: "fake", App: app, Protocols: []agent.Protocol{agent.ChatProtocol}, Script: "s", Revision: 1}
	var routes []agent.ModelRoute
	for _, name := range o.routes {
		routes = append(routes, agent.ModelRoute{Name: name, App: app, Candidates: []agent.Candidate{{Provider: "fake", Model: name}}, Attempts: 1, Revision: 1})
	}
	return []agent.Provider{p}, routes, nil
}

// modelWorld is a world with tools and models.
type modelWorld struct {
	*toolWorld
	oracle *oracle
	opts   runtime.Options
}

// newModelWorld makes a world with an agent "m" of that code, which may use the models and tools that are granted to it.
func newModelWorld(t testing.TB, turns, code string, o runtime.Options, grant ...string) *modelWorld {
	t.Helper()
	codecs := []wire.Codec{chat.Codec}
	s, err := script.New([]byte(turns), codecs)
	if err != nil {
		t.Fatal(err)
	}
	w := &modelWorld{toolWorld: newToolWorld(t, ""), oracle: &oracle{next: s}, opts: o}
	g := gateway.New(&gateway.Options{
		Codecs: codecs, Records: oneProvider{[]string{"main", "summarizer"}}, Backoff: time.Millisecond,
		Script: func(context.Context, agent.Provider) (http.RoundTripper, error) { return w.oracle, nil },
	})
	t.Cleanup(func() { _ = g.Close() })
	w.opts.Models, w.opts.Tools = g, w.tools
	w.Runtime = runtime.New(w.store, w.cells, new(w.opts))
	w.push(code)
	a := agent.Agent{Name: "m", Grants: agent.Grants{Tools: []agent.NamedGrant{{Name: "fs.*"}}}}
	for _, name := range grant {
		a.Grants.Models = append(a.Grants.Models, agent.NamedGrant{Name: name})
	}
	w.agent(a)
	return w
}

// again is the world after its process has died.
func (w *modelWorld) again() *modelWorld {
	n := *w
	n.toolWorld = &toolWorld{world: w.next(new(w.opts)), shelf: w.shelf, tools: w.tools}
	return &n
}

func (w *modelWorld) launch(function, input string) agent.Run {
	w.t.Helper()
	run, _, err := w.StartRun(w.t.Context(), app, runtime.RunRequest{Agent: "m", Function: function, Input: agent.JSON([]byte(input))}, store.Once{})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// events are those of a run's session.
func (w *modelWorld) events(run agent.Run) []agent.Event {
	w.t.Helper()
	events, err := w.store.Read(w.t.Context(), store.SessionLog(app, run.Session), 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// said is what a listener makes of the events of an answer.
type said struct {
	attempt int
	parts   map[int]string
	done    *abi.MessageDone
	model   string
}

// fold reads events as a listener does: by id, attempt and offset. It fails when anything is missing or there twice.
func fold(t testing.TB, events []agent.Event) map[string]*said {
	t.Helper()
	out := map[string]*said{}
	for _, ev := range events {
		switch ev.Kind {
		case agent.EventMessageStarted:
			var s abi.MessageStarted
			readEvent(t, ev, &s)
			if was := out[s.ID]; was != nil && was.attempt >= s.Attempt {
				t.Errorf("%s was started twice as attempt %d", s.ID, s.Attempt)
			}
			out[s.ID] = &said{attempt: s.Attempt, parts: map[int]string{}, model: s.Model}
		case agent.EventMessageDelta:
			var d abi.MessageDelta
			readEvent(t, ev, &d)
			m := out[d.ID]
			if m == nil || m.attempt != d.Attempt || m.done != nil {
				t.Errorf("a delta of %s, attempt %d, which is not under way: %+v", d.ID, d.Attempt, m)
				continue
			}
			if int64(len(m.parts[d.Index])) != d.Offset {
				t.Errorf("a delta of %s at %d, after %d bytes", d.ID, d.Offset, len(m.parts[d.Index]))
			}
			m.parts[d.Index] += d.Text
		case agent.EventMessageDone:
			var d abi.MessageDone
			readEvent(t, ev, &d)
			if m := out[d.ID]; m == nil || m.attempt != d.Attempt || m.done != nil {
				t.Errorf("the end of %s, attempt %d, which is not under way", d.ID, d.Attempt)
			} else {
				m.done = &d
			}
		}
	}
	return out
}

func readEvent(t testing.TB, ev agent.Event, v any) {
	t.Helper()
	if err := json.Unmarshal(ev.Data, v); err != nil {
		t.Fatal(err)
	}
}

const asker = `
import { files as kept, model } from "skep";
const tell = async (f) => { try { return await f() } catch (e) { return [e.kind, e.message] } };
export const ask = async (q, ctx) => tell(async () => (await model.generate(q.messages ? q : { prompt: "Go.", ...q })).text);
export const list = () => model.list();
export const files = async (n) => {
	await kept.write("a.pdf", new Uint8Array(1 << 20), { type: "application/pdf" });
	return ask({ prompt: Array(n).fill({ type: "file", file: "a.pdf" }) });
};
export const stream = async (q) => tell(async () => {
	const s = model.stream({ prompt: "Go.", ...q });
	let text = "";
	for await (const p of s) if (p.type === "text") text += p.text;
	return [text === (await s.answer).text, text];
});
export const first = async () => { for await (const p of model.stream("Go.")) return p.text };
export const many = async () => {
	const all = [];
	for (let i = 0; i < 33; i++) { const s = model.stream("Go."); const it = s[Symbol.asyncIterator](); all.push(it); await it.next() }
};
`

const poem = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"

var poemTurns = fmt.Sprintf(`{"match":{"nth":1},"reply":{"text":%q,"chunk":4}}`, poem)

func TestModelGrants(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "fake/b*")
	w.start()
	for input, want := range map[string]string{
		`{}`: `"denied"`,
		`{"model":"@x","prompt":[{"type":"file","file":"none"}]}`: `"denied"`, // before any file is looked for
		`{"model":"fake/c"}`:             `"denied"`,
		`{"model":"fake/bee"}`:           poem,
		`{"model":"fake/bee","stop":[]}`: poem,
	} {
		if got := w.output(w.launch("ask", input)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", input, got, want)
		}
		if got := w.output(w.launch("stream", input)); !strings.Contains(got, want) {
			t.Errorf("%s, streamed: %s, want %s", input, got, want)
		}
	}
	if n := len(w.oracle.requests()); n != 4 {
		t.Errorf("%d requests have reached the provider", n)
	}
	if got := w.output(w.launch("list", `null`)); got != `[]` {
		t.Errorf("list: %s", got)
	}
	w = newModelWorld(t, poemTurns, asker, runtime.Options{}, "@main")
	w.start()
	if got := w.output(w.launch("list", `null`)); got != `[{"name":"@main"}]` {
		t.Errorf("list: %s", got)
	}
}

func TestNoModels(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "*")
	w.Runtime = runtime.New(w.store, w.cells, &runtime.Options{})
	w.start()
	if got := w.output(w.launch("ask", `{}`)); got != `["denied","this server has no models"]` {
		t.Error(got)
	}
	if got := w.output(w.launch("list", `null`)); got != `[]` {
		t.Error(got)
	}
}

func TestModelArguments(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "*")
	w.start()
	for input, want := range map[string]string{
		`{"maxTokens":-1}`: `max_tokens: -1 is below 0`,
		`{"prompt":null}`:  `prompt is a text`,
		`{"prompt":[]}`:    ``,
		`{"prompt":[{"type":"text","text":"x"},{"type":"song"}]}`:                           `messages[0].content[1].type: \"song\" is none of`,
		`{"prompt":[{"type":"image"}]}`:                                                     `messages[0].content[0]: it has none of data, url and file`,
		`{"prompt":[{"type":"image","data":"AQ=="}]}`:                                       `messages[0].content[0].mime: it is missing`,
		`{"prompt":[{"type":"file","file":"none.pdf"}]}`:                                    `not_found`,
		`{"prompt":[{"type":"reasoning","text":"x","opaque":"o","origin":1}]}`:              `messages[0].content[0].origin: it is not as the answer had it`,
		`{"prompt":[{"type":"tool-result","id":"c","result":[{"type":"song"}]}]}`:           `messages[0].content[0].result[0].type`,
		`{"tools":[{"name":"a","schema":{"type":"object"}}],"choice":"b"}`:                  `invalid`,
		`{"model":"@nowhere"}`:                                                              `not_found`,
		`{"prompt":"` + strings.Repeat("x", 9) + `","format":{"schema":{"type":"object"}}}`: ``,
	} {
		got := w.output(w.launch("ask", input))
		if !strings.Contains(got, want) || want != "" && !strings.HasPrefix(got, `["`) {
			if want == `prompt is a text` && strings.Contains(got, want) {
				continue
			}
			t.Errorf("%s: %s, want %s", input, got, want)
		}
	}
	run := w.launch("ask", `{"prompt":"x"}`)
	w.output(run)
	if m := fold(t, w.events(run)); len(m) != 0 {
		t.Errorf("an answer that is not shown has events: %v", m)
	}
}

// The files of the session that one request has are bounded together: what names them is short.
func TestModelFiles(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "@main")
	w.start()
	for n, want := range map[string]string{"2": poem, "25": `messages[0].content[24]: the images and files of the request have more than 25165824 bytes in all`} {
		if got := w.output(w.launch("files", n)); !strings.Contains(got, want) {
			t.Errorf("%s files: %.300s, want %s", n, got, want)
		}
	}
}

// Models write arguments that are no JSON, or no object. A conversation with such a call can go on, also at a provider that takes objects only.
func TestModelBadArguments(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "@main")
	w.start()
	for args, want := range map[string]string{
		`"{\"a\":"`: `{"invalid_arguments":"{\"a\":"}`,
		`[1]`:       `{"invalid_arguments":"[1]"}`,
		`{"a":1}`:   `{"a":1}`,
		`null`:      `{}`,
	} {
		before := len(w.oracle.requests())
		got := w.output(w.launch("ask", `{"messages":[{"role":"user","content":"x"},
			{"role":"assistant","content":[{"type":"tool-call","id":"c","name":"f","args":`+args+`}]},
			{"role":"user","content":[{"type":"tool-result","id":"c","name":"f","result":"no"}]}]}`))
		all := w.oracle.requests()
		if len(all) != before+1 {
			t.Errorf("%s: %s", args, got)
			continue
		}
		var sent struct {
			Messages []struct {
				Calls []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
			}
		}
		if err := json.Unmarshal([]byte(all[before]), &sent); err != nil || len(sent.Messages) != 3 || len(sent.Messages[1].Calls) != 1 {
			t.Fatalf("%s: %s, %v", args, all[before], err)
		}
		if got := sent.Messages[1].Calls[0].Function.Arguments; got != want {
			t.Errorf("%s was sent as %s, want %s", args, got, want)
		}
	}
}

func TestModelShows(t *testing.T) {
	w := newModelWorld(t, `{"match":{"nth":1},"reply":{"reasoning":"Let me think about that for a while.","text":"`+poem+`","calls":[{"name":"a","args":{"b":"ccc"}}],"chunk":4}}`, asker, runtime.Options{}, "@main")
	w.start()
	for _, f := range []string{"ask", "stream"} {
		run := w.launch(f, `{"show":"x","tools":[{"name":"a","schema":{"type":"object"}}]}`)
		if got := w.output(run); !strings.Contains(got, poem) {
			t.Fatalf("%s: %s", f, got)
		}
		m := fold(t, w.events(run))["x"]
		if m == nil || m.done == nil {
			t.Fatalf("%s: %q", f, w.sessionLog(run))
		}
		var all []string
		for i := range len(m.parts) {
			all = append(all, m.parts[i])
		}
		if got := strings.Join(all, "|"); !strings.Contains(got, poem) || !strings.Contains(got, `{"b":"ccc"}`) {
			t.Errorf("%s: shown %s", f, got)
		}
		if m.attempt != 1 || m.done.Stop != "tool" || m.done.Usage == nil || m.done.Usage.Output == 0 || m.done.Error != "" {
			t.Errorf("%s: %+v, %+v", f, m, m.done)
		}
		deltas := 0
		for _, ev := range w.events(run) {
			if ev.Kind == agent.EventMessageDelta {
				deltas++
			}
		}
		if deltas > 8 { // there are some forty pieces
			t.Errorf("%s: %d deltas", f, deltas)
		}
	}
	failed := newModelWorld(t, `{"match":{"nth":1},"reply":{"text":"`+poem+`","chunk":4},"cut":6}`, asker, runtime.Options{}, "@main")
	failed.start()
	run := failed.launch("ask", `{"show":"x"}`)
	if got := failed.output(run); !strings.HasPrefix(got, `["unavailable"`) {
		t.Error(got)
	}
	if m := fold(t, failed.events(run))["x"]; m == nil || m.done == nil || m.done.Error == "" {
		t.Errorf("what was shown of a broken answer: %+v", m)
	}
}

// A stream that is given up ends at the provider, too, and only so many are open.
func TestModelStreams(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "@main")
	w.start()
	if got := w.output(w.launch("first", `null`)); got == "" || !strings.HasPrefix(poem, got) {
		t.Errorf("first: %s", got)
	}
	w.oracle.holds(600)
	defer w.oracle.let()
	if got := w.output(w.launch("many", `null`)); !strings.Contains(got, "the code has 32 streams of models open") {
		t.Errorf("many: %s", got)
	}
}

// A cell is given up while a model thinks for long, and what the model says meanwhile is shown.
func TestModelOutlastsCell(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{Outside: time.Millisecond}, "@main")
	w.start()
	w.oracle.holds(1200)
	run := w.launch("ask", `{"show":"x"}`)
	w.until(run, agent.EventMessageDelta)
	w.until(run, agent.EventRunWaiting)
	w.oracle.let()
	if got := w.output(run); got != poem {
		t.Errorf("got %s: %q", got, w.sessionLog(run))
	}
	if m := fold(t, w.events(run))["x"]; m == nil || m.parts[0] != poem || m.done == nil || m.attempt != 1 {
		t.Errorf("shown %+v: %q", m, w.sessionLog(run))
	}
	if n := len(w.oracle.requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	// A stream would be lost with the cell, which stays.
	w.oracle.holds(1200)
	run = w.launch("stream", `{"show":"y"}`)
	w.until(run, agent.EventMessageDelta)
	w.oracle.let()
	if got := w.output(run); got != `[true,"`+poem+`"]` {
		t.Errorf("streamed %s: %q", got, w.sessionLog(run))
	}
}

// A process dies while a model speaks. The next one asks again, and what was shown before is void.
func TestModelCrash(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "@main")
	w.start()
	w.oracle.holds(1200)
	run := w.launch("ask", `{"show":"x"}`)
	w.until(run, agent.EventMessageDelta)
	next := w.again() // the fence keeps the first from writing any more
	next.start()
	next.until(run, agent.EventRunResumed)
	w.oracle.let()
	if got := next.output(run); got != poem {
		t.Errorf("got %s: %q", got, next.sessionLog(run))
	}
	m := fold(t, next.events(run))["x"]
	if m == nil || m.parts[0] != poem || m.done == nil || m.attempt != 2 {
		t.Errorf("shown %+v: %q", m, next.sessionLog(run))
	}
}

// A server that stops in the middle of an answer does not fail the run.
func TestModelStop(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{Grace: 50 * time.Millisecond}, "@main")
	stop := w.start()
	w.oracle.holds(1200)
	run := w.launch("ask", `{"show":"x"}`)
	w.until(run, agent.EventMessageDelta)
	stop()
	w.oracle.let()
	next := w.again()
	next.start()
	if got := next.output(run); got != poem {
		t.Errorf("got %s: %q", got, next.sessionLog(run))
	}
	if m := fold(t, next.events(run))["x"]; m == nil || m.parts[0] != poem || m.done == nil || m.attempt < 2 {
		t.Errorf("shown %+v: %q", m, next.sessionLog(run))
	}
	if d := cmp.Diff(2, len(w.oracle.requests())); d != "" {
		t.Error(d)
	}
}

// Scripts of code mode have models as their agent has them.
func TestModelInCode(t *testing.T) {
	w := newModelWorld(t, poemTurns, asker, runtime.Options{}, "@main")
	w.start()
	for name, want := range map[string]string{"m": poem, "": "no grant to use model"} {
		run, _, err := w.StartCode(t.Context(), app, runtime.CodeRun{
			Agent: name, Text: `try { return (await model.generate("Go.")).text } catch (e) { return e.message }`, Input: agent.JSON([]byte("null")),
		}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.output(run); !strings.Contains(got, want) {
			t.Errorf("agent %q: %s", name, got)
		}
	}
}
