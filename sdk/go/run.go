package skep

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skep-dev/skep/abi"
)

// ErrTimedOut is what a wait or a step fails with whose time is up.
var ErrTimedOut = errors.New("timed out")

// Sleep waits, for a second or a year. Only a run can.
func Sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return ask(abi.CallSleep, abi.Sleep{For: millis(d)}, nil)
}

// SleepUntil waits until a time, unless it has passed. Only a run can.
func SleepUntil(t time.Time) error {
	return ask(abi.CallSleep, abi.Sleep{Until: unixMillis(t)}, nil)
}

// WaitForEvent waits until an event of that type is sent to the run, and decodes what came with it, which is JSON. After timeout it
// fails with ErrTimedOut; a timeout of 0 waits until the event comes. Only a run can wait.
func WaitForEvent[T any](kind string, timeout time.Duration) (data T, err error) {
	var got abi.Waited
	if err := ask(abi.CallWait, abi.Wait{Type: kind, Timeout: millis(timeout)}, &got); err != nil {
		return data, err
	}
	if got.TimedOut {
		return data, fmt.Errorf("event %q did not come within %v: %w", kind, timeout, ErrTimedOut)
	}
	if _, none := any(data).(struct{}); none || got.Data == nil {
		return data, nil
	}
	if err := json.Unmarshal(got.Data, &data); err != nil {
		return data, fmt.Errorf("event %q: %w", kind, err)
	}
	return data, nil
}

// Run is a run that was started by StartRun.
type Run struct{ ID, Session string }

// StartOptions says where a run is started. The zero value means the caller's own instance.
type StartOptions struct {
	Agent string // the caller's own when empty
	Key   string // of the instance; the caller's own, when Agent is the caller's
}

// StartRun begins a run of a function, with in encoded by the rules of Do. It is begun once, also when the caller is replayed. A nil o
// means the caller's own instance.
func StartRun(function string, in any, o *StartOptions) (Run, error) {
	if o == nil {
		o = &StartOptions{}
	}
	input, err := encode(in)
	if err != nil {
		return Run{}, fmt.Errorf("start %s: input: %w", function, err)
	}
	var out abi.Started
	err = ask(abi.CallStart, abi.Start{Agent: o.Agent, Key: o.Key, Function: function, Type: typeOf(in), Input: input}, &out)
	return Run{ID: out.Run, Session: out.Session}, err
}

// Result waits until the run has ended and decodes what it returned into out, by the rules of Do; a nil out throws it away. How the run
// failed is the error. Only a run can wait.
func (r Run) Result(out any) error {
	b, err := json.Marshal(abi.Result{Run: r.ID})
	if err != nil {
		return err
	}
	if b, err = reply(hostCall(abi.CallResult, b)); err != nil {
		return err
	}
	return decodeAgentResult(b, out)
}
