package aitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
)

const (
	prompt = "What is up in Zürich?"
	pixel  = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

// cell is one place of the matrix: a client that asks a provider through the gateway.
type cell struct {
	client, upstream string
	kind             *kind
}

func (c cell) name() string { return c.client + "." + c.upstream + "." + c.kind.name }

// kind is what happens. The last reply is that of all further calls.
type kind struct {
	name   string
	stream bool
	tools  bool
	reply  []reply
	only   string // the client, when it is one alone
}

// reply is a turn; or a fault, in the middle of the turn where it is one of streams.
type reply struct {
	turn
	fault string
}

var (
	hello   = turn{text: "Hello wörld, 🌍!"}
	weather = toolCall{"tc_1", "get_weather", `{"city":"Paris","days":2}`}
	clock   = toolCall{"tc_2", "get_time", `{"zone":"CET"}`}
	again   = toolCall{"tc_3", "get_weather", `{"city":"Zürich \"old\"","days":-1.5}`}
	nothing = toolCall{"tc_4", "get_weather", `{}`}
)

func turns(list ...turn) (out []reply) {
	for _, t := range list {
		out = append(out, reply{turn: t})
	}
	return out
}

// kinds are the columns of the matrix.
func kinds() (out []*kind) {
	for _, stream := range []bool{false, true} {
		add := func(name string, tools bool, list ...turn) {
			if stream {
				name += "-stream"
			}
			out = append(out, &kind{name: name, stream: stream, tools: tools, reply: turns(list...)})
		}
		add("text", false, hello)
		add("length", false, turn{text: "Hello", length: true})
		add("tools", true, turn{calls: []toolCall{weather}}, turn{text: "It is sunny."})
		add("parallel", true, turn{text: "Let me look.", calls: []toolCall{weather, clock, again, nothing}}, turn{text: "All done."})
		add("reasoning", true,
			turn{thought: "I should look, <b>", sign: "c2lnbmF0dXJlLTE=", calls: []toolCall{weather}},
			turn{thought: "Now the time.", sign: "c2lnbmF0dXJlLTI+Lz8=", calls: []toolCall{clock, again}}, turn{text: "It is late and sunny."})
	}
	for _, stream := range []bool{false, true} { // with what the AI SDK does unless told otherwise: it names items of earlier answers
		k := *out[4]
		k.name, k.stream, k.only = "stored", stream, "ai-responses"
		if stream {
			k.name += "-stream"
		}
		out = append(out, &k)
	}
	out = append(out, &kind{name: "image", reply: turns(hello)})
	for _, f := range []string{"429", "529", "quota"} {
		out = append(out, &kind{name: f, reply: []reply{{hello, f}}})
	}
	for _, f := range []string{"429", "529", "early"} {
		out = append(out, &kind{name: f + "-then-good", stream: true, reply: []reply{{hello, f}, {hello, ""}}})
	}
	for _, f := range []string{"error", "cut", "eof", "stall"} {
		out = append(out, &kind{name: f, stream: true, reply: []reply{{hello, f}}})
	}
	return append(out, &kind{name: "abort", stream: true, reply: []reply{{hello, "stall"}}})
}

// clients are the rows, by the program that runs them.
var clients = map[string][]string{
	"openai.mjs": {"chat", "responses"}, "anthropic.mjs": {"messages"}, "genai.mjs": {"gemini"}, "ai.mjs": {"ai-chat", "ai-responses", "ai-messages", "ai-gemini"},
}

// seen is what a client says that it understood.
type seen struct {
	Cell  string `json:"cell"`
	Steps []struct {
		Text    string     `json:"text"`
		Thought string     `json:"thought"`
		Calls   [][]string `json:"calls"` // name and arguments
		Finish  string     `json:"finish"`
		Usage   []int64    `json:"usage"` // input, cached, written, output, reasoning
	} `json:"steps"`
	Error   *failed `json:"error"`
	Partial string  `json:"partial"` // text that came before the error
	Empty   int     `json:"empty"`   // chunks without any choice, which the client did not ask for
}

type failed struct {
	Name    string `json:"name"`
	Status  int    `json:"status"`
	Type    string `json:"type"`
	Message string `json:"message"`
	Tries   int    `json:"tries"` // of the client
}

// TestClients runs each client against each protocol of providers in each case.
func TestClients(t *testing.T) {
	if _, err := os.Stat("node_modules"); err != nil {
		if os.Getenv("CI")+os.Getenv("SKEP_TEST_CACHE") != "" {
			t.Fatalf("%v; run npm ci in api/aitest", err)
		}
		t.Skip("run npm ci in api/aitest for the clients to test with")
	}
	r := serve(t)
	want := map[string]cell{}
	lines := map[string]*bytes.Buffer{}
	for program, names := range clients {
		lines[program] = &bytes.Buffer{}
		for _, name := range names {
			for _, v := range vendors {
				for _, k := range kinds() {
					c := cell{name, v.name, k}
					if k.only != "" && k.only != name {
						continue
					}
					want[c.name()] = c
					r.add(t, c)
					fmt.Fprintf(lines[program], "%s\n", jsonOf(map[string]any{
						"cell": c.name(), "client": name, "kind": strings.TrimSuffix(k.name, "-stream"), "stream": k.stream, "tools": k.tools, "model": c.name() + "/" + v.model,
					}))
				}
			}
		}
	}
	got := map[string]*seen{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for program, in := range lines {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), "node", program, r.url, r.up.url)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SKEP_KEY=" + virtualKey, "PROMPT=" + prompt, "PIXEL=" + pixel}
			cmd.Stdin = in
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil || stderr.Len() > 0 {
				t.Errorf("%s: %v: %s", program, err, stderr.Bytes())
			}
			lines := bufio.NewScanner(bytes.NewReader(out))
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				s := &seen{}
				if err := json.Unmarshal(lines.Bytes(), s); err != nil {
					t.Errorf("%s printed %s", program, lines.Bytes())
					continue
				}
				mu.Lock()
				got[s.Cell] = s
				mu.Unlock()
			}
		})
	}
	all.Wait()
	calls := 0
	for _, p := range r.up.cells {
		calls += p.calls
	}
	rows := r.rows(t, calls)
	n := 0
	for _, name := range sortedKeys(want) {
		c, s, p := want[name], got[name], r.up.cells[name]
		t.Run(name, func(t *testing.T) {
			r.up.mu.Lock()
			defer r.up.mu.Unlock()
			for _, w := range p.wrong {
				t.Errorf("the provider got what it should not: %s", w)
			}
			if s == nil {
				t.Fatal("the client said nothing of it")
			}
			c.judge(t, s, p, rows[name])
		})
		n += len(rows[name])
	}
	if n != calls {
		t.Errorf("the ledger has %d rows of %d calls", n, calls)
	}
	t.Logf("%d cells, %d calls to providers", len(want), calls)
}

