package python

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/batch"
	"github.com/skep-dev/skep/host/cell"
)

// turn is the device of one turn. A write is one message of the guest: a letter and its body.
type turn struct {
	head, body []byte
	reply      []byte // what the guest has yet to read

	output  *agent.Payload
	exports []string
	failed  *agent.Error
}

// The messages of guests; boot.py writes them. The ones that are answered leave a reply, and no other letter is known.
const (
	msgTurn    = '?' // answered by the head and the body
	msgCall    = 'C' // name, NUL, input; answered by a status byte and the output
	msgBatch   = 'B' // frames of package abi; answered by such
	msgLog     = 'L' // a level's digit and a line
	msgLoaded  = 'M' // the functions as a JSON list
	msgOutput  = 'O' // media type, NUL, output
	msgFailure = 'E' // a failure as JSON
)

func (t *turn) Read(_ *cell.Cell, n uint32) []byte {
	b := t.reply[:min(int64(n), int64(len(t.reply)))]
	t.reply = t.reply[len(b):]
	return b
}

func (t *turn) Write(c *cell.Cell, _ uint32, b []byte) {
	if len(b) == 0 {
		return
	}
	body := b[1:]
	switch b[0] {
	case msgTurn:
		t.reply = framed(framed(nil, t.head), t.body)
	case msgCall:
		name, in, _ := bytes.Cut(body, []byte{0})
		if len(name) == 0 || len(name) > abi.MaxName {
			c.Fail(agent.Errorf(agent.Failed, "the code made a host call with no name, or one longer than %d bytes", abi.MaxName))
		}
		r := batch.Reply(c.AskNext(string(name), bytes.Clone(in)))
		t.reply = framed(nil, append([]byte{byte(r.Status)}, r.Output...))
	case msgBatch:
		rs, err := abi.DecodeRequests(bytes.Clone(body))
		if err != nil {
			c.Fail(agent.Errorf(agent.Failed, "the code made a batch of host calls that cannot be read: %v", err))
		}
		var frames []byte
		for _, r := range batch.Run(c, rs) {
			frames = abi.AppendReply(frames, r)
		}
		t.reply = framed(nil, frames)
	case msgLog:
		logLine(c, body)
	case msgLoaded:
		t.exports = functions(body)
	case msgOutput:
		typ, out, _ := bytes.Cut(body, []byte{0})
		t.output = &agent.Payload{Type: mediaType(string(typ)), Body: bytes.Clone(out)}
	case msgFailure:
		t.failed = failure(body, c.Env().Limits.Memory)
	default:
		c.Fail(agent.Errorf(agent.Failed, "the code wrote to its host's device"))
	}
}

// framed appends b with its length before it.
func framed(to, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(to, uint32(len(b))), b...)
}

func logLine(c *cell.Cell, b []byte) {
	level := agent.LevelInfo
	if len(b) > 0 && b[0] >= '0' && b[0] <= '4' {
		level, b = agent.LevelTrace+agent.LogLevel(b[0]-'0'), b[1:]
	}
	c.Log(level, strings.ToValidUTF8(string(b), "\uFFFD"))
}

// functions reads the list of functions. It is not nil.
func functions(b []byte) []string {
	const most = 10_000
	var names []string
	if json.Unmarshal(b, &names) != nil || names == nil || len(names) > most {
		return []string{}
	}
	return names
}

// mediaType returns a media type as the guest named it, or that of bytes.
func mediaType(s string) string {
	if _, _, err := mime.ParseMediaType(s); err != nil || len(s) > 256 {
		return agent.TypeBytes
	}
	return s
}

// failure is what became of an exception. The interpreter's parser raises a MemoryError of its own, with a text, for code that
// nests too deeply.
func failure(b []byte, memory int64) *agent.Error {
	var f struct {
		Type, Message, Stack, File string
		Line, Column               int
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return &agent.Error{Kind: agent.Failed, Msg: "the code raised an exception that cannot be shown"}
	}
	e := &agent.Error{Kind: agent.Failed, Msg: f.Message, Stack: f.Stack}
	if f.File != "" {
		e.Pos = agent.Pos{File: f.File, Line: max(f.Line, 0), Column: max(f.Column, 0)}
	}
	switch {
	case f.Type == "SyntaxError", f.Type == "IndentationError", f.Type == "TabError":
		e.Kind = agent.Invalid
	case f.Message == "MemoryError":
		e.Kind, e.Limit = agent.Exhausted, agent.LimitMemory
		e.Msg = fmt.Sprintf("the code asked for more memory than its limit of %d bytes", memory)
	}
	return e
}

// exited says of an exit that the code ended the interpreter.
func exited(err error) error {
	var exit *cell.Exit
	if errors.As(err, &exit) {
		return agent.Errorf(agent.Failed, "the code ended its interpreter, with exit status %d", exit.Code)
	}
	return err
}
