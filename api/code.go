package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools/code"
)

// newCode is code to run: sealed and once, or with tools as a run.
type newCode struct {
	Code     string            `json:"code" doc:"a module whose default export is called; with tools also one function, or statements that may await and return; in Python, its function main"`
	Language string            `json:"language,omitempty" doc:"ts, js or python; ts unless given"`
	Files    map[string]string `json:"files,omitempty" doc:"further modules that the code imports, by relative path"`
	Function string            `json:"function,omitempty" doc:"the export to call; default, or main in Python, unless given; not with tools"`
	Input    json.RawMessage   `json:"input,omitempty" doc:"any JSON value"`
	Config   map[string]string `json:"config,omitempty" doc:"not with tools"`
	Limits   agent.Limits      `json:"limits,omitzero" doc:"not with tools: then those of the agent hold"`

	Tools   []string        `json:"tools,omitzero" doc:"names of tools that the code may call, or SERVER.*, or *; with this the code is a durable run of an agent, with its grants and the app's policy"`
	Agent   string          `json:"agent,omitempty" doc:"with tools: the agent that it runs for; code, which is made when it is needed, unless given"`
	Session agent.SessionID `json:"session,omitempty" doc:"with tools: a session of that agent; a new one unless given"`
	Wait    *int            `json:"wait,omitempty" doc:"with tools: for how many seconds the answer may wait for the run's end, 0 to 300; 60 unless given. It also comes when the run waits for a person"`
	Tokens  int             `json:"max_tokens,omitempty" doc:"with tools: the answer is for a model, in reply, of at most about so many tokens, and says what was cut; 400 or more"`
}

// codeResult is what code returned, printed and cost. What is below usage is of code with tools.
type codeResult struct {
	Output *agent.Payload  `json:"output,omitempty"`
	Logs   []agent.LogLine `json:"logs"`
	Usage  agent.Usage     `json:"usage"`

	Run     agent.RunID      `json:"run,omitempty"`
	Session agent.SessionID  `json:"session,omitempty"`
	Status  *agent.RunStatus `json:"status,omitempty" doc:"waiting with approvals: a person is asked, and the run goes on by itself when they have answered"`
	Error   *agent.RunError  `json:"error,omitempty"`
	Calls   []agent.ToolUse  `json:"calls,omitempty"`
	Asks    []agent.Approval `json:"approvals,omitempty" doc:"questions to a person that are open"`
	More    int              `json:"more,omitempty" doc:"lines and calls that are left out here; the run's events have them all"`
	Reply   *code.Reply      `json:"reply,omitempty" doc:"with max_tokens: all that a model is to know, in place of output, logs, error, calls and approvals"`
}

type codeRequest struct {
	Once store.Once `once:"-"`
	Body newCode    `body:"json"`
}

func (s *Server) code(ctx context.Context, q codeRequest) (any, error) {
	b := q.Body
	if b.Tools != nil || b.Agent != "" {
		return s.codeWithTools(ctx, q)
	}
	src, err := b.source()
	if err == nil && (b.Session != "" || b.Wait != nil || b.Tokens != 0) {
		err = agent.Errorf(agent.Invalid, "session, wait and max_tokens belong to code that has tools")
	}
	if err != nil {
		return nil, err
	}
	res, err := s.rt.Code(ctx, appOf(ctx), runtime.CodeRequest{
		Source: src, Function: b.Function, Input: jsonInput(b.Input), Config: b.Config, Limits: b.Limits,
	})
	return withStatus{http.StatusOK, codeResult{Output: &res.Output, Logs: append([]agent.LogLine{}, res.Logs...), Usage: res.Usage}}, err
}

// maxCodeWait is how long an answer waits for a run's end, in seconds; defaultCodeWait is so unless it is said.
const (
	maxCodeWait     = 300
	defaultCodeWait = 60
)

