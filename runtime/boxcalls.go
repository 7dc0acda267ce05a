package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/sandbox/preview"
)

// maxExec is how long a program may run that a script waits for.
const maxExec = 24 * time.Hour

func (b *toolbox) execIn(ctx context.Context, box Box, q abi.SandboxExec) (abi.SandboxExit, error) {
	if len(q.Command) == 0 || q.Command[0] == "" {
		return abi.SandboxExit{}, agent.Errorf(agent.Invalid, "the command is missing")
	}
	if q.Timeout < 0 || q.Timeout > maxExec.Milliseconds() {
		return abi.SandboxExit{}, agent.Errorf(agent.Invalid, "timeout: a program may run for up to %s", maxExec)
	}
	in := driver.Exec{
		ID: b.named(ctx), Command: q.Command, Dir: q.Dir, Env: q.Env, Stdin: q.Stdin, Timeout: time.Duration(q.Timeout) * time.Millisecond, Background: q.Background, Show: q.Show,
	}
	var out driver.ExecResult
	if err := box.Do(ctx, driver.DoExec, in, &out); err != nil {
		return abi.SandboxExit{}, err
	}
	return abi.SandboxExit{
		ID: in.ID, Code: out.Code, Signal: out.Signal, OOM: out.OOM, TimedOut: out.TimedOut, Stdout: b.job.secrets.String(out.Stdout),
		Stderr: b.job.secrets.String(out.Stderr), Dropped: out.Dropped, PID: out.PID,
	}, nil
}

func (b *toolbox) processesIn(ctx context.Context, box Box, _ struct{}) (abi.SandboxProcesses, error) {
	var got driver.Processes
	out := abi.SandboxProcesses{Processes: []abi.SandboxProcess{}}
	err := box.Do(ctx, driver.DoProcesses, struct{}{}, &got)
	for _, p := range got.List {
		out.Processes = append(out.Processes, abi.SandboxProcess{
			ID: p.ID, PID: p.PID, Command: p.Command, Started: p.Started.UnixMilli(), Ended: p.Ended, Code: p.Code,
		})
	}
	return out, err
}

func (b *toolbox) signalIn(ctx context.Context, box Box, q abi.SandboxSignal) (grant.None, error) {
	return grant.None{}, box.Do(ctx, driver.DoSignal, driver.SignalArgs{ID: q.ID, Signal: q.Signal}, nil)
}

