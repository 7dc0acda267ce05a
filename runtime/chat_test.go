package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

const chatter = `
import { ChatAgent } from "skep";
export default class extends ChatAgent {
	instructions = "Be brief.";
	tools = ["fs.*"];
	static functions = {
		add: { description: "Adds.", schema: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } }, run: ({ a, b }) => a + b },
	};
	MORE
}
`

func newChat(t testing.TB, turns, more string, grant ...string) *modelWorld {
	if grant == nil {
		grant = []string{"@main"}
	}
	return newModelWorld(t, turns, strings.ReplaceAll(chatter, "MORE", more), runtime.Options{}, grant...)
}

func (w *modelWorld) session() agent.SessionID {
	w.t.Helper()
	s, _, err := w.store.CreateSession(w.t.Context(), agent.Session{App: app, Agent: "m", Key: "default"}, store.Once{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s.ID
}

func (w *modelWorld) send(id agent.SessionID, content any) agent.Run {
	w.t.Helper()
	run, _, err := w.Send(w.t.Context(), app, id, agent.Message{Content: encoded(content)}, store.Once{})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// kept is what history returns.
type kept struct {
	Messages []struct {
		Seq     int
		Role    string
		Content json.RawMessage
	}
	Next    int
	First   int
	Summary string
}

func (w *modelWorld) history(id agent.SessionID, more string) (k kept) {
	w.t.Helper()
	res, err := w.CallInstance(w.t.Context(), app, runtime.InstanceCall{Agent: "m", Key: "default", Function: "history", Input: agent.JSON([]byte(fmt.Sprintf(`{"session":%q%s}`, id, more)))})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(res.Output.Body, &k); err != nil {
		w.t.Fatal(err)
	}
	return k
}

func (k kept) roles() string {
	var out []string
	for _, m := range k.Messages {
		out = append(out, m.Role)
	}
	return strings.Join(out, " ")
}

// asked is a request as a provider of the protocol of chats gets it.
type asked struct {
	Messages []struct {
		Role      string
		Content   json.RawMessage
		ToolCalls []struct{ ID string } `json:"tool_calls"`
		CallID    string                `json:"tool_call_id"`
	}
	Tools []struct {
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
	ToolChoice json.RawMessage `json:"tool_choice"`
}

// request returns one, from the end when n is below 0. It fails when a call and its result are parted.
func (w *modelWorld) request(n int) (a asked) {
	w.t.Helper()
	all := w.oracle.requests()
	if n < 0 {
		n += len(all)
	}
	if err := json.Unmarshal([]byte(all[n]), &a); err != nil {
		w.t.Fatal(err)
	}
	open := map[string]bool{}
	for _, m := range a.Messages {
		if m.Role != "tool" && len(open) > 0 {
			w.t.Errorf("a %s comes before the results of %v: %s", m.Role, open, all[n])
		}
		if m.Role == "tool" && !open[m.CallID] {
			w.t.Errorf("a result of no call: %s", all[n])
		}
		delete(open, m.CallID)
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		w.t.Errorf("calls without results: %s", all[n])
	}
	return a
}

func TestChatUsesTools(t *testing.T) {
	w := newChat(t, `{"match":{"contains":"three things"},"reply":{"text":"Let me see.","calls":[{"name":"fs_look","args":{"n":1}},{"name":"add","args":{"a":1,"b":2}},{"name":"nope"}]}}
		{"match":{"tool":"nope"},"reply":{"calls":[{"name":"fs_look","args":{"n":2}}]}}
		{"match":{"tool":"fs_look"},"reply":{"text":"Done: {{last}}"}}
		{"match":{"contains":"again"},"reply":{"text":"As I said."}}`, "")
	w.start()
	id := w.session()
	run := w.send(id, "Do three things.")
	if got := w.output(run); got != `Done: {"did":"look"}` {
		t.Fatalf("%s: %q %q", got, w.sessionLog(run), w.oracle.requests())
	}
	if got := w.shelf.made(); !slices.Equal(got, []string{`look{"n":1}`, `look{"n":2}`}) {
		t.Errorf("made %q", got)
	}
	first := w.request(0)
	var names []string
	for _, tool := range first.Tools {
		names = append(names, tool.Function.Name)
	}
	if got := strings.Join(names, " "); got != "add fs_blob fs_look fs_put fs_run" || first.Tools[2].Function.Description != "What look does." || !strings.Contains(string(first.Tools[2].Function.Parameters), `"n"`) {
		t.Errorf("tools %s: %+v", got, first.Tools)
	}
	if m := first.Messages[0]; m.Role != "system" || string(m.Content) != `"Be brief."` {
		t.Errorf("the system message is %s %s", m.Role, m.Content)
	}
	second, _ := json.Marshal(w.request(1))
	if s := string(second); !strings.Contains(s, `there is no tool \"nope\"`) && !strings.Contains(s, `there is no tool \\\"nope\\\"`) || !strings.Contains(s, `"3"`) {
		t.Errorf("the results were told as %s", s)
	}
	shown := fold(t, w.events(run))
	if len(shown) != 3 {
		t.Errorf("%d answers were shown", len(shown))
	}
	for id, m := range shown {
		if m.done == nil || m.done.Error != "" {
			t.Errorf("%s has not ended well: %+v", id, m.done)
		}
	}
	if got := w.output(w.send(id, "Say that again.")); got != "As I said." {
		t.Error(got)
	}
	if got := len(w.request(-1).Messages); got != 10 {
		t.Errorf("the second message was asked with %d messages", got)
	}
	if k := w.history(id, ""); k.roles() != "user assistant user assistant user assistant user assistant" || k.Next != 0 || k.First != 0 {
		t.Errorf("history: %+v", k)
	}
	if k := w.history(id, `,"after":1,"limit":2`); k.roles() != "assistant user" || k.Next != 3 {
		t.Errorf("a page of the history: %+v", k)
	}
}

// A person is asked in the middle of a turn, while another call of it goes on; the process dies meanwhile.
func TestChatAsksPerson(t *testing.T) {
	w := newChat(t, `{"match":{"contains":"write"},"reply":{"calls":[{"name":"fs_put","args":{"n":1}},{"name":"fs_look","args":{"n":2}},{"name":"fs_put","args":{"n":3}}]}}
		{"match":{"tool":"fs_put"},"reply":{"text":"Then: {{last}}"}}`, "")
	stop := w.start()
	run := w.send(w.session(), "Please write.")
	asks := w.asks(2)
	w.until(run, agent.EventRunWaiting)
	if got := w.shelf.made(); !slices.Equal(got, []string{`look{"n":2}`}) {
		t.Errorf("before the answer: %q", got)
	}
	stop()
	w = w.again()
	w.start()
	w.answer(true, asks[0])
	w.answer(false, asks[1])
	if got := w.output(run); !strings.Contains(got, "Then: ") || !strings.Contains(got, "so it is") {
		t.Errorf("%s: %q", got, w.sessionLog(run))
	}
	if got := w.shelf.made(); !slices.Equal(got, []string{`look{"n":2}`, `put{"n":1}`}) {
		t.Errorf("made %q", got)
	}
	if n := len(w.oracle.requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
	w.request(-1)
}

// TestChatWritesCode has the model write a script that calls tools, one of which a person approves.
func TestChatWritesCode(t *testing.T) {
	w := newChat(t, `{"match":{"contains":"count"},"reply":{"calls":[{"name":"execute","args":{"code":"const [a] = await Promise.all([tools.fs.look({ n: 1 }), tools.fs.put({ n: 2 })]); return { ...a, sum: 1 + 1 };"}}]}}
		{"match":{"contains":"break"},"reply":{"calls":[{"name":"execute","args":{"code":"return tools.fs.nothing({})"}}]}}
		{"match":{"tool":"execute"},"reply":{"text":"Then: {{last}}"}}`, "code = true;")
	stop := w.start()
	id := w.session()
	run := w.send(id, "Please count.")
	asks := w.asks(1)
	stop()
	w = w.again()
	w.start()
	w.answer(true, asks[0])
	if got := w.output(run); got != `Then: {"did":"look","sum":2}` {
		t.Errorf("%s: %q", got, w.sessionLog(run))
	}
	if got := w.shelf.made(); !slices.Contains(got, `put{"n":2}`) || len(got) != 2 {
		t.Errorf("made %q", got)
	}
	var names []string
	for _, tool := range w.request(0).Tools {
		names = append(names, tool.Function.Name)
	}
	if got := strings.Join(names, " "); got != "add execute search describe" {
		t.Errorf("the model is told of %s", got)
	}
	if got := w.output(w.send(id, "Now break.")); !strings.Contains(got, "nothing") {
		t.Errorf("a script that is wrong: %s", got)
	}
}

// checkpoints returns the data of chat.checkpoint events of a run's session.
func (w *modelWorld) checkpoints(run agent.Run) (out []map[string]any) {
	for _, ev := range w.events(run) {
		if ev.Kind == agent.EventEmit && ev.Name == "chat.checkpoint" {
			var m map[string]any
			readEvent(w.t, ev, &m)
			out = append(out, m)
		}
	}
	return out
}

const long = `SUMMARY
	{"match":{"contains":"hello"},"reply":{"calls":[{"name":"add","args":{"a":1,"b":2}}]}}
	{"match":{"tool":"add"},"reply":{"text":"I have added."}}`

func TestChatCompacts(t *testing.T) {
	for _, tc := range []struct{ name, summary, by, want string }{
		{"by model", `{"match":{"contains":"The conversation to sum up"},"reply":{"text":"They said hello."}}`, "model", "They said hello."},
		{"by fallback", `{"match":{"contains":"The conversation to sum up"},"fault":{"status":500}}`, "fallback", "messages before this point are left out"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newChat(t, strings.ReplaceAll(long, "SUMMARY", tc.summary), "contextTokens = 2000; compactAt = 0.8;", "@main", "@summarizer")
			w.start()
			id := w.session()
			var run agent.Run
			for range 6 {
				run = w.send(id, "hello "+strings.Repeat("and so on ", 150))
				if got := w.output(run); got != "I have added." {
					t.Fatalf("%s: %q", got, w.sessionLog(run))
				}
			}
			found := w.checkpoints(run)
			if len(found) == 0 {
				t.Fatal("nothing was compacted")
			}
			for _, c := range found {
				if c["by"] != tc.by || !strings.Contains(c["summary"].(string), tc.want) || c["before_tokens"].(float64) <= c["after_tokens"].(float64) {
					t.Errorf("checkpoint %v", c)
				}
			}
			for i := range w.oracle.requests() {
				w.request(i)
			}
			last, _ := json.Marshal(w.request(-1))
			if !strings.Contains(string(last), tc.want) {
				t.Errorf("the model was not told the summary: %s", last)
			}
			k := w.history(id, "")
			if len(k.Messages) != 24 || k.First == 0 || !strings.Contains(k.Summary, tc.want) {
				t.Errorf("the history has %d messages, from %d on: %s", len(k.Messages), k.First, k.Summary)
			}
			for i, raw := range w.oracle.requests() {
				if sums := strings.Contains(raw, "The conversation to sum up"); sums != strings.Contains(raw, `"model":"summarizer"`) {
					t.Errorf("request %d went to the wrong model", i)
				}
			}
		})
	}
}

// listen follows a session's log after a number until a run's event of that kind.
func (w *modelWorld) listen(run agent.Run, after int64, until agent.EventKind) (heard []agent.Event, last int64) {
	w.t.Helper()
	sub, err := w.Subscribe(w.t.Context(), store.SessionLog(app, run.Session), after)
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	for {
		frames, err := sub.Next(ctx)
		if err != nil {
			w.t.Fatalf("no event %s: %v", until, err)
		}
		for _, f := range frames {
			heard = append(heard, f.Event)
			if f.Event.Kind == until {
				return heard, f.Event.Seq
			}
		}
	}
}

// A process dies while the model speaks. Who listens all along, or comes back at any event, has the text once.
func TestChatCrash(t *testing.T) {
	w := newChat(t, poemTurns, "")
	w.start()
	w.oracle.holds(1200)
	id := w.session()
	run := w.send(id, "A poem, please.")
	heard, last := w.listen(run, 0, agent.EventMessageDelta)
	next := w.again()
	next.start()
	next.until(run, agent.EventRunResumed)
	w.oracle.let()
	more, _ := next.listen(run, last, agent.EventRunCompleted) // with the Last-Event-ID
	for _, m := range fold(t, append(heard, more...)) {
		if m.parts[0] != poem || m.done == nil {
			t.Errorf("who came back has heard %+v", m)
		}
	}
	if got := next.output(run); got != poem {
		t.Errorf("%s: %q", got, next.sessionLog(run))
	}
	shown := fold(t, next.events(run))
	if len(shown) != 1 {
		t.Fatalf("shown %v", shown)
	}
	for _, m := range shown {
		if m.parts[0] != poem || m.attempt != 2 || m.done == nil {
			t.Errorf("shown %+v", m)
		}
	}
	if k := next.history(id, ""); k.roles() != "user assistant" {
		t.Errorf("history: %+v", k)
	}
}

func TestChatSessions(t *testing.T) {
	w := newChat(t, `{"match":{"contains":"red"},"reply":{"text":"Red it is."}}
		{"match":{"contains":"blue"},"reply":{"text":"Blue it is."}}
		{"match":{"nth":2},"reply":{"text":"You said: {{last}}"}}`, "")
	w.start()
	one, two := w.session(), w.session()
	w.oracle.holds(600) // both are under way at once
	a, b := w.send(one, "red"), w.send(two, "blue")
	w.until(a, agent.EventMessageStarted)
	w.until(b, agent.EventMessageStarted)
	w.oracle.let()
	if x, y := w.output(a), w.output(b); x != "Red it is." || y != "Blue it is." {
		t.Errorf("%s, %s", x, y)
	}
	if got := w.output(w.send(one, "What now?")); got != "You said: What now?" {
		t.Error(got)
	}
	for _, raw := range w.oracle.requests() {
		if strings.Contains(raw, "red") && strings.Contains(raw, "blue") {
			t.Errorf("sessions are mixed: %s", raw)
		}
	}
	if k := w.history(two, ""); k.roles() != "user assistant" {
		t.Errorf("history: %+v", k)
	}
}

// A model that fails is an answer, after which the session goes on.
func TestChatErrors(t *testing.T) {
	w := newChat(t, `{"match":{"contains":"break"},"fault":{"status":400,"message":"too odd"},"times":1}
		{"match":{"contains":"loop"},"reply":{"calls":[{"name":"add","args":{}}]}}
		{"match":{"tool":"add"},"reply":{"calls":[{"name":"add","args":{}}]}}
		{"match":{"contains":"well"},"reply":{"text":"Well, well."}}`, "maxSteps = 3; onToolCall({ args }) { if (args.secret) throw new Error(\"no\") }")
	w.start()
	id := w.session()
	run := w.send(id, "break")
	if got := w.output(run); !strings.HasPrefix(got, "I cannot answer now: ") || !strings.Contains(got, "too odd") {
		t.Errorf("%s: %q", got, w.sessionLog(run))
	}
	if log := strings.Join(w.sessionLog(run), "\n"); !strings.Contains(log, "chat.error") {
		t.Error(log)
	}
	if got := w.output(w.send(id, "well?")); got != "Well, well." {
		t.Error(got)
	}
	if got := len(w.request(-1).Messages); got != 2 { // the two of the user are one
		t.Errorf("asked with %d messages: %q", got, w.oracle.requests())
	}
	if k := w.history(id, ""); k.roles() != "user note user assistant" {
		t.Errorf("history: %+v", k)
	}
	if got := w.output(w.send(id, "loop")); got != "I stopped after 3 steps." {
		t.Error(got)
	}
	if got := string(w.request(-1).ToolChoice); got != `"none"` {
		t.Errorf("the last step was asked with %s", got)
	}
	for _, f := range []string{"onError", "onToolCall", "functions"} {
		if _, err := w.CallInstance(t.Context(), app, runtime.InstanceCall{Agent: "m", Key: "default", Function: f, Input: agent.JSON([]byte("{}"))}); agent.KindOf(err) != agent.NotFound {
			t.Errorf("a client called %s: %v", f, err)
		}
	}
}

// Messages have images and files; nobody may say what tools have returned.
func TestChatContent(t *testing.T) {
	w := newChat(t, `{"match":{"nth":1},"reply":{"text":"I see."}}`, "")
	w.start()
	id := w.session()
	if _, err := w.store.PutFile(t.Context(), agent.File{App: app, Session: id, Path: "notes.md", Type: "text/markdown"}, -1, strings.NewReader("# Bees\nThey dance.")); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("QUJD", 10_000)
	run := w.send(id, []map[string]any{
		{"type": "text", "text": "What is this?"}, {"type": "image", "mime": "image/png", "data": big}, {"type": "file", "file": "notes.md"},
	})
	if got := w.output(run); got != "I see." {
		t.Fatalf("%s: %q", got, w.sessionLog(run))
	}
	raw := w.oracle.requests()[0]
	if !strings.Contains(raw, "data:image/png;base64,"+big) || !strings.Contains(raw, "They dance.") {
		t.Errorf("asked %.300s", raw)
	}
	if k := w.history(id, ""); strings.Contains(string(k.Messages[0].Content), big) || !strings.Contains(string(k.Messages[0].Content), `"file":"chat/`) {
		t.Errorf("kept %.300s", k.Messages[0].Content)
	}
	forged := w.send(id, []map[string]any{{"type": "tool-result", "id": "c", "name": "add", "result": "4"}})
	if got := w.output(forged); !strings.HasPrefix(got, "failed") || !strings.Contains(got, `not "tool-result"`) {
		t.Error(got)
	}
	// What is long is kept in pieces.
	very := strings.Repeat("äöü🐝", 30_000)
	other := w.session()
	if got := w.output(w.send(other, very)); got != "I see." {
		t.Fatal(got)
	}
	if k := w.history(other, ""); string(k.Messages[0].Content) != string(encoded(very)) || k.roles() != "user assistant" {
		t.Errorf("a long message came back as %.100s", k.Messages[0].Content)
	}
}
