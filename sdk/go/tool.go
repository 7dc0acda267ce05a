package skep

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/abi"
)

// ToolError is what a call of a tool failed with. Its kind is "denied" when policy or a person refused it, "failed" for an error of the
// tool's own.
type ToolError struct {
	Tool string // its name; "" when several calls were refused together
	Err  *CallError
}

func (e *ToolError) Error() string {
	if e.Tool == "" {
		return e.Err.Message
	}
	return e.Tool + ": " + e.Err.Message
}

func (e *ToolError) Unwrap() error { return e.Err }

func toolError(tool string, err error) error {
	var e *CallError
	if errors.As(err, &e) {
		return &ToolError{tool, e}
	}
	return err
}

// CallTool calls a tool that was granted, by its name SERVER.METHOD, and decodes the JSON that it returns into out, which may be nil. args
// is a value with the JSON form of an object; nil is an empty one. A call that a person has to approve waits for that: in a run as long as it
// takes, elsewhere it is refused. Errors of tools are of type *ToolError.
func CallTool(name string, args, out any) error {
	c := &ToolCall{Tool: name, Args: args, Out: out}
	w, err := c.wire()
	if err != nil {
		return err
	}
	return c.send(w)
}

// ToolCall is one call of a tool, in a BatchTools or a ChangeTools.
type ToolCall struct {
	Tool string
	Args any // as for CallTool
	Out  any // as for CallTool
	Err  error

	// What takes the call back, after it worked and a later one of the same ChangeTools failed: UndoBy, a call that is approved with it, or else
	// Undo. Without either it stays done.
	UndoBy *ToolCall
	Undo   func() error
}

func (c *ToolCall) wire() (abi.ToolCall, error) {
	if !strings.Contains(c.Tool, ".") {
		return abi.ToolCall{}, fmt.Errorf("%q is not the name of a tool: it is SERVER.METHOD", c.Tool)
	}
	w := abi.ToolCall{Tool: c.Tool}
	if c.Args == nil {
		return w, nil
	}
	args, err := json.Marshal(c.Args)
	if err != nil {
		return w, fmt.Errorf("%s: arguments: %w", c.Tool, err)
	}
	if len(args) == 0 || args[0] != '{' {
		return w, fmt.Errorf("%s: the arguments are an object, not %.80s", c.Tool, args)
	}
	w.Args = args
	return w, nil
}

func (c *ToolCall) encode() ([]byte, error) {
	w, err := c.wire()
	if err != nil {
		return nil, err
	}
	return json.Marshal(w)
}

// took reads the answer.
func (c *ToolCall) took(b []byte, err error) error {
	if err != nil {
		return toolError(c.Tool, err)
	}
	if c.Out == nil {
		return nil
	}
	var r abi.ToolResult
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: answer: %w", c.Tool, err)
	}
	if len(r.Value) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Value, c.Out); err != nil {
		return fmt.Errorf("%s: result: %w", c.Tool, err)
	}
	return nil
}

// BatchTools calls tools at once and returns when all have answered. Each call's error is in its Err; they are joined in what BatchTools
// returns. Questions that people are asked about them are asked together. A journal has a batch as one entry.
func BatchTools(calls ...*ToolCall) error {
	requests := make([]abi.Request, len(calls))
	for i, c := range calls {
		in, err := c.encode()
		if err != nil {
			return err
		}
		requests[i] = abi.Request{Name: abi.CallTool, Input: in}
	}
	var errs []error
	err := batch(requests, func(i int, out []byte, err error) {
		if calls[i].Err = calls[i].took(out, err); calls[i].Err != nil {
			errs = append(errs, calls[i].Err)
		}
	})
	return errors.Join(append(errs, err)...)
}

