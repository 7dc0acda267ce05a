package acp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/acp"
	"github.com/skep-dev/skep/driver/backend/backendtest"
)

// started is a session whose agent is the test.
func started(t *testing.T, permissions string) (*backendtest.Peer, backend.Session) {
	t.Helper()
	return startedIn(t, permissions, t.TempDir())
}

// startedIn is started with a home of the box's, which these agents' backend leaves alone.
func startedIn(t *testing.T, permissions, home string) (*backendtest.Peer, backend.Session) {
	t.Helper()
	p := backendtest.NewPeer(t)
	go func() {
		p.Answer("initialize", `{"protocolVersion":1,"agentInfo":{"version":"7"},"agentCapabilities":{}}`)
		p.Answer("session/new", `{"sessionId":"S","modes":{"currentModeId":"auto","availableModes":[{"id":"auto"},{"id":"default"}]}}`)
		if permissions != "all" {
			p.Answer("session/set_mode", `{}`)
		}
	}()
	s, err := acp.Any().Start(t.Context(), &driver.Prompt{CLI: "acp", Command: []string{"agent"}, Model: "@main", Dir: "/workspace", Permissions: permissions}, p.Env(home), p.Sink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Exit(driver.ProcessData{}); <-s.Done() })
	return p, s
}

// begin begins a turn, and returns the id of its call.
func begin(t *testing.T, p *backendtest.Peer, s backend.Session, text string) backendtest.Message {
	t.Helper()
	if err := s.Prompt(t.Context(), &driver.Prompt{Turn: "one", Text: text}); err != nil {
		t.Fatal(err)
	}
	m := p.Hear()
	if m.Method != "session/prompt" {
		t.Fatalf("the agent was asked %s", m.Method)
	}
	return m
}

