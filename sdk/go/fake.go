//go:build !wasip1

package skep

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
)

// Fake stands in for the host when an agent's functions are tested off WebAssembly. It records what they did. Its functions run in
// an instance, whose state lasts over the calls of one fake.
type Fake struct {
	Config map[string]string

	// Self is who the code is; agent and key are "test" unless given. A call with a Run is a run: it can wait, and time passes at once.
	// Any other is a turn: when it fails, what it did to the instance is undone.
	Self Identity

	// Now is the host's time: a day of the year 2030 unless given. Waiting moves it.
	Now time.Time

	// Answer answers calls of other agents; nil refuses them. An error reaches the caller as a CallError.
	Answer func(agent, function string, in []byte) (out []byte, err error)

	// AnswerInstance answers calls of instances, and what was asked of a run that was started in one; nil refuses them.
	AnswerInstance func(agent, key, method string, in []byte) (out []byte, err error)

	// Fetch answers requests; nil refuses them. Placeholders of secrets stand in them as the agent wrote them.
	Fetch func(Request) (*Response, error)

	// Query answers statements of SQL; nil refuses them. Values are nil, int64, float64, string and []byte.
	Query func(query string, params []any) (columns []string, rows [][]any, err error)

	// Tools answers calls of tools, by their names SERVER.METHOD; others are refused. Approve answers the question whether calls of tools may
	// be made: one, or those of a ChangeTools, with its title; nil lets all.
	Tools   map[string]FakeTool
	Approve func(abi.ToolChange) bool

	// Model answers models; nil refuses them. What it answers comes in pieces to code that reads a stream. Models are the names that are listed.
	Model  func(ModelAsk) (*ModelAnswer, error)
	Models []string

	Sandbox *FakeSandbox // nil: the agent has none

	Files  map[string]FakeFile          // of the session, by path. It is replaced when a file is written
	Skills map[string]map[string]string // by name and path: texts

	Output []byte // of the last Call
	Failed string // the error of the last Call, "" when it worked
	Logs   []abi.Log
	Events []abi.Emit

	Steps    []abi.StepMark    // attempts of steps that have ended
	Messages []abi.AgentCall   // that were sent to instances
	Runs     []abi.Start       // that were started
	Frames   []abi.SocketSend  // that were sent to connections
	Closed   []abi.SocketClose // connections that the code closed

	ToolCalls []abi.ToolCall   // that were made
	Changes   []abi.ToolChange // that were approved
	ModelAsks []ModelAsk       // that models were asked

	input    []byte
	state    fakeKV // of the agent
	instance fakeInstance
	events   map[string][]abi.Raw // that were delivered and are not read
	seeds    uint64               // drawn by the call
	approved []abi.ToolCall       // by a change, and not made yet
	streams  fakeStreams
	journal  journal
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
	f.begin(b)
	f.journal = journal{input: b, began: f.Now}
	undo := f.undo()
	err = f.enter(function)
	f.journal.output, f.journal.failed = f.Output, f.Failed
	if err != nil {
		if f.Self.Run == "" {
			undo()
		}
		return err
	}
	if out == nil {
		return nil
	}
	return decode(f.Output, out)
}

func (f *Fake) begin(input []byte) {
	f.input, f.Output, f.Failed, f.seeds, f.approved = input, nil, "", 0, nil
	f.Self.Agent, f.Self.Key = cmp.Or(f.Self.Agent, "test"), cmp.Or(f.Self.Key, "test")
	if f.Now.IsZero() {
		f.Now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
}

func (f *Fake) enter(function func() int32) error {
	current = f
	defer func() { current = nil }()
	if code := function(); code != 0 {
		return errors.New(f.Failed)
	}
	return nil
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

// Now is the time as the call's host gives it, which is what time.Now says as well. In a test it is the time of the Fake.
func Now() time.Time { return host().Now }

func seed() (s [32]byte) {
	f := host()
	f.seeds++
	binary.LittleEndian.PutUint64(s[:], f.seeds)
	return s
}

func hostCall(name string, in []byte) []byte {
	return host().journaled(name, in, func() []byte {
		status, out := host().answer(name, in)
		return append([]byte{byte(status)}, out...)
	})
}

func hostBatch(calls []byte) []byte {
	return host().journaled("batch", calls, func() []byte {
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
	})
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
		return answerOf(called(in, f.call))
	case abi.CallStateGet, abi.CallStateList, abi.CallStateBatch:
		return f.state.answer(name, in)
	case abi.CallHTTP:
		return f.fetch(in)
	}
	switch family, _, _ := strings.Cut(name, "."); family {
	case "tool", "file", "skill":
		return f.tool(name, in)
	case "sandbox":
		return f.sandbox(name, in)
	case "model":
		return f.model(name, in)
	}
	return f.durable(name, in)
}

func (f *Fake) call(c abi.AgentCall) (abi.AgentResult, error) {
	if c.Send {
		f.Messages = append(f.Messages, c)
		return abi.AgentResult{}, nil
	}
	return f.result(abi.Start{Agent: c.Agent, Key: c.Key, Function: c.Function, Type: c.Type, Input: c.Input})
}

func (f *Fake) result(s abi.Start) (abi.AgentResult, error) {
	var out []byte
	var err error
	switch {
	case s.Key != "" && f.AnswerInstance != nil:
		out, err = f.AnswerInstance(s.Agent, s.Key, s.Function, s.Input)
	case s.Key == "" && f.Answer != nil:
		out, err = f.Answer(s.Agent, s.Function, s.Input)
	default:
		err = &CallError{Kind: "denied", Message: "this agent may not call agent " + s.Agent}
	}
	var told *CallError
	if err != nil && !errors.As(err, &told) {
		err = &CallError{Kind: "failed", Message: err.Error()}
	}
	return abi.AgentResult{Type: s.Type, Output: out}, err
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