// ChangeTools asks for calls to be approved as a whole, under a title that whoever approves them reads, and makes them in their order. When
// one fails, those before it are taken back, the latest first, by their UndoBy or Undo; the error says which were. Errors are of type *ToolError,
// of kind "denied" and without a tool when the change was refused.
func ChangeTools(title string, calls ...*ToolCall) error {
	change := abi.ToolChange{Title: title}
	do, undo := make([]abi.ToolCall, len(calls)), make([]func() error, len(calls)) // both send what was approved
	for i, c := range calls {
		w, err := c.wire()
		if err != nil {
			return err
		}
		change.Calls = append(change.Calls, w)
		do[i], undo[i] = w, c.Undo
		if back := c.UndoBy; back != nil {
			if w, err = back.wire(); err != nil {
				return err
			}
			w.Undo = true
			change.Calls = append(change.Calls, w)
			undo[i] = func() error { return back.send(w) }
		}
	}
	if err := ask(abi.CallToolChange, change, nil); err != nil {
		tool := ""
		if len(calls) == 1 {
			tool = calls[0].Tool
		}
		return toolError(tool, err)
	}
	for i, c := range calls {
		if c.Err = c.send(do[i]); c.Err != nil {
			return takeBack(calls, undo, i)
		}
	}
	return nil
}

// send makes the call, of which w is what wire has returned.
func (c *ToolCall) send(w abi.ToolCall) error {
	in, err := json.Marshal(w)
	if err != nil {
		return err
	}
	b, err := reply(hostCall(abi.CallTool, in))
	return c.took(b, err)
}

// takeBack undoes the calls before the one that failed, and returns the error that says so.
func takeBack(calls []*ToolCall, undo []func() error, failed int) error {
	var last *ToolError
	if !errors.As(calls[failed].Err, &last) {
		last = &ToolError{calls[failed].Tool, &CallError{Kind: "failed", Message: calls[failed].Err.Error()}}
	}
	message := fmt.Sprintf("call %d of %d failed: %s", failed+1, len(calls), last.Err.Message)
	for i := failed - 1; i >= 0; i-- {
		c := calls[i]
		why := "it has no undo"
		if undo[i] != nil {
			err := undo[i]()
			if err == nil {
				message += fmt.Sprintf("; call %d, %s, was undone", i+1, c.Tool)
				continue
			}
			why = "its undo failed: " + err.Error()
		}
		message += fmt.Sprintf("; call %d, %s, was not undone: %s", i+1, c.Tool, why)
	}
	e := *last.Err
	e.Message = message
	return &ToolError{last.Tool, &e}
}

// ToolFilter narrows what is listed. The zero value takes all.
type ToolFilter struct {
	Server string // only of this one
	Effect string // only those that may do at most that: "read", "modify", "modify_execute", "execute"
	Limit  int    // 10 for SearchTools, all for ListTools, unless given
}

// ToolInfo is what is listed of a tool: its name, how code in JavaScript writes it, its effect, and the first sentence of its description.
type ToolInfo = abi.ToolInfo

// ListTools lists the tools that were granted; a nil f takes all. more counts those that there are besides.
func ListTools(f *ToolFilter) (list []ToolInfo, more int, err error) {
	return findTools(abi.CallToolList, "", f)
}

// SearchTools finds tools that were granted by words, the best first.
func SearchTools(words string, f *ToolFilter) (list []ToolInfo, more int, err error) {
	return findTools(abi.CallToolSearch, words, f)
}

func findTools(name, words string, f *ToolFilter) ([]ToolInfo, int, error) {
	if f == nil {
		f = &ToolFilter{}
	}
	var found abi.Tools
	err := ask(name, abi.ToolQuery{Query: words, Server: f.Server, Effect: f.Effect, Limit: f.Limit}, &found)
	return found.Tools, found.More, err
}

// DescribeTools declares tools in TypeScript: names, or SERVER.*. level is "names", "signatures", "compact" or "full"; "" is compact.
func DescribeTools(level string, names ...string) (string, error) {
	var text abi.ToolText
	err := ask(abi.CallToolDescribe, abi.ToolQuery{Names: names, Level: level}, &text)
	return text.Text, err
}