func update(text string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"S","update":` + text + `}}`
}

func end(m backendtest.Message, result string) string {
	return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + result + `}`
}

func TestEvents(t *testing.T) {
	p, s := started(t, "policy")
	m := begin(t, p, s, "/init")
	if !strings.Contains(string(m.Params), `"text":"Message: /init"`) {
		t.Errorf("what looks like a command of the agent's program is sent as one: %s", m.Params)
	}
	p.Say(
		update(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm."}}`),
		update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hel"}}`),
		update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"lo"}}`),
		update(`{"sessionUpdate":"plan","entries":[{"content":"look","status":"completed"},{"content":"do","status":"in_progress"},{"content":"rest","status":"pending"}]}`),
		update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"bash","kind":"execute","status":"pending","rawInput":{}}`),
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"in_progress","title":"make it","rawInput":{"command":"make"},"content":[{"type":"content","content":{"type":"text","text":"a"}}]}`),
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","content":[{"type":"content","content":{"type":"text","text":"ab"}}]}`),
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ab"}}]}`),
		update(`{"sessionUpdate":"tool_call","toolCallId":"c2","title":"Edit it","kind":"edit","status":"completed","content":[{"type":"diff","path":"/workspace/a","oldText":null,"newText":"x"},{"type":"diff","path":"/workspace/b","oldText":"y","newText":"x"}]}`),
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"c3","kind":"delete","status":"failed","locations":[{"path":"/workspace/c"}]}`),
		update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done."}}`),
		update(`{"sessionUpdate":"usage_update","used":10,"size":100}`),
		update(`{"sessionUpdate":"current_mode_update"}`), update(`{"sessionUpdate":"of_tomorrow"}`), `oops`,
		`{"id":8,"method":"fs/write_text_file","params":{}}`, `{"id":9,"method":"terminal/create","params":{}}`,
		end(m, `"result":{"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":4}}`),
	)
	for range 2 {
		if m := p.Hear(); !strings.Contains(string(m.Error), "-32601") {
			t.Errorf("a method that clients do not have is answered %s %s", m.Result, m.Error)
		}
	}
	got := backendtest.Tale(p.Events(driver.TurnEnded, 0))
	want := []string{
		`session.started {"id":"S","cli":"acp","version":"7","model":"@main"}`, `turn.started`,
		`reasoning.delta {"item":"thought-0","text":"Hm."}`, `text.delta {"item":"text-1","text":"Hel"}`, `text.delta {"item":"text-1","text":"lo"}`,
		`plan.updated {"steps":[{"text":"look","status":"done"},{"text":"do","status":"running"},{"text":"rest","status":"pending"}]}`,
		`text.done {"item":"text-1","text":"Hello"}`,
		`tool.started {"id":"c1","name":"bash","action":"run","input":{"command":"make"},"title":"make it"}`,
		`tool.output {"item":"c1","text":"a"}`, `tool.output {"item":"c1","text":"b"}`,
		`tool.ended {"id":"c1","name":"bash","action":"run","title":"make it","output":"ab"}`,
		`tool.started {"id":"c2","name":"edit","action":"edit","title":"Edit it"}`, `tool.ended {"id":"c2","name":"edit","action":"edit","title":"Edit it"}`,
		`file.changed {"path":"a","op":"add"}`, `file.changed {"path":"b","op":"change"}`,
		`tool.started {"id":"c3","name":"delete","action":"edit"}`, `tool.ended {"id":"c3","name":"delete","action":"edit","failed":true}`,
		`text.delta {"item":"text-2","text":"Done."}`, `context {"used":10,"size":100}`,
		`agent.unparsed {"raw":"an update \"of_tomorrow\": {\"sessionId\":\"S\",\"update\":{\"sessionUpdate\":\"of_tomorrow\"}}"}`,
		`agent.unparsed {"raw":"not a message: oops"}`, `agent.unparsed {"raw":"a request terminal/create: {}"}`,
		`usage {"input":3,"output":4}`, `text.done {"item":"text-2","text":"Done."}`, `turn.ended {"status":"completed","reason":"end_turn","text":"Done."}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEnds(t *testing.T) {
	for result, want := range map[string]string{
		`"result":{"stopReason":"max_tokens"}`:                                    `{"status":"limit","reason":"max_tokens"}`,
		`"result":{"stopReason":"max_turn_requests"}`:                             `{"status":"limit","reason":"max_turn_requests"}`,
		`"result":{"stopReason":"refusal"}`:                                       `{"status":"refused","reason":"refusal"}`,
		`"result":{"stopReason":"cancelled"}`:                                     `{"status":"interrupted","reason":"cancelled"}`,
		`"result":{"stopReason":"tired"}`:                                         `{"status":"failed","reason":"tired","fault":{"kind":"failed","message":"the turn ended for the reason \"tired\""}}`,
		`"error":{"code":429,"message":"{\"error\":{\"message\":\"too much\"}}"}`: `{"status":"failed","reason":"session/prompt","fault":{"kind":"failed","message":"too much"}}`,
	} {
		t.Run(want, func(t *testing.T) {
			p, s := started(t, "policy")
			p.Say(end(begin(t, p, s, "go"), result))
			list := p.Events(driver.TurnEnded, 0)
			if got := string(list[len(list)-1].Data); got != want {
				t.Errorf("got %s", got)
			}
		})
	}
}

const options = `"options":[{"optionId":"a","kind":"allow_always"},{"optionId":"o","kind":"allow_once"},{"optionId":"r","kind":"reject_once"}]`

func TestPermissions(t *testing.T) {
	const yes, no = `{"outcome":{"optionId":"o","outcome":"selected"}}`, `{"outcome":{"optionId":"r","outcome":"selected"}}`
	for name, tt := range map[string]struct{ call, options, action, args, yes, no string }{
		"run":          {`"kind":"execute","title":"x","rawInput":{"command":"rm x","workdir":"sub"}`, options, "run", `{"command":"rm x","cwd":"/workspace/sub"}`, yes, no},
		"run of what":  {`"kind":"execute","title":"rm x","rawInput":{"argv":["rm"]}`, options, "tool", `{"input":{"argv":["rm"]},"title":"rm x","tool":"execute"}`, yes, no},
		"edit":         {`"kind":"edit","content":[{"type":"diff","path":"/workspace/../etc/x","newText":""}]`, options, "edit", `{"path":"/etc/x"}`, yes, no},
		"move":         {`"kind":"move","locations":[{"path":"a"},{"path":"/b"}]`, options, "edit", `{"paths":["a","/b"]}`, yes, no},
		"read":         {`"kind":"read","locations":[{"path":"/workspace/a"}]`, options, "read", `{"path":"a"}`, yes, no},
		"search":       {`"kind":"search","rawInput":{"pattern":"x"}`, options, "read", `{"path":".","pattern":"x"}`, yes, no},
		"fetch":        {`"kind":"fetch","rawInput":{"url":"https://x"}`, options, "fetch", `{"url":"https://x"}`, yes, no},
		"other":        {`"title":"think","rawInput":{"a":1}`, options, "tool", `{"input":{"a":1},"title":"think","tool":"think"}`, yes, no},
		"no way to no": {`"kind":"read","locations":[{"path":"a"}]`, `"options":[{"optionId":"a","kind":"allow_always"}]`, "read", `{"path":"a"}`, `{"outcome":{"optionId":"a","outcome":"selected"}}`, `{"outcome":{"outcome":"cancelled"}}`},
	} {
		for allow, want := range map[bool]string{true: tt.yes, false: tt.no} {
			p, s := started(t, "policy")
			begin(t, p, s, "go")
			p.Say(`{"id":"p","method":"session/request_permission","params":{"sessionId":"S","toolCall":{"toolCallId":"c",` + tt.call + `},` + tt.options + `}}`)
			list := p.Events(driver.PermissionAsked, 0)
			var d driver.PermissionData
			if err := list[len(list)-1].Read(&d); err != nil || d.Action != tt.action || string(d.Args) != tt.args || d.Tool == "" {
				t.Errorf("%s: it asks %+v %s (%v)", name, d, d.Args, err)
			}
			got := make(chan string, 1)
			go func() { got <- string(p.Hear().Result) }()
			if err := s.Answer(t.Context(), &driver.Answer{ID: d.ID, Allow: allow}); err != nil {
				t.Fatal(err)
			}
			if got := <-got; got != want {
				t.Errorf("%s %t: it is answered %s", name, allow, got)
			}
		}
	}
	p, _ := started(t, "all")
	p.Say(`{"id":"p","method":"session/request_permission","params":{"sessionId":"S","toolCall":{"toolCallId":"c"},` + options + `}}`)
	if got := string(p.Hear().Result); got != yes {
		t.Errorf("what all may is answered %s", got)
	}
}

// An interrupt cancels the turn and answers what is asked, also what is asked after it.
func TestCancel(t *testing.T) {
	p, s := started(t, "policy")
	m := begin(t, p, s, "go")
	ask := `{"id":"p","method":"session/request_permission","params":{"sessionId":"S","toolCall":{"toolCallId":"c"},` + options + `}}`
	p.Say(ask)
	p.Events(driver.PermissionAsked, 0)
	if err := s.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := p.Hear(); m.Method != "session/cancel" {
		t.Errorf("%+v", m)
	}
	const cancelled = `{"outcome":{"outcome":"cancelled"}}`
	if m := p.Hear(); string(m.Result) != cancelled {
		t.Errorf("%+v", m)
	}
	p.Say(ask)
	if m := p.Hear(); string(m.Result) != cancelled {
		t.Errorf("%+v", m)
	}
	p.Say(end(m, `"error":{"code":-32603,"message":"aborted"}`))
	list := p.Events(driver.TurnEnded, 0)
	if got := string(list[len(list)-1].Data); got != `{"status":"interrupted","reason":"aborted"}` {
		t.Errorf("%s", got)
	}
}

func TestQuestion(t *testing.T) {
	p, s := started(t, "policy")
	begin(t, p, s, "go")
	p.Say(`{"id":1,"method":"elicitation/create","params":{"sessionId":"S","mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"age":{"type":"integer"}}}}}`)
	list := p.Events(driver.QuestionAsked, 0)
	var d driver.QuestionData
	if err := list[len(list)-1].Read(&d); err != nil || d.Text != "Who?" || len(d.Schema) == 0 {
		t.Errorf("%+v %v", d, err)
	}
	got := make(chan string, 1)
	go func() { got <- string(p.Hear().Result) }()
	if err := s.Answer(t.Context(), &driver.Answer{ID: d.ID, Allow: true, Message: "7"}); err != nil {
		t.Fatal(err)
	}
	if got := <-got; got != `{"action":"accept","content":{"age":7}}` {
		t.Error(got)
	}
}

// What an agent says again of a session that is loaded is not told, also when it does so after its answer.
func TestLoad(t *testing.T) {
	p := backendtest.NewPeer(t)
	old := update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"old"}}`)
	go func() {
		p.Answer("initialize", `{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}`)
		m := p.Hear()
		p.Say(old, end(m, `"result":{}`), old, old)
	}()
	s, err := acp.Any().Start(t.Context(), &driver.Prompt{Command: []string{"agent"}, Dir: "/workspace", Resume: "S"}, p.Env(t.TempDir()), p.Sink)
	if err != nil {
		t.Fatal(err)
	}
	m := begin(t, p, s, "go")
	p.Say(update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"new"}}`), end(m, `"result":{"stopReason":"end_turn"}`))
	list := p.Events(driver.TurnEnded, 0)
	if got := string(list[len(list)-1].Data); got != `{"status":"completed","reason":"end_turn","text":"new"}` || len(list) != 5 {
		t.Errorf("%s of %d events", got, len(list))
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNoStart(t *testing.T) {
	for name, tt := range map[string]struct{ hello, resume, want string }{
		"version": {`{"protocolVersion":2}`, "", "version 2"},
		"resume":  {`{"protocolVersion":1}`, "S", "cannot go on"},
	} {
		t.Run(name, func(t *testing.T) {
			p := backendtest.NewPeer(t)
			go p.Answer("initialize", tt.hello)
			_, err := acp.Any().Start(t.Context(), &driver.Prompt{Command: []string{"agent"}, Dir: "/", Resume: tt.resume}, p.Env(t.TempDir()), p.Sink)
			if agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
			<-p.Process().Done()
		})
	}
	if _, err := acp.Any().Start(t.Context(), &driver.Prompt{}, backendtest.NewPeer(t).Env(""), nil); agent.KindOf(err) != agent.Invalid {
		t.Errorf("no command: %v", err)
	}
}

// OpenCode runs the plugins of a repository without asking: under a policy it is not started in one that has some.
func TestPlugins(t *testing.T) {
	for _, file := range []string{".opencode/plugin/a.js", ".opencode/tools/a.ts", "opencode.json", ".opencode/opencode.jsonc"} {
		root := t.TempDir()
		dir := filepath.Join(root, "sub")
		for _, d := range []string{dir, filepath.Join(root, ".git"), filepath.Dir(filepath.Join(root, file))} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(`{"plugin":["x"]}`), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := acp.OpenCode().Start(t.Context(), &driver.Prompt{Dir: dir}, backendtest.NewPeer(t).Env(""), nil)
		if agent.KindOf(err) != agent.Denied || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Nothing that an agent can say makes the backend panic, or wait for ever.
func FuzzFrames(f *testing.F) {
	for _, line := range []string{
		update(`{"sessionUpdate":"tool_call","toolCallId":"c","kind":"edit","status":"completed","content":[{"type":"diff","path":"a"}],"locations":[{}]}`),
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","content":{}}`), update(`{"sessionUpdate":"plan","entries":[{}]}`), update(`{}`), update(`[]`),
		update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"image"}}`), `{"id":{},"method":"session/request_permission","params":{"toolCall":{"rawInput":7}}}`,
		`{"id":1,"method":"elicitation/create","params":[]}`, `{"id":4,"result":{"stopReason":1}}`, `{"id":4,"error":{}}`, `{"id":4,"result":{"stopReason":"end_turn"}}`, "\xff",
	} {
		f.Add(line, line)
	}
	home := f.TempDir()
	f.Fuzz(func(t *testing.T, one, two string) {
		p, s := startedIn(t, "policy", home)
		p.Babble(s, one+"\n"+two)
	})
}

func TestGeminiSession(t *testing.T) { // of the same minute
	home := t.TempDir()
	chats := filepath.Join(home, ".gemini", "tmp", "work", "chats")
	if err := os.MkdirAll(chats, 0o755); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format("2006-01-02T15-04")
	for _, name := range []string{"session-" + now + "-0123abcd.jsonl", "session-" + now + "-ffffffff.jsonl"} {
		if err := os.WriteFile(filepath.Join(chats, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, ".gemini", "settings.json"), []byte(`{"general":{"vimMode":true},"security":7}`), 0o644); err != nil {
		t.Fatal(err)
	}
	p := backendtest.NewPeer(t)
	p.Exit(driver.ProcessData{})
	if _, err := acp.Gemini().Start(t.Context(), &driver.Prompt{Dir: "/", Resume: "0123abcd-1111"}, p.Env(home), p.Sink); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("%v", err)
	}
	list, err := filepath.Glob(filepath.Join(chats, "session-"+now+"-*"))
	if err != nil || len(list) != 1 || !strings.Contains(list[0], "ffffffff") {
		t.Errorf("%q %v", list, err)
	}
	var settings struct {
		General  struct{ VimMode bool }
		Security struct{ FolderTrust struct{ Enabled bool } }
	}
	text, _ := os.ReadFile(filepath.Join(home, ".gemini", "settings.json"))
	if err := json.Unmarshal(text, &settings); err != nil || !settings.General.VimMode || !settings.Security.FolderTrust.Enabled {
		t.Errorf("%s %v", text, err)
	}
}
