package skep

import (
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/abi"
)

// Emit writes an event of the agent's own to the session's log, from where it reaches every listener. data is any value with
// a JSON form.
func Emit(name string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("emit %q: %w", name, err)
	}
	in, err := json.Marshal(abi.Emit{Name: name, Data: raw})
	if err != nil {
		return fmt.Errorf("emit %q: %w", name, err)
	}
	_, err = reply(hostCall(abi.CallEmit, in))
	return err
}

// CallAgent calls a function of another agent of the same app, which must have been granted, and decodes what it returns into
// out. in and out follow the rules of Do; a nil out throws the answer away.
func CallAgent(agent, function string, in, out any) error {
	return call(&Call{Agent: agent, Function: function, In: in, Out: out})
}

func call(c *Call) error {
	body, err := encodeAgentCall(c)
	if err != nil {
		return err
	}
	b, err := reply(hostCall(abi.CallAgent, body))
	if err != nil || c.Send {
		return err
	}
	return decodeAgentResult(b, c.Out)
}

func encodeAgentCall(c *Call) ([]byte, error) {
	input, err := encode(c.In)
	if err != nil {
		return nil, fmt.Errorf("call %s.%s: input: %w", c.Agent, c.Function, err)
	}
	return json.Marshal(abi.AgentCall{
		Agent: c.Agent, Function: c.Function, Type: typeOf(c.In), Input: input, Key: c.Key, Child: c.Child, Send: c.Send,
	})
}

func decodeAgentResult(b []byte, out any) error {
	var result abi.AgentResult
	if err := json.Unmarshal(b, &result); err != nil {
		return fmt.Errorf("agent's answer: %w", err)
	}
	if out == nil {
		return nil
	}
	if err := decode(result.Output, out); err != nil {
		return fmt.Errorf("agent's answer: %w", err)
	}
	return nil
}

func typeOf(v any) string {
	switch v.(type) {
	case []byte:
		return "application/octet-stream"
	case string:
		return "text/plain; charset=utf-8"
	}
	return "application/json"
}

// CallError is what a call to the host failed with.
type CallError struct {
	Kind    string // "denied", "not_found", "exhausted", ...
	Message string
	Limit   string // which limit was hit, when Kind is "exhausted"
	Hint    string // what to do about it, in a sentence; may be empty
}

func (e *CallError) Error() string { return e.Message }

// reply splits the host's answer to one call.
func reply(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, &CallError{Kind: "internal", Message: "the host gave no answer"}
	}
	return result(abi.Status(b[0]), b[1:])
}

func result(status abi.Status, body []byte) ([]byte, error) {
	if status == abi.OK {
		return body, nil
	}
	var e abi.ErrorBody
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, &CallError{Kind: "internal", Message: "the host's error cannot be read: " + err.Error()}
	}
	return nil, &CallError{Kind: e.Kind, Message: e.Message, Limit: e.Limit, Hint: e.Hint}
}
