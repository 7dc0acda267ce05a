// Package acp is the backend of agents that speak the Agent Client Protocol, version 1, on standard input and output: OpenCode, the Gemini CLI, and any that
// an agent's record names by its command. https://agentclientprotocol.com
package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/jsonrpc"
	"github.com/skep-dev/skep/driver/backend/stdio"
	"github.com/skep-dev/skep/driver/backend/turn"
)

// version is that of the protocol.
const version = 1

// Backend speaks to one agent, or to any.
type Backend struct {
	spec    backend.Spec
	command func(p *driver.Prompt, env *backend.Env, all bool) (*backend.Command, error)
}

// Spec is what it is.
func (b *Backend) Spec() backend.Spec { return b.spec }

// session is one of an agent's.
type session struct {
	book  *turn.Book
	conn  *jsonrpc.Conn
	proc  backend.Process
	name  string // of the backend
	dir   string
	all   bool          // nobody is asked
	image bool          // it takes images
	old   chan struct{} // of 1: something came that was said before

	// of Run's goroutine
	said  int // texts
	calls map[string]*call

	mu   sync.Mutex
	id   string
	live bool               // what it says is of now: while a session is loaded, it says what was
	asks map[string]waiting // the requests that wait for an answer, by the ids of what is asked
}

// Start starts the agent, and a session of it.
func (b *Backend) Start(ctx context.Context, p *driver.Prompt, env *backend.Env, sink func(driver.Event)) (backend.Session, error) {
	all := p.Permissions == agent.AllowAll.String()
	c, err := b.command(p, env, all)
	if err != nil {
		return nil, err
	}
	s := &session{
		book: turn.New(b.spec.Title, sink), name: b.spec.Name, dir: p.Dir, all: all, calls: map[string]*call{}, asks: map[string]waiting{}, old: make(chan struct{}, 1),
	}
	if s.proc, err = env.Spawn(ctx, c); err != nil {
		return nil, err
	}
	s.conn = jsonrpc.New(s.proc, &jsonrpc.Options{Notify: s.notify, Ask: s.ask, Junk: s.book.Unparsed})
	go s.run()
	if err := s.open(ctx, p); err != nil {
		return nil, s.book.Abandon(s.proc, err)
	}
	return s, nil
}

// run is the session's goroutine, which lives as long as the agent.
func (s *session) run() {
	_ = s.conn.Run() // what ended the reading ends the program, too
	s.book.End(stdio.Reap(s.proc))
}