func sortedKeys(m map[string]cell) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// ends reports whether c ends well.
func (c cell) ends() bool { return c.kind.reply[len(c.kind.reply)-1].fault == "" }

func (c cell) judge(t *testing.T, s *seen, p *played, rows []agent.UsageEvent) {
	if s.Empty > 0 {
		t.Errorf("the client got %d chunks without a choice, for which it did not ask", s.Empty)
	}
	if len(rows) != p.calls {
		t.Errorf("the ledger has %d rows of %d calls", len(rows), p.calls)
	}
	if c.ends() {
		c.judgeGood(t, s, p, rows)
		return
	}
	c.judgeBad(t, s, p, rows)
}

func (c cell) judgeGood(t *testing.T, s *seen, p *played, rows []agent.UsageEvent) {
	if s.Error != nil {
		t.Fatalf("the client failed: %+v", *s.Error)
	}
	if p.calls != len(c.kind.reply) {
		t.Errorf("%d calls to the provider, not %d", p.calls, len(c.kind.reply))
	}
	var said []turn
	for _, r := range c.kind.reply {
		if r.fault == "" {
			said = append(said, r.turn)
		}
	}
	if len(s.Steps) != len(said) {
		t.Fatalf("the client made %d steps: %+v", len(s.Steps), s.Steps)
	}
	for i, w := range said {
		g := s.Steps[i]
		if c.client == "ai-chat" { // which has no place for thoughts
			w.thought = ""
		}
		if g.Text != w.text || g.Thought != w.thought {
			t.Errorf("step %d: the client understood %q, thinking %q; said was %q, thinking %q", i, g.Text, g.Thought, w.text, w.thought)
		}
		if want := c.finish(w); g.Finish != want {
			t.Errorf("step %d: finish is %q, not %q", i, g.Finish, want)
		}
		if want := c.usage(); !slices.Equal(g.Usage, want) {
			t.Errorf("step %d: usage is %v, not %v", i, g.Usage, want)
		}
		ok := len(g.Calls) == len(w.calls)
		for j := range min(len(g.Calls), len(w.calls)) {
			ok = ok && g.Calls[j][0] == w.calls[j].name && sameArgs(g.Calls[j][1], w.calls[j].args)
		}
		if !ok {
			t.Errorf("step %d: calls are %v, not %v", i, g.Calls, w.calls)
		}
	}
	tokens := agent.ModelTokens{Input: 100, CacheRead: 20, CacheWrite: 30, Output: 50, Reasoning: 15}
	if c.upstream == "gemini" {
		tokens.CacheWrite = 0
	}
	for i, e := range rows {
		if i < len(rows)-len(said) {
			continue
		}
		if u := e.Model; u.Tokens != tokens || u.Source != agent.FromProvider || u.Fault != agent.NoFault || e.Outcome != agent.Succeeded {
			t.Errorf("row %d of the ledger is %+v, %s", i, *u, e.Outcome)
		}
	}
}

