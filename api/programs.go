package api

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools/program"
)

// newProgram is a bounded program to run.
type newProgram struct {
	Program json.RawMessage `json:"program" doc:"as /v1/programs/schema says"`
	Input   json.RawMessage `json:"input,omitempty" doc:"any JSON value; the program refers to it as ${input}"`
	Agent   string          `json:"agent,omitempty" doc:"the agent that it runs for; code, which is made when it is needed, unless given"`
	Session agent.SessionID `json:"session,omitempty" doc:"a session of that agent; a new one unless given"`
	Wait    *int            `json:"wait,omitempty" doc:"for how many seconds the answer may wait for the run's end, 0 to 300; 60 unless given. It also comes when the run waits for a person"`
	Tokens  int             `json:"max_tokens,omitempty" doc:"the answer is for a model, in reply, of at most about so many tokens, and says what was cut; 400 or more"`
}

type runProgramRequest struct {
	Once store.Once `once:"-"`
	Body newProgram `body:"json"`
}

// runProgram checks a program and answers as code with tools does.
func (s *Server) runProgram(ctx context.Context, q runProgramRequest) (any, error) {
	b := q.Body
	wait, err := codeWait(b.Wait)
	if err == nil {
		err = codeTokens(b.Tokens)
	}
	if err != nil {
		return nil, err
	}
	p, _, err := s.readProgram(ctx, b.Program)
	if err != nil {
		return nil, err
	}
	input, err := p.Input(b.Input)
	if err != nil {
		return nil, err
	}
	run, _, err := s.rt.StartCode(ctx, appOf(ctx), runtime.CodeRun{
		Agent: b.Agent, Text: program.Runner(), Tools: p.Tools(), Input: agent.JSON(input), Session: b.Session,
	}, q.Once)
	if err != nil {
		return nil, err
	}
	return s.followCode(ctx, run, wait, b.Tokens, "")
}

// checkedProgram is what is known of a program before it runs.
type checkedProgram struct {
	Steps int           `json:"steps" doc:"that are written in it"`
	Tools []programTool `json:"tools" doc:"that it calls, by name"`
}

// programTool is a tool that a program calls.
type programTool struct {
	Name   string       `json:"name"`
	Effect agent.Effect `json:"effect"`
}

type checkProgramRequest struct {
	Body newProgramText `body:"json"`
}

// newProgramText is a program to check.
type newProgramText struct {
	Program json.RawMessage `json:"program" doc:"as /v1/programs/schema says"`
}

func (s *Server) checkProgram(ctx context.Context, q checkProgramRequest) (checkedProgram, error) {
	p, effects, err := s.readProgram(ctx, q.Body.Program)
	if err != nil {
		return checkedProgram{}, err
	}
	out := checkedProgram{Steps: p.Steps(), Tools: []programTool{}}
	for _, name := range p.Tools() {
		out.Tools = append(out.Tools, programTool{name, effects[name]})
	}
	return out, nil
}

// readProgram checks a program by itself, and then against the tools that the app has now.
func (s *Server) readProgram(ctx context.Context, text []byte) (*program.Program, map[string]agent.Effect, error) {
	p, err := program.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	effects, err := p.Resolve(func(name string) (agent.Tool, error) {
		if s.o.Tools == nil {
			return agent.Tool{}, agent.Errorf(agent.NotFound, "there is no tool %q", name)
		}
		return s.o.Tools.Resolve(ctx, appOf(ctx), name)
	})
	return p, effects, err
}

func (s *Server) programSchema(context.Context, struct{}) (raw, error) {
	return raw{contentType: "application/schema+json", header: [][2]string{{"Cache-Control", "no-cache"}}, body: program.Schema()}, nil
}
