package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/tools"
)

// maxChange is how many calls a change set may have.
const maxChange = 256

// maxToolArgs is how long the arguments of one call may be.
const maxToolArgs = 8 << 20

// toolbox makes the calls of tools of one cell.
type toolbox struct {
	r      *Runtime
	job    *job
	auth   *grant.Authority
	script bool     // a script of code mode
	only   []string // that it has: names, or SERVER.*; nil means all that is granted

	tally   tools.Tally // of work that is no run
	streams modelStreams
}

// handlers are those of tools, files and skills.
func (b *toolbox) handlers() map[string]grant.Handler {
	handlers := map[string]grant.Handler{}
	handlers[abi.CallTool] = b.call
	handlers[abi.CallToolChange] = func(context.Context, []byte) ([]byte, error) {
		return nil, needsRun("tool.change")
	}
	handlers[abi.CallToolList] = b.query(func(ctx context.Context, q abi.ToolQuery) (any, error) {
		return b.r.opts.Tools.List(ctx, b.job.App, q, b.granted)
	})
	handlers[abi.CallToolSearch] = b.query(func(ctx context.Context, q abi.ToolQuery) (any, error) {
		return b.r.opts.Tools.Search(ctx, b.job.App, q, b.granted)
	})
	handlers[abi.CallToolDescribe] = b.query(func(ctx context.Context, q abi.ToolQuery) (any, error) {
		text, err := b.r.opts.Tools.Describe(ctx, b.job.App, q, b.granted)
		return abi.ToolText{Text: text}, err
	})
	b.addFiles(handlers)
	b.addSkills(handlers)
	b.addModels(handlers)
	b.addSandbox(handlers)
	return handlers
}

func needsRun(name string) error {
	return &agent.Error{
		Kind: agent.Denied, Msg: fmt.Sprintf("host call %q works in a run", name), Hint: "start a run: skep run AGENT FUNCTION, or skep code FILE --tools '*'",
	}
}

func (b *toolbox) query(do func(context.Context, abi.ToolQuery) (any, error)) grant.Handler {
	return func(ctx context.Context, in []byte) ([]byte, error) {
		var q abi.ToolQuery
		if len(in) > 0 {
			if err := grant.Decode(in, &q); err != nil {
				return nil, err
			}
		}
		if err := b.there(); err != nil {
			return nil, err
		}
		out, err := do(ctx, q)
		if err != nil {
			return nil, err
		}
		return encode(out), nil
	}
}

func (b *toolbox) there() error {
	if b.r.opts.Tools == nil {
		return agent.Errorf(agent.Denied, "this server has no tools")
	}
	return nil
}

// granted reports whether the code may call a tool of that name. It counts and writes nothing.
func (b *toolbox) granted(name string) bool { return b.given(name) && b.auth.MayTool(name) }

func (b *toolbox) given(name string) bool {
	return b.only == nil || slices.ContainsFunc(b.only, func(p string) bool { return agent.NamedGrant{Name: p}.Has(name) })
}

// asked is a call of a tool as it was judged.
type askedTool struct {
	tool agent.Tool
	args json.RawMessage
	undo bool // it takes another call back
	d    agent.Decision
}

func (a askedTool) judged() journal.JudgedCall {
	return journal.JudgedCall{Tool: a.tool.Name, Digest: a.tool.Digest, Args: agent.DigestOf(a.args), Decision: a.d, Undo: a.undo}
}

// class is what making the call again would mean.
func (a askedTool) class() journal.Class {
	switch {
	case a.d.Effect == agent.Read:
		return journal.Read
	case a.tool.Idempotent:
		return journal.Idempotent
	}
	return journal.Once
}

