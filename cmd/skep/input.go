package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

const inputHelp = `INPUT is JSON, or else plain text. @FILE reads a file, - reads standard input; --type names the media type if the guess
from the file's name or content would be wrong.`

// input turns the INPUT argument of call and run into a payload. No argument is an empty payload.
func (c *cli) input(args []string, mediaType string) (agent.Payload, error) {
	if len(args) == 0 {
		return agent.Payload{Type: or(mediaType, agent.TypeJSON)}, nil
	}
	arg := args[0]
	switch {
	case arg == "-":
		b, err := io.ReadAll(c.stdin)
		if err != nil {
			return agent.Payload{}, agent.Wrap(agent.Invalid, err, "read standard input")
		}
		return agent.Payload{Type: or(mediaType, guessType("", b)), Body: b}, nil
	case strings.HasPrefix(arg, "@"):
		b, err := os.ReadFile(arg[1:])
		if err != nil {
			return agent.Payload{}, agent.Wrap(agent.Invalid, err, "read input")
		}
		return agent.Payload{Type: or(mediaType, guessType(arg[1:], b)), Body: b}, nil
	case mediaType != "":
		return agent.Payload{Type: mediaType, Body: []byte(arg)}, nil
	case json.Valid([]byte(arg)):
		return agent.JSON([]byte(arg)), nil
	case strings.ContainsAny(arg[:min(1, len(arg))], `{["`):
		return agent.Payload{}, badJSON(arg)
	}
	return agent.Text(arg), nil
}

// jsonInput is input for a request that carries JSON only: text becomes a JSON string.
func (c *cli) jsonInput(args []string) (json.RawMessage, error) {
	p, err := c.input(args, "")
	switch {
	case err != nil || len(args) == 0:
		return nil, err
	case p.IsJSON():
		return p.Body, nil
	case p.IsText() || utf8.Valid(p.Body):
		return json.Marshal(string(p.Body))
	}
	return nil, &agent.Error{Kind: agent.Invalid, Msg: "the input of a run is JSON or text, and this is neither", Hint: "skep call takes bytes of any kind"}
}

// badJSON says where an argument that was meant to be JSON stops being so.
func badJSON(s string) error {
	var v any
	err := json.Unmarshal([]byte(s), &v)
	e := &agent.Error{Kind: agent.Invalid, Msg: "the input is not valid JSON", Err: err, Hint: "quote it for the shell: '{\"name\":\"Ada\"}'"}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		e.Pos = agent.Pos{File: "input", Line: 1, Column: int(syntax.Offset)}
	}
	return e
}

// guessType returns the media type of a file or of bytes without a name.
func guessType(name string, b []byte) string {
	if t := mime.TypeByExtension(filepath.Ext(name)); t != "" {
		return t
	}
	switch {
	case len(bytes.TrimSpace(b)) > 0 && json.Valid(b):
		return agent.TypeJSON
	case utf8.Valid(b):
		return agent.TypeText
	}
	return agent.TypeBytes
}
