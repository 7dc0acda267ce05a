package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// maxRounds is how often a server may ask for input in one call.
const maxRounds = 10

// progressEvery is how often a call's progress is told of at most.
const progressEvery = 100 * time.Millisecond

// errSession marks that the server no longer knew the session, and so did not do what it was asked.
var errSession = errors.New("the session was lost")

// call is one call under way.
type call struct {
	link  *link
	tool  string
	o     *tools.CallOptions
	ctx   context.Context
	clock *tools.Clock

	mu   sync.Mutex
	told time.Time // when progress was last told of
	over bool
}

// Call is tools.Source's. The time that a person takes to answer a question is not the call's.
func (s *source) Call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	if o == nil {
		o = &tools.CallOptions{}
	}
	if args = bytes.TrimSpace(args); len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if args[0] != '{' || !json.Valid(args) {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "the arguments of %s are no JSON object", agent.ToolName(s.rec.Name, method)))
	}
	k, err := s.keeper(ctx, o.For.User)
	if err != nil {
		return agent.ToolResult{}, err
	}
	for again := false; ; again = true {
		l, release, err := k.use(ctx)
		if err != nil {
			return agent.ToolResult{}, err
		}
		res, err := l.call(ctx, method, args, o)
		release()
		if errors.Is(err, errSession) && !again {
			k.drop(l)
			continue
		}
		return res, err
	}
}

func (l *link) call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	s := l.k.s
	c := &call{link: l, tool: agent.ToolName(s.rec.Name, method), o: o}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	c.ctx, c.clock = tools.Within(ctx, s.timeout(), &agent.Error{
		Kind: agent.Unavailable, Msg: fmt.Sprintf("server %s did not answer %s within %s; whether it has done it is not known", s.rec.Name, c.tool, s.timeout()),
		Hint: "give the server a longer timeout, if the tool takes so long",
	})
	defer c.clock.Stop()
	d := &delivery{abort: cancel}
	c.ctx = withDelivery(c.ctx, d)

	token := l.enter(c)
	defer l.leave(token)
	var res agent.ToolResult
	var err error
	if own := s.ownCall(method); own != nil {
		var in ownArgs
		if in, err = own.args(args); err == nil {
			res, err = own.call(c, in)
		}
	} else {
		params := &mcp.CallToolParams{Name: method, Arguments: args}
		if o.Progress != nil {
			params.SetProgressToken(token)
		}
		res, err = c.callTool(params)
	}
	if err != nil {
		c.unstick()
		left := d.left.Load()
		if err = c.failure(err, left); !left {
			err = tools.MarkUnsent(err)
		}
	}
	return res, err
}

// unstick leaves a program in the middle of a message when the call's time is over, here or at who calls: after one that never ends no answer will come.
func (c *call) unstick() {
	l := c.link
	if l.proc == nil || l.ctx.Err() != nil || c.ctx.Err() == nil || agent.KindOf(context.Cause(c.ctx)) != agent.Unavailable {
		return
	}
	if s := l.k.s; l.proc.wire.stuck(s.timeout() / 2) {
		l.proc.wire.fail(agent.Errorf(agent.Unavailable, "server %s began a message and did not end it", s.rec.Name))
		s.work.Go(func() { l.close(nil) })
	}
}

// input is what a request brings of the rounds before it.
type input struct {
	answers mcp.InputResponseMap
	state   string
}

// reply is what came of one request.
type reply struct {
	res   any // as the SDK reads it
	asks  mcp.InputRequestMap
	state string
	needs bool // it asks for input, or is busy
}

// callTool makes the call of a tool of the server's.
func (c *call) callTool(params *mcp.CallToolParams) (agent.ToolResult, error) {
	return c.rounds(func(ctx context.Context, in input) (reply, error) {
		next := *params
		if in.answers != nil || in.state != "" {
			next.InputResponses, next.RequestState, next.Meta = in.answers, in.state, nil
			if c.o.Progress != nil {
				next.SetProgressToken(params.GetProgressToken())
			}
		}
		res, err := c.link.session.CallTool(ctx, &next)
		if res == nil {
			return reply{}, err
		}
		return reply{res, res.InputRequests, res.RequestState, res.NeedsInput()}, err
	}, c.result)
}