// judge finds the tool, checks grant and arguments, and has the call judged. n is its number, 0 outside of runs. A fault of ours is an error of this call.
// tally counts what the store does not.
func (b *toolbox) judge(ctx context.Context, n uint64, q abi.ToolCall, tally *tools.Tally) (a askedTool, err error) {
	defer func() {
		if p := recover(); p != nil {
			b.r.log.ErrorContext(ctx, "judging a call of a tool panicked", "tool", phrase.Clip(q.Tool, maxName), "panic", p, "stack", string(debug.Stack()))
			err = agent.Wrap(agent.Internal, fmt.Errorf("panic: %v", p), "internal error")
		}
	}()
	a.undo = q.Undo
	a.tool, a.args, err = b.find(ctx, q)
	if err != nil {
		return a, err
	}
	if !b.given(a.tool.Name) {
		return a, &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("the tool %q was not given to this script, which has %s", a.tool.Name, strings.Join(b.only, ", ")),
			Hint: "name it among the tools of the script, such as --tools " + a.tool.Name,
		}
	}
	if a.tool.Hidden || q.Permission != "" {
		err = b.mayPermit(ctx, a.tool)
	} else {
		err = b.auth.Tool(ctx, a.tool.Name)
	}
	if err != nil {
		return a, err
	}
	if err := b.r.opts.Tools.Check(a.tool, a.args); err != nil {
		return a, err
	}
	a.d, err = b.r.opts.Tools.Judge(ctx, a.tool, b.callOf(n, a), tally)
	return a, err
}

func (b *toolbox) find(ctx context.Context, q abi.ToolCall) (agent.Tool, json.RawMessage, error) {
	if err := b.there(); err != nil {
		return agent.Tool{}, nil, err
	}
	if q.Tool == "" || len(q.Tool) > 2*maxName {
		return agent.Tool{}, nil, agent.Errorf(agent.Invalid, "the name of a tool has 1 to %d bytes", 2*maxName)
	}
	args, err := argsOf(q.Args)
	if err != nil {
		return agent.Tool{}, nil, err
	}
	tool, err := b.r.opts.Tools.Resolve(ctx, b.job.App, q.Tool)
	return tool, args, err
}

// argsOf returns arguments as they are sent: an object without spaces.
func argsOf(raw abi.Raw) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(raw) > maxToolArgs {
		return nil, agent.Exceeded(agent.LimitInput, "the arguments have %d bytes, more than %d", len(raw), maxToolArgs)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil || out.Bytes()[0] != '{' {
		return nil, agent.Errorf(agent.Invalid, "the arguments of a tool are an object")
	}
	return out.Bytes(), nil
}

func (b *toolbox) callOf(n uint64, a askedTool) agent.ToolCall {
	j := b.job
	return agent.ToolCall{
		App: j.App, Agent: j.Agent, AgentID: j.ID, Session: j.Session, Run: j.Run, Call: n, Tool: a.tool.Name, Args: a.args,
	}
}

// note tells the log of a call that was judged.
func (b *toolbox) note(ctx context.Context, n uint64, a askedTool) { b.event(ctx, b.told(n, a)) }

// told is the event of that.
func (b *toolbox) told(n uint64, a askedTool) agent.Event {
	use := agent.ToolUse{Call: n, Tool: a.tool.Name, Digest: a.tool.Digest, Args: shownArgs(a.args, 2<<10), Decision: &a.d}
	return agent.Event{Kind: agent.EventToolCalled, Run: b.job.Run, Time: time.Now().UTC(), Data: encode(use)}
}

func (b *toolbox) event(ctx context.Context, ev agent.Event) {
	if ev.Run, ev.Time = b.job.Run, time.Now().UTC(); b.job.sinks.event != nil {
		b.job.sinks.event(ctx, ev)
	}
}

// shownArgs is arguments as people see them: how they begin, as a text, when they are long.
func shownArgs(args json.RawMessage, most int) json.RawMessage {
	if len(args) <= most {
		return args
	}
	return encode(phrase.Clip(string(args[:most]), most) + fmt.Sprintf(" (%d bytes in all)", len(args)))
}