func (s *Server) codeWithTools(ctx context.Context, q codeRequest) (any, error) {
	b := q.Body
	switch {
	case b.Language != "" && b.Language != "ts" && b.Language != "typescript" && b.Language != "js" && b.Language != "javascript":
		return nil, agent.Errorf(agent.Invalid, "code with tools is TypeScript or JavaScript, not %s", quoted(b.Language))
	case b.Function != "" || b.Config != nil || b.Limits != (agent.Limits{}):
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "function, config and limits belong to code without tools", Hint: "the limits of code with tools are those of its agent: skep agent update",
		}
	}
	wait, err := codeWait(b.Wait)
	if err == nil {
		err = codeTokens(b.Tokens)
	}
	if err != nil {
		return nil, err
	}
	run, _, err := s.rt.StartCode(ctx, appOf(ctx), runtime.CodeRun{
		Agent: b.Agent, Text: b.Code, Files: b.Files, Tools: b.Tools, Input: jsonInput(b.Input), Session: b.Session,
	}, q.Once)
	if err != nil {
		return nil, err
	}
	return s.followCode(ctx, run, wait, b.Tokens, b.Code)
}

// codeWait checks how long an answer is to wait.
func codeWait(seconds *int) (time.Duration, error) {
	wait := defaultCodeWait
	if seconds != nil {
		wait = *seconds
	}
	if wait < 0 || wait > maxCodeWait {
		return 0, agent.Errorf(agent.Invalid, "wait is %d; it must be between 0 and %d seconds", wait, maxCodeWait)
	}
	return time.Duration(wait) * time.Second, nil
}

// codeTokens checks how long an answer for a model may be; 0 means that it is not for one.
func codeTokens(n int) error {
	if n < 0 || n > 0 && n < code.MinTokens {
		return agent.Errorf(agent.Invalid, "max_tokens is %d; it must be %d or more", n, code.MinTokens)
	}
	return nil
}

// followCode answers with what has become of a run of code mode: 200 when it has ended, else 202. With tokens the answer is for a model, whose
// script is shown where it failed.
func (s *Server) followCode(ctx context.Context, run agent.Run, wait time.Duration, tokens int, script string) (any, error) {
	t := runtime.Transcript{Run: run}
	if wait > 0 {
		within, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		var err error
		if t, err = s.rt.Watch(within, run.App, run.ID, nil); err != nil {
			return nil, err
		}
	}
	run = t.Run
	res := codeResult{Logs: []agent.LogLine{}, Usage: run.Usage, Run: run.ID, Session: run.Session, Status: &run.Status, More: t.More}
	if tokens > 0 {
		reply := code.NewReply(outcome(t, script), tokens)
		res.Reply = &reply
	} else {
		res.Output, res.Error, res.Calls, res.Asks = run.Output, run.Error, t.Calls, run.Asks
		res.Logs = append(res.Logs, t.Logs...)
	}
	status := http.StatusAccepted
	if run.Status.Terminal() {
		status = http.StatusOK
	}
	return withStatus{status, res}, nil
}

func (b newCode) source() (agent.Source, error) {
	entry, kind := "", agent.Script
	switch b.Language {
	case "", "ts", "typescript":
		entry = "main.ts"
	case "js", "javascript":
		entry = "main.js"
	case "py", "python":
		entry, kind = "main.py", agent.Python
	default:
		return agent.Source{}, &agent.Error{
			Kind: agent.Invalid, Msg: "language " + quoted(b.Language) + " is not known", Hint: "use ts, js or python",
		}
	}
	src := agent.Source{Kind: kind, Main: entry, Files: map[string][]byte{entry: []byte(b.Code)}}
	for name, text := range b.Files {
		if name == entry {
			return agent.Source{}, agent.Errorf(agent.Invalid, "field %q has %s, which is the name of the code itself", "files", entry)
		}
		src.Files[name] = []byte(text)
	}
	return src, nil
}

// outcome is what a model's reply is made of. Output that is no JSON is a text in it.
func outcome(t runtime.Transcript, script string) code.Outcome {
	o := code.Outcome{
		Run: t.Run.ID, Status: t.Run.Status, Error: t.Run.Error, Source: script, Calls: t.Calls, Logs: t.Logs, Asks: t.Run.Asks, More: t.More,
	}
	if out := t.Run.Output; out != nil {
		if o.Output = out.Body; !out.IsJSON() {
			o.Output, _ = json.Marshal(string(out.Body))
		}
	}
	return o
}

func codeResults() map[int]reflect.Type {
	return map[int]reflect.Type{http.StatusOK: reflect.TypeFor[codeResult](), http.StatusAccepted: reflect.TypeFor[codeResult]()}
}