// welcome is the answer to initialize.
type welcome struct {
	Version int `json:"protocolVersion"`
	Info    struct {
		Version string `json:"version"`
	} `json:"agentInfo"`
	Can struct {
		Load   bool `json:"loadSession"`
		Prompt struct {
			Image bool `json:"image"`
		} `json:"promptCapabilities"`
		Session struct {
			Resume json.RawMessage `json:"resume"`
		} `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
}

// opened is the answer to session/new, load and resume.
type opened struct {
	ID    string `json:"sessionId"`
	Modes struct {
		Now  string `json:"currentModeId"`
		List []struct {
			ID string `json:"id"`
		} `json:"availableModes"`
	} `json:"modes"`
}

// open does the handshake, and makes a session or goes on with one.
func (s *session) open(ctx context.Context, p *driver.Prompt) error {
	// No agent is to read or write files by us: those that do so have a place of their own for errors, and version 2 has neither.
	hello := map[string]any{
		"protocolVersion":    version,
		"clientCapabilities": map[string]any{"fs": map[string]any{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         map[string]any{"name": "skep", "title": "Skep", "version": "1"},
	}
	var w welcome
	if err := s.conn.Call(ctx, "initialize", hello, &w); err != nil {
		return err
	}
	if w.Version != version {
		return fmt.Errorf("it speaks version %d of the protocol, not %d", w.Version, version)
	}
	s.image = w.Can.Prompt.Image
	args := map[string]any{"cwd": p.Dir, "mcpServers": []any{}}
	method := "session/new"
	switch {
	case p.Resume == "":
	case len(w.Can.Session.Resume) > 0 && string(w.Can.Session.Resume) != "null":
		method, args["sessionId"] = "session/resume", p.Resume
	case w.Can.Load:
		method, args["sessionId"] = "session/load", p.Resume
	default:
		return errors.New("it cannot go on with a session")
	}
	var o opened
	if err := s.conn.Call(ctx, method, args, &o); err != nil {
		return err
	}
	if p.Resume != "" {
		o.ID = p.Resume
	}
	if o.ID == "" {
		return errors.New(method + ": the answer names no session")
	}
	if err := s.mode(ctx, &o); err != nil {
		return err
	}
	if method == "session/load" {
		s.quiet(ctx)
	}
	s.mu.Lock()
	s.id, s.live = o.ID, true
	s.mu.Unlock()
	s.book.Started(driver.SessionData{ID: o.ID, CLI: s.name, Version: w.Info.Version, Model: p.Model, Resumed: p.Resume != ""})
	return nil
}

// calm is how long an agent that has loaded a session has to say nothing until what it says is taken for new.
const calm = 500 * time.Millisecond

// quiet waits until all that was said in a session that was loaded has been said again. The protocol has it before the answer to session/load; the Gemini CLI
// answers first.
func (s *session) quiet(ctx context.Context) {
	silence := time.NewTimer(calm)
	defer silence.Stop()
	for {
		select {
		case <-s.old:
			silence.Reset(calm)
		case <-silence.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// replayed notes that something was said again.
func (s *session) replayed() {
	select {
	case s.old <- struct{}{}:
	default:
	}
}

// mode chooses the mode in which an agent asks. Some begin in one in which they decide for themselves.
func (s *session) mode(ctx context.Context, o *opened) error {
	const asking = "default"
	has := false
	for _, m := range o.Modes.List {
		has = has || m.ID == asking
	}
	if s.all || !has || o.Modes.Now == asking {
		return nil
	}
	return s.conn.Call(ctx, "session/set_mode", map[string]any{"sessionId": o.ID, "modeId": asking}, nil)
}

// Prompt begins a turn. The protocol has no word for that it has begun, only one for its end.
func (s *session) Prompt(_ context.Context, p *driver.Prompt) error {
	content, err := s.content(p)
	if err != nil {
		return err
	}
	if err := s.book.Begin(p.Turn); err != nil {
		return err
	}
	s.conn.Go("session/prompt", map[string]any{"sessionId": s.id, "prompt": content}, s.ended)
	return nil
}

// Answer answers what was asked.
func (s *session) Answer(ctx context.Context, a *driver.Answer) error {
	s.mu.Lock()
	delete(s.asks, a.ID)
	s.mu.Unlock()
	return s.book.Answer(ctx, a)
}

// Interrupt asks the agent to end the turn. What it has asked is answered as the protocol wants it, and withdrawn.
func (s *session) Interrupt(context.Context) error {
	if under, err := s.book.Cut(); err != nil || !under {
		return err
	}
	if err := s.conn.Tell("session/cancel", map[string]any{"sessionId": s.id}); err != nil {
		return err
	}
	s.mu.Lock()
	asks := s.asks
	s.asks = map[string]waiting{}
	s.mu.Unlock()
	for ask, w := range asks {
		s.withdraw(ask, w)
	}
	return nil
}

// waiting is a request that waits for an answer, with the one that says that there will be none.
type waiting struct {
	id        jsonrpc.ID
	cancelled any
}

func (s *session) withdraw(ask string, w waiting) {
	if s.book.Withdraw(ask) {
		_ = s.conn.Reply(w.id, w.cancelled)
	}
}

// Close interrupts the turn, without which some do not see the end of their input, and ends the agent by that.
func (s *session) Close(ctx context.Context) error { return s.book.Leave(ctx, s.proc, s.Interrupt) }

// Done is closed when the agent has exited.
func (s *session) Done() <-chan struct{} { return s.book.Done() }

// stops are the statuses of the reasons for which a turn ends.
var stops = map[string]string{
	"end_turn": driver.TurnCompleted, "max_tokens": driver.TurnLimit, "max_turn_requests": driver.TurnLimit,
	"refusal": driver.TurnRefused, "cancelled": driver.TurnInterrupted,
}

// result is the answer to session/prompt.
type result struct {
	Stop  string `json:"stopReason"`
	Usage *struct {
		Input     int64 `json:"inputTokens"`
		Output    int64 `json:"outputTokens"`
		CacheRead int64 `json:"cachedReadTokens"`
		CacheMade int64 `json:"cachedWriteTokens"`
		Thought   int64 `json:"thoughtTokens"`
	} `json:"usage"`
	Meta struct {
		Quota struct { // of the Gemini CLI
			Count struct {
				Input  int64 `json:"input_tokens"`
				Output int64 `json:"output_tokens"`
			} `json:"token_count"`
		} `json:"quota"`
	} `json:"_meta"`
}

// ended is called with the end of a turn.
func (s *session) ended(raw json.RawMessage, err error) {
	defer clear(s.calls)
	var r result
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if refused := (*jsonrpc.Error)(nil); errors.As(err, &refused) {
		if s.book.WasCut() {
			s.book.Finish(driver.TurnEnd{Status: driver.TurnInterrupted, Reason: refused.Message})
			return
		}
		err = agent.Errorf(agent.Failed, "%s", driver.CutText(plain(refused), 4<<10))
	}
	if err != nil {
		s.book.Fail("session/prompt", err)
		return
	}
	s.used(&r)
	end := driver.TurnEnd{Status: stops[r.Stop], Reason: r.Stop}
	if end.Status == "" {
		end.Status = driver.TurnFailed
		end.Fault = &driver.Fault{Kind: agent.Failed, Message: fmt.Sprintf("the turn ended for the reason %.80q", r.Stop)}
	}
	s.book.Finish(end)
}

// plain is what an error says. Some say it as the JSON that the model's provider has answered with.
func plain(e *jsonrpc.Error) string {
	var inner struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(e.Message), &inner) == nil && inner.Error.Message != "" {
		return inner.Error.Message
	}
	return e.Error()
}

// used tells what the turn used, where the agent says so.
func (s *session) used(r *result) {
	d := driver.UsageData{Input: r.Meta.Quota.Count.Input, Output: r.Meta.Quota.Count.Output}
	if u := r.Usage; u != nil {
		d = driver.UsageData{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheMade, Reasoning: u.Thought}
	}
	if d != (driver.UsageData{}) {
		s.book.Tell(driver.UsageTold, "", d)
	}
}

// unwanted are the methods of clients that agents call although they were told that they are not there. They go on when they are refused.
var unwanted = []string{"fs/read_text_file", "fs/write_text_file"}

func (s *session) ask(id jsonrpc.ID, method string, raw json.RawMessage) {
	switch {
	case method == "session/request_permission":
		s.askPermission(id, raw)
	case method == "elicitation/create":
		s.askQuestion(id, raw)
	default:
		_ = s.conn.Refuse(id, jsonrpc.NoMethod, "the client has no method "+method)
		if !slices.Contains(unwanted, method) {
			s.book.Unparsed(raw, "a request "+method)
		}
	}
}

// wait keeps what is asked until it is answered, by reply, or withdrawn. Of a turn that is being interrupted nothing is asked any more.
func (s *session) wait(w waiting, kind, ask string, data any, reply func(*driver.Answer) any) {
	s.mu.Lock()
	s.asks[ask] = w
	s.mu.Unlock()
	s.book.Ask(ask, kind, data, func(_ context.Context, a *driver.Answer) error { return s.conn.Reply(w.id, reply(a)) })
	if !s.book.WasCut() {
		return
	}
	s.mu.Lock()
	delete(s.asks, ask)
	s.mu.Unlock()
	s.withdraw(ask, w)
}
