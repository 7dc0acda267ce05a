package api

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
)

// newCode is code to run once.
type newCode struct {
	Code     string            `json:"code" doc:"a module whose default export is called; in Python, its function main"`
	Language string            `json:"language,omitempty" doc:"ts, js or python; ts unless given"`
	Files    map[string]string `json:"files,omitempty" doc:"further modules that the code imports, by relative path"`
	Function string            `json:"function,omitempty" doc:"the export to call; default, or main in Python, unless given"`
	Input    json.RawMessage   `json:"input,omitempty" doc:"any JSON value"`
	Config   map[string]string `json:"config,omitempty"`
	Limits   agent.Limits      `json:"limits,omitzero"`
}

// codeResult is what code that ran once returned, printed and cost.
type codeResult struct {
	Output agent.Payload   `json:"output"`
	Logs   []agent.LogLine `json:"logs"`
	Usage  agent.Usage     `json:"usage"`
}

type codeRequest struct {
	Body newCode `body:"json"`
}

func (s *Server) code(ctx context.Context, q codeRequest) (codeResult, error) {
	src, err := q.Body.source()
	if err != nil {
		return codeResult{}, err
	}
	b := q.Body
	res, err := s.rt.Code(ctx, appOf(ctx), runtime.CodeRequest{
		Source: src, Function: b.Function, Input: jsonInput(b.Input), Config: b.Config, Limits: b.Limits,
	})
	return codeResult{res.Output, append([]agent.LogLine{}, res.Logs...), res.Usage}, err
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