// rounds makes a request, and again with what the server asks for, until it has a result (MCP 2026-07-28, multi round-trip requests).
func (c *call) rounds(send func(context.Context, input) (reply, error), result func(json.RawMessage) (agent.ToolResult, error)) (agent.ToolResult, error) {
	var in input
	for round := 0; ; round++ {
		t := &tap{}
		got, err := send(withTap(c.ctx, t), in)
		if asked, elsewhere := urlsOf(err); elsewhere && round < maxRounds {
			if err := c.visit(asked); err != nil {
				return agent.ToolResult{}, err
			}
			continue
		}
		raw := t.get()
		if err != nil && raw != nil { // it is there, but not as the SDK knows it
			return result(raw)
		}
		if err != nil {
			return agent.ToolResult{}, err
		}
		if raw == nil { // the SDK had it from before
			if raw, err = json.Marshal(got.res); err != nil {
				return agent.ToolResult{}, err
			}
		}
		if got.asks == nil && !got.needs {
			return result(raw)
		}
		if round == maxRounds {
			return agent.ToolResult{}, agent.Errorf(agent.Failed, "%s asked for input %d times and still has no result", c.tool, maxRounds)
		}
		if in.answers, err = c.inputs(got.asks); err != nil {
			return agent.ToolResult{}, err
		}
		if in.state = got.state; len(got.asks) == 0 { // it is busy
			if err := c.pause(time.Second << min(round, 4)); err != nil {
				return agent.ToolResult{}, err
			}
		}
	}
}

func (c *call) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// failure says what became of a call that brought no result.
func (c *call) failure(err error, left bool) error {
	l := c.link
	if auth, ok := l.denied(err); ok {
		return auth
	}
	var e *agent.Error
	if cause := context.Cause(c.ctx); c.ctx.Err() != nil && cause != nil {
		if errors.As(cause, &e) {
			if left && (cause == context.Cause(l.ctx) || e.Limit != agent.NoLimit) {
				return lostIn(c.tool, e)
			}
			return cause
		}
		return agent.Wrap(agent.Cancelled, err, "the call of "+c.tool+" was cancelled")
	}
	if said, ok := l.rpcError(err); ok {
		return agent.Wrap(agent.Failed, err, c.tool+": "+said)
	}
	if !errors.As(err, &e) || l.proc != nil && e.Kind == agent.Unavailable {
		if err = l.lost(err); errors.Is(err, errSession) {
			return err
		}
		e = agent.AsError(err)
	}
	if !left || e.Kind != agent.Unavailable && e.Limit == agent.NoLimit {
		return e
	}
	return lostIn(c.tool, e)
}

// denied looks for a refusal, at which the connection is left, unless it was of one thing only.
func (l *link) denied(err error) (error, bool) {
	var auth *needsAuth
	if !errors.As(err, &auth) && !errors.As(context.Cause(l.ctx), &auth) {
		return nil, false
	}
	if !auth.more {
		l.k.deny(l, auth)
	}
	return auth, true
}

// lostIn is an error of a connection that ended in a call.
func lostIn(tool string, e *agent.Error) error {
	out := *e
	out.Msg = "the call of " + tool + " was lost: " + e.Msg
	return &out
}

// rpcError is what the server itself answered in place of a result (JSON-RPC 2.0, section 5.1).
func (l *link) rpcError(err error) (string, bool) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return "", false
	}
	switch e.Message { // of the SDK's own, which has these codes for what is no answer
	case "client is closing", "server is closing", "rejected by transport":
		return "", false
	}
	return fmt.Sprintf("%s (code %d)", kept(cmp.Or(l.clean.String(e.Message), "an error without a message"), 4<<10), e.Code), true
}

// lost says why an exchange came to nothing.
func (l *link) lost(err error) error {
	if errors.Is(err, mcp.ErrSessionMissing) {
		return errors.Join(errSession, agent.Errorf(agent.Unavailable, "server %s has forgotten the session", l.k.s.rec.Name))
	}
	if l.ctx.Err() == nil && (errors.Is(err, mcp.ErrConnectionClosed) || l.proc != nil) {
		select { // the reason is on its way
		case <-l.ctx.Done():
		case <-time.After(endAfter):
		}
	}
	if c := context.Cause(l.ctx); c != nil {
		return c
	}
	return l.because(err)
}

// enter notes a call, for what comes about it.
func (l *link) enter(c *call) (token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	token = "p" + strconv.Itoa(l.next)
	l.calls[token] = c
	return token
}

func (l *link) leave(token string) {
	l.mu.Lock()
	c := l.calls[token]
	delete(l.calls, token)
	l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// progress is told of by the server. Of what comes too often, some is passed over.
func (l *link) progress(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	l.mu.Lock()
	c := l.calls[token]
	l.mu.Unlock()
	if c == nil || c.o.Progress == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := req.Params
	if c.over || time.Since(c.told) < progressEvery && (p.Total == 0 || p.Progress < p.Total) {
		return
	}
	c.told = time.Now()
	c.o.Progress(tools.Progress{Done: p.Progress, Total: p.Total, Message: kept(l.clean.String(p.Message), 1000)})
}