// finish is how the client's protocol tells the end of a turn.
func (c cell) finish(t turn) string {
	switch c.client {
	case "chat":
		return chatFinish(t)
	case "responses":
		return responseStatus(t)
	case "messages":
		return messageStop(t)
	case "gemini":
		return geminiStop(t)
	}
	return strings.ReplaceAll(chatFinish(t), "tool_calls", "tool-calls")
}

// usage is input, cached, written, output and reasoning as the client's protocol counts them.
func (c cell) usage() []int64 {
	written := int64(30)
	if c.upstream == "gemini" {
		written = 0
	}
	switch c.client {
	case "messages":
		return []int64{80 - written, 20, written, 50, 15}
	case "gemini", "ai-gemini":
		if c.client == "gemini" {
			return []int64{100, 20, 0, 35, 15}
		}
		written = 0
	}
	return []int64{100, 20, written, 50, 15}
}

// ruin is what comes of a fault: calls to the provider, the class in the ledger, and how each client's protocol tells it.
type ruin struct {
	calls  int
	class  agent.FaultClass
	status map[string]int
	typ    map[string]string
}

var ruins = map[string]ruin{
	"429": {3, agent.RateLimited, map[string]int{"chat": 429, "responses": 429, "messages": 429, "gemini": 429}, map[string]string{"messages": "rate_limit_error"}},
	"529": {3, agent.Overloaded, map[string]int{"chat": 503, "responses": 503, "messages": 529, "gemini": 503}, map[string]string{"messages": "overloaded_error"}},
	"quota": {1, agent.QuotaExhausted, map[string]int{"chat": 429, "responses": 429, "messages": 429, "gemini": 429}, map[string]string{
		"chat": "insufficient_quota", "responses": "insufficient_quota", "messages": "rate_limit_error",
	}},
	"error": {calls: 1}, "cut": {1, agent.StreamBroken, nil, nil}, "eof": {1, agent.StreamBroken, nil, nil}, "stall": {1, agent.StreamBroken, nil, nil}, "abort": {1, agent.ClientAbort, nil, nil},
}

// classes are how the clients name an error.
var classes = map[string]map[string]string{
	"429":   {"chat": "RateLimitError", "responses": "RateLimitError", "messages": "RateLimitError", "gemini": "ApiError"},
	"529":   {"chat": "InternalServerError", "responses": "InternalServerError", "messages": "OverloadedError", "gemini": "ApiError"},
	"quota": {"chat": "RateLimitError", "responses": "RateLimitError", "messages": "EnforcedSpendLimitReachedError", "gemini": "ApiError"},
}

func (c cell) judgeBad(t *testing.T, s *seen, p *played, rows []agent.UsageEvent) {
	want := ruins[c.kind.name]
	if p.calls != want.calls {
		t.Errorf("%d calls to the provider, not %d", p.calls, want.calls)
	}
	for _, e := range rows {
		u := e.Model
		if want.class != agent.NoFault && u.Fault != want.class || u.Fault == agent.NoFault || e.Outcome == agent.Succeeded {
			t.Errorf("the ledger has %s, %s", u.Fault, e.Outcome)
		}
		if c.kind.stream && u.Source != agent.Partial {
			t.Errorf("the ledger has %s tokens by %s", jsonOf(u.Tokens), u.Source)
		}
	}
	if c.kind.name == "abort" {
		if p.gone != 1 {
			t.Errorf("the provider did not notice that the client went away")
		}
		if !strings.HasPrefix(s.Partial, "Hello w") {
			t.Errorf("the client got %q before it went", s.Partial)
		}
		return
	}
	if s.Error == nil {
		t.Fatalf("the client took it for a success: %+v", s.Steps)
	}
	if c.kind.stream {
		if !strings.HasPrefix(s.Partial, "Hello w") {
			t.Errorf("the client got %q before the error %+v", s.Partial, *s.Error)
		}
		if c.kind.name == "error" && !strings.Contains(s.Error.Message, "trouble in the middle") {
			t.Errorf("the client's error says nothing of what happened: %+v", *s.Error)
		}
		return
	}
	base := strings.TrimPrefix(c.client, "ai-")
	if s.Error.Status != want.status[base] {
		t.Errorf("the status is %d, not %d: %+v", s.Error.Status, want.status[base], *s.Error)
	}
	if name := classes[c.kind.name][base]; base == c.client && s.Error.Name != name {
		t.Errorf("the error is %s, not %s: %+v", s.Error.Name, name, *s.Error)
	}
	if typ := want.typ[base]; typ != "" && s.Error.Type != typ {
		t.Errorf("the type of the error is %s, not %s: %+v", s.Error.Type, typ, *s.Error)
	}
	if base == c.client && s.Error.Tries > 1 {
		t.Errorf("the client tried %d times", s.Error.Tries)
	}
}