// refused is the error of a call that policy or a person refuses.
func refused(a askedTool) error {
	what := "the call of " + a.tool.Name
	if a.undo {
		what += ", which would undo another,"
	}
	return &agent.Error{
		Kind: agent.Denied, Msg: what + " is denied: " + a.d.Reason, Hint: "skep policy explain " + a.tool.Name + " says which rule it is",
	}
}

// madeKey is the context's key of how a call that is made was judged. It is only for the door of the run itself, and is taken off there.
type madeKey struct{}

// call answers tool.call: it makes a call that a run has had judged, and judges itself outside of runs.
func (b *toolbox) call(ctx context.Context, in []byte) ([]byte, error) {
	var q abi.ToolCall
	if err := grant.Decode(in, &q); err != nil {
		return nil, err
	}
	if j, ok := ctx.Value(madeKey{}).(journal.JudgedCall); ok {
		return b.makeJudged(context.WithValue(ctx, madeKey{}, nil), j, q)
	}
	a, err := b.judge(ctx, 0, q, &b.tally)
	if err != nil {
		return nil, err
	}
	b.note(ctx, 0, a)
	switch a.d.Verdict {
	case agent.Allow:
		return b.make(ctx, a)
	case agent.Ask:
		return nil, &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("a person has to approve the call of %s, and only a run can wait for that: %s", a.tool.Name, a.d.Reason),
			Hint: "start a run: skep run AGENT FUNCTION",
		}
	}
	return nil, refused(a)
}

// makeJudged makes a call that a run has had judged, some time ago. The catalogue refuses it when the tool has changed meanwhile.
func (b *toolbox) makeJudged(ctx context.Context, j journal.JudgedCall, q abi.ToolCall) ([]byte, error) {
	args, err := argsOf(q.Args)
	switch {
	case err != nil:
		return nil, err
	case agent.DigestOf(args) != j.Args:
		return nil, agent.Errorf(agent.Denied, "the arguments of %s are not those that were judged", j.Tool)
	case !b.granted(j.Tool) && !b.permits(ctx, j.Tool):
		return nil, agent.Errorf(agent.Denied, "the grant of the tool %s was taken back", j.Tool)
	}
	server, method, _ := agent.SplitTool(j.Tool)
	return b.make(ctx, askedTool{tool: agent.Tool{Name: j.Tool, Server: server, Method: method, Digest: j.Digest}, args: args, undo: j.Undo, d: j.Decision})
}

// make makes a call that is allowed. What it leads to is judged by itself: the context says no more how this one was.
func (b *toolbox) make(ctx context.Context, a askedTool) ([]byte, error) {
	n, began := host.Number(ctx), time.Now()
	o := &tools.CallOptions{For: b.callOf(n, a), Call: b.job.doorCall, Depth: b.job.depth, Progress: func(p tools.Progress) {
		b.event(ctx, agent.Event{Kind: agent.EventEmit, Name: "tool.progress", Data: encode(map[string]any{
			"call": n, "tool": a.tool.Name, "done": p.Done, "total": p.Total, "message": phrase.Clip(p.Message, 500),
		})})
	}}
	if b.job.Run != "" {
		o.Key = fmt.Sprintf("%s-%d", b.job.Run, n)
		if x := b.job.place.run; x != nil {
			o.Elicit = func(ctx context.Context, q agent.Question) (agent.ApprovalAnswer, error) {
				return b.r.question(ctx, x.run, n, a.tool.Name, q)
			}
		}
	}
	res, err := b.r.opts.Tools.Call(ctx, a.tool, o, a.args)
	use := agent.ToolUse{Call: n, Tool: a.tool.Name, Duration: time.Since(began), Bytes: int64(len(res.Value))}
	var value json.RawMessage
	if err == nil {
		value, err = b.shape(ctx, n, res)
	}
	if err != nil {
		use.Error = phrase.Clip(agent.AsError(err).Msg, 1<<10)
	}
	b.event(ctx, agent.Event{Kind: agent.EventToolReturned, Data: encode(use)})
	if err != nil {
		return nil, err
	}
	return encode(abi.ToolResult{Value: abi.Raw(value)}), nil
}
