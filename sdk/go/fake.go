//go:build !wasip1

package skep

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/skep-dev/skep/abi"
)

// Fake stands in for the host when an agent's functions are tested off WebAssembly. It records what they did.
type Fake struct {
	Config map[string]string

	// Answer answers calls of other agents; nil refuses them. An error reaches the caller as a CallError.
	Answer func(agent, function string, in []byte) (out []byte, err error)

	// Fetch answers requests; nil refuses them. Placeholders of secrets stand in them as the agent wrote them.
	Fetch func(Request) (*Response, error)

	Output []byte // of the last Call
	Failed string // the error of the last Call, "" when it worked
	Logs   []abi.Log
	Events []abi.Emit

	input []byte
	state fakeKV // lasts over the calls of one fake
}

// current is the fake that the package's functions speak to: a guest has one host, so this is one variable.
var (
	currentMu sync.Mutex
	current   *Fake
)

// Call calls an exported function as the host would, with in encoded by the rules of Do, and decodes the output into out
// unless that is nil. It returns the function's error. Calls of one process take turns.
func (f *Fake) Call(function func() int32, in, out any) error {
	b, err := encode(in)
	if err != nil {
		return err
	}
	currentMu.Lock()
	defer currentMu.Unlock()
	f.input, f.Output, f.Failed = b, nil, ""
	current = f
	defer func() { current = nil }()
	if code := function(); code != 0 {
		return errors.New(f.Failed)
	}
	if out == nil {
		return nil
	}
	return decode(f.Output, out)
}

func host() *Fake {
	if current == nil {
		panic("skep: called outside a cell; in a test, use Fake.Call")
	}
	return current
}

// Input returns the bytes that the call was given.
func Input() []byte { return host().input }

// Output sets the call's output, in place of any set before.
func Output(b []byte) { host().Output = b }

func setError(b []byte) { host().Failed = string(b) }

// Config returns a plain setting of the agent, and whether it is set.
func Config(key string) (value string, ok bool) {
	value, ok = host().Config[key]
	return value, ok
}

func logLine(l level, message string) {
	f := host()
	f.Logs = append(f.Logs, abi.Log{Level: [...]string{"debug", "info", "warn", "error"}[l], Message: message})
}

func hostCall(name string, in []byte) []byte {
	status, out := host().answer(name, in)
	return append([]byte{byte(status)}, out...)
}

func hostBatch(calls []byte) []byte {
	requests, err := abi.DecodeRequests(calls)
	if err != nil {
		panic(err) // Batch wrote them
	}
	var replies []byte
	for _, r := range requests {
		status, out := host().answer(r.Name, r.Input)
		replies = abi.AppendReply(replies, abi.Reply{Status: status, Output: out})
	}
	return replies
}

func (f *Fake) answer(name string, in []byte) (abi.Status, []byte) {
	switch name {
	case abi.CallEmit:
		var e abi.Emit
		if err := json.Unmarshal(in, &e); err != nil {
			return refuse("invalid", err.Error())
		}
		f.Events = append(f.Events, e)
		return abi.OK, nil
	case abi.CallAgent:
		var c abi.AgentCall
		if err := json.Unmarshal(in, &c); err != nil {
			return refuse("invalid", err.Error())
		}
		if f.Answer == nil {
			return refuse("denied", "this agent may not call agent "+c.Agent)
		}
		out, err := f.Answer(c.Agent, c.Function, c.Input)
		if err != nil {
			return refuse("failed", err.Error())
		}
		b, err := json.Marshal(abi.AgentResult{Type: c.Type, Output: out})
		if err != nil {
			return refuse("internal", err.Error())
		}
		return abi.OK, b
	case abi.CallStateGet, abi.CallStateList, abi.CallStateBatch:
		return f.state.answer(name, in)
	}
	if name == abi.CallHTTP {
		return f.fetch(in)
	}
	return refuse("invalid", "the fake host has no call "+name)
}

func (f *Fake) fetch(in []byte) (abi.Status, []byte) {
	var r abi.HTTPRequest
	if err := json.Unmarshal(in, &r); err != nil {
		return refuse("invalid", err.Error())
	}
	if f.Fetch == nil {
		return refuse("denied", "no host is granted, so it may not reach "+r.URL)
	}
	res, err := f.Fetch(Request(r))
	if err != nil {
		return refuse("failed", err.Error())
	}
	b, err := json.Marshal(abi.HTTPResponse(*res))
	if err != nil {
		return refuse("internal", err.Error())
	}
	return abi.OK, b
}

// refused is any status but abi.OK: a guest reads the kind from the body.
const refused abi.Status = 1

func refuse(kind, message string) (abi.Status, []byte) {
	b, err := json.Marshal(abi.ErrorBody{Kind: kind, Message: message})
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return refused, b
}
