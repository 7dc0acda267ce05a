// Package builtin has the servers of tools that are Skep's own: http, files, skills, agents and cli, which need no record, and the functions of an agent
// that its plugin declares as tools.
//
// What reaches out goes through the door of the cell that calls, by the calls of package abi: a tool of http can do what the calling agent is granted,
// and no more.
package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// Names are those of the servers that need no record.
func Names() []string { return []string{"agents", CLI, "files", "http", "skills"} }

// Options is what the servers need of the rest.
type Options struct {
	// Agents lists the agents of an app that have code.
	Agents func(ctx context.Context, app agent.App) ([]Agent, error)
	// Call calls a function of an agent, or of its instance when key is not "", as an agent would that is itself called depth agents deep.
	Call func(ctx context.Context, app agent.App, name, key, function string, in agent.Payload, depth int) (agent.Payload, error)
	// Declared lists the functions that the plugin of an agent declares as tools.
	Declared func(ctx context.Context, app agent.App, name string) ([]tools.Offer, error)
	// Run runs a script once, in a cell that is granted nothing.
	Run func(ctx context.Context, app agent.App, file string, files map[string]string, in agent.Payload) (agent.Payload, error)
	// DeleteFile deletes a file of a session.
	DeleteFile func(ctx context.Context, app agent.App, session agent.SessionID, path string) error
}

// Agent is what is said of an agent that can be called.
type Agent struct {
	Name, Description string
	Functions         []string
}

// Opener opens the built-in servers, by their names.
func Opener(o Options) tools.Opener {
	return func(_ context.Context, s agent.ToolServer, _ func()) (tools.Source, error) {
		switch s.Name {
		case "http":
			return newServer(httpTools()), nil
		case "files":
			return newServer(o.fileTools()), nil
		case "skills":
			return newServer(o.skillTools()), nil
		case CLI:
			return newServer(cliTools()), nil
		case "agents":
			return &agents{opts: o, app: s.App}, nil
		}
		return nil, agent.Errorf(agent.NotFound, "there is no built-in server of tools %q", s.Name)
	}
}

// tool is one tool of a built-in server. Schemas are JSON.
type tool struct {
	name, title, description string
	input, output            string
	effect                   agent.Effect
	again                    bool // the same call again changes nothing more
	undo                     string
	hidden                   bool
	call                     func(ctx context.Context, o *tools.CallOptions, args json.RawMessage) (agent.ToolResult, error)
}

// server is one whose tools are always the same.
type server struct {
	offers []tools.Offer
	calls  map[string]tool
	since  time.Time
}

func newServer(list []tool) *server {
	s := &server{calls: map[string]tool{}, since: time.Now()}
	for _, t := range list {
		s.calls[t.name] = t
		s.offers = append(s.offers, tools.Offer{Declared: t.effect, Tool: agent.Tool{
			Method: t.name, Title: t.title, Description: t.description, Input: json.RawMessage(t.input), Output: json.RawMessage(t.output),
			Idempotent: t.again, Undo: t.undo, Hidden: t.hidden,
		}})
	}
	return s
}

func (s *server) Tools(context.Context) ([]tools.Offer, error) { return s.offers, nil }
func (s *server) Close() error                                 { return nil }

func (s *server) Status() agent.ToolStatus {
	return agent.ToolStatus{State: agent.ServerReady, Tools: len(s.offers), Since: s.since}
}

func (s *server) Call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	t, ok := s.calls[method]
	if !ok {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.NotFound, "there is no tool %q", method))
	}
	if o == nil {
		o = &tools.CallOptions{}
	}
	return t.call(ctx, o, args)
}

// typed is a tool's function whose arguments are an A.
func typed[A any](f func(ctx context.Context, o *tools.CallOptions, args A) (agent.ToolResult, error)) func(context.Context, *tools.CallOptions, json.RawMessage) (agent.ToolResult, error) {
	return func(ctx context.Context, o *tools.CallOptions, raw json.RawMessage) (agent.ToolResult, error) {
		var args A
		if err := decode(raw, &args); err != nil {
			return agent.ToolResult{}, tools.MarkUnsent(err)
		}
		return f(ctx, o, args)
	}
}

func decode(raw json.RawMessage, v any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is text after them")
		}
	}
	if err != nil {
		return agent.Errorf(agent.Invalid, "the arguments cannot be read: %s", err)
	}
	return nil
}

// value is a result that is JSON.
func value(v any) (agent.ToolResult, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return agent.ToolResult{}, agent.Wrap(agent.Internal, err, "the result cannot be written as JSON")
	}
	return agent.ToolResult{Value: bytes.TrimSpace(buf.Bytes())}, nil
}

// door makes a call of package abi at the door of the cell that calls, and reads the answer into out.
func door(ctx context.Context, o *tools.CallOptions, name string, in, out any) error {
	if o.Call == nil {
		return tools.MarkUnsent(agent.Errorf(agent.Denied, "the host call %q works only for an agent's code", name))
	}
	var b []byte
	var err error
	if in != nil {
		if b, err = json.Marshal(in); err != nil {
			return tools.MarkUnsent(agent.Wrap(agent.Invalid, err, "the arguments cannot be written as JSON"))
		}
	}
	b, err = o.Call(ctx, name, b)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return agent.Wrap(agent.Internal, err, fmt.Sprintf("the answer to %q cannot be read", name))
	}
	return nil
}