// previewIn makes a link to a port, as POST /v1/sandboxes/{id}/ports/{port}/link does. The journal keeps it: code that is played again has the link that it had.
func (b *toolbox) previewIn(ctx context.Context, box Box, q abi.SandboxPort) (abi.SandboxPreview, error) {
	if b.r.opts.Previews == nil {
		return abi.SandboxPreview{}, agent.Errorf(agent.Invalid, "this server makes no links to sandboxes")
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	sb := box.Record()
	l, err := b.r.opts.Previews.Make(preview.Port{App: b.job.App, Sandbox: sb.ID, Number: q.Port}, time.Duration(min(max(q.Lasts, -most), most))*time.Millisecond)
	if err != nil {
		return abi.SandboxPreview{}, err
	}
	data := encode(agent.Change{Action: "sandbox.preview", Name: string(sb.ID), Detail: fmt.Sprintf("port %d", q.Port), Agent: b.job.Agent, Run: b.job.Run})
	return abi.SandboxPreview{URL: l.URL, Expires: l.Expires.UnixMilli()}, b.r.Audit(ctx, b.job.App, agent.Event{Kind: agent.EventChanged, Run: b.job.Run, Data: data})
}

// promptIn begins a turn of the CLI that the agent's record names.
func (b *toolbox) promptIn(ctx context.Context, box Box, q abi.SandboxPrompt) (abi.SandboxTurn, error) {
	x, a, err := b.sandboxed(ctx)
	if err != nil {
		return abi.SandboxTurn{}, err
	}
	u := a.Sandbox
	switch {
	case u.CLI == "":
		return abi.SandboxTurn{}, &agent.Error{Kind: agent.Denied, Msg: "the agent's sandbox has no CLI that could be prompted", Hint: "skep agent update " + a.Name + " --cli claude"}
	case q.Text == "":
		return abi.SandboxTurn{}, agent.Errorf(agent.Invalid, "the prompt has no text")
	case len(q.Text) > abi.MaxSandboxPrompt:
		return abi.SandboxTurn{}, agent.Exceeded(agent.LimitInput, "the prompt has %d bytes, more than %d: put what is long into a file", len(q.Text), abi.MaxSandboxPrompt)
	}
	turn := b.named(ctx)
	b.r.boxes.turn(x.run.ID, turn, false)
	err = box.Do(ctx, driver.DoPrompt, driver.Prompt{
		Turn: turn, CLI: u.CLI, Command: u.Command, Model: cmp.Or(q.Model, u.Model, abi.DefaultModel), Text: q.Text, Resume: q.Resume,
		Permissions: u.Permissions.String(), Dir: q.Dir, Images: q.Images,
	}, nil)
	return abi.SandboxTurn{Turn: turn, Generation: box.Record().Generation}, err
}

// answerIn answers what a CLI has asked. It may not wait for it any more, or have got it before the process ended that sent it.
func (b *toolbox) answerIn(ctx context.Context, box Box, q abi.SandboxAnswer) (abi.SandboxAnswered, error) {
	err := box.Do(ctx, driver.DoAnswer, driver.Answer{ID: q.ID, Allow: q.Allow, Message: phrase.Clip(q.Message, maxMessage)}, nil)
	if kind := agent.KindOf(err); err != nil && (kind == agent.NotFound || kind == agent.Conflict) {
		return abi.SandboxAnswered{}, nil
	}
	return abi.SandboxAnswered{Taken: err == nil}, err
}

func (b *toolbox) interruptIn(ctx context.Context, box Box, q abi.SandboxTurn) (grant.None, error) {
	if run, ok := runOfTurn(q.Turn); !ok || run != b.job.Run {
		return grant.None{}, agent.Errorf(agent.Denied, "the turn %.80q is not of this run", q.Turn)
	}
	return grant.None{}, notThere(box.Do(ctx, driver.DoInterrupt, driver.InterruptArgs{Turn: q.Turn}, nil))
}

// answerSchema is that of an answer which is a text, or one of several.
func answerSchema(options []string) json.RawMessage {
	one := map[string]any{"type": "string", "title": "Answer"}
	if len(options) > 0 {
		one["enum"] = options
	}
	return encode(map[string]any{"type": "object", "properties": map[string]any{"answer": one}, "required": []string{"answer"}})
}

// askPerson has a person answer what a CLI wants to know, as servers of tools may ask. The question ends with the process, and is asked again by the next.
func (b *toolbox) askPerson(ctx context.Context, q abi.SandboxQuestion) (abi.SandboxReply, error) {
	x, a, err := b.sandboxed(ctx)
	if err != nil {
		return abi.SandboxReply{}, err
	}
	if q.Text == "" {
		return abi.SandboxReply{Refused: "the question has no text"}, nil
	}
	ask := agent.Question{Server: cliServer, Message: phrase.Clip(q.Text, maxMessage), Schema: json.RawMessage(q.Schema)}
	whole := len(q.Schema) > 0
	if !whole {
		ask.Schema = answerSchema(q.Options)
	}
	ctx, done := x.askedBy(ctx, q.ID)
	defer done()
	got, err := b.r.question(ctx, x.run, host.Number(ctx), cmp.Or(a.Sandbox.CLI, cliServer), ask)
	switch {
	case ctx.Err() != nil && b.r.boxes.isWithdrawn(x.run.ID, q.ID):
		return abi.SandboxReply{Refused: "the CLI does not ask any more"}, nil
	case err != nil && ctx.Err() != nil:
		return abi.SandboxReply{}, err
	case err != nil:
		return abi.SandboxReply{Refused: fmt.Sprintf("nobody can be asked: %s", agent.AsError(err).Msg)}, nil
	case !got.Allow:
		return abi.SandboxReply{Refused: cmp.Or(got.Reason, "a person has declined to answer")}, nil
	}
	if whole {
		return abi.SandboxReply{Answer: abi.Raw(got.Content)}, nil
	}
	var said struct {
		Answer json.RawMessage `json:"answer"`
	}
	if err := json.Unmarshal(got.Content, &said); err != nil {
		return abi.SandboxReply{Refused: "the answer cannot be read"}, nil
	}
	return abi.SandboxReply{Answer: abi.Raw(said.Answer)}, nil
}

// withdraw takes back what persons are asked on behalf of a CLI.
func (b *toolbox) withdraw(ctx context.Context, q abi.SandboxWithdraw) (grant.None, error) {
	if _, err := b.record(ctx); err != nil { // by which it is noted that the run has the sandbox
		return grant.None{}, err
	}
	b.job.place.run.withdraw(q.IDs)
	return grant.None{}, nil
}

// cliServer is the built-in server whose tools stand for what a CLI asks to be allowed.
const cliServer = "cli"

// mayPermit checks that what a CLI asks to be allowed is asked for by the run that it works for, and that the tool is the one which does nothing.
func (b *toolbox) mayPermit(ctx context.Context, t agent.Tool) error {
	_, a, err := b.sandboxed(ctx)
	switch {
	case err != nil:
		return err
	case t.Server != cliServer || !t.Hidden:
		return agent.Errorf(agent.Denied, "the tool %s does not stand for what a CLI asks to be allowed", t.Name)
	case a.Sandbox.CLI == "" && !b.auth.MayTool(t.Name):
		return agent.Errorf(agent.Denied, "the agent %s has no CLI that could ask for %s", a.Name, t.Name)
	}
	return nil
}

// permits reports whether a tool that was judged may be called still because a CLI has asked for it.
func (b *toolbox) permits(ctx context.Context, name string) bool {
	server, _, _ := agent.SplitTool(name)
	_, a, err := b.sandboxed(ctx)
	return server == cliServer && err == nil && a.Sandbox.CLI != ""
}
