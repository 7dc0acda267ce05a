package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/runtimetest"
)

// job is a run, and what it is to do.
type job struct {
	Name   string `json:"name"`
	Steps  []step `json:"steps"`
	key    string // of its instance
	events int    // that it waits for
	run    agent.Run
}

type step struct {
	Kind stepKind `json:"kind"`
	Name string   `json:"name"`
	For  int64    `json:"for,omitempty"` // milliseconds
}

type stepKind uint8

const (
	effect   stepKind = iota // of its instance, in the slice that it is in
	napping                  // a wait for a time
	awaiting                 // one for an event
	paying                   // a call of the bank, which is not to be made twice
	starting                 // another run, and a wait for what it comes to
	throwing                 // the end; nothing is drawn past it
)

// newJob draws a run's program.
func newJob(seed uint64, i int) *job {
	rng := draw(seed, fmt.Sprint("job", i))
	j := &job{Name: fmt.Sprint("j", i), key: fmt.Sprint("k", rng.IntN(keys))}
	for n := range 3 + rng.IntN(8) {
		s := step{Kind: stepKind(rng.IntN(int(throwing))), Name: fmt.Sprintf("%s.%d", j.Name, n)}
		switch s.Kind {
		case napping:
			s.For = 1 + int64(rng.Float64()*rng.Float64()*6000)
		case awaiting:
			j.events++
		}
		j.Steps = append(j.Steps, s)
	}
	if rng.IntN(4) == 0 {
		j.Steps = append(j.Steps, step{Kind: throwing})
	}
	return j
}

// expected is what a run has of effects in its instance when it comes to its end, what it returns, and how many of its effects last at least, and at most,
// when it throws there.
func (j *job) expected() (effects, output []string, least, most int) {
	events := 0
	for _, s := range j.Steps {
		switch s.Kind {
		case effect:
			effects, output = append(effects, s.Name), append(output, s.Name)
			continue
		case awaiting:
			events++
			output = append(output, fmt.Sprint(events))
		case paying:
			output = append(output, "paid "+s.Name)
		case starting:
			effects, output = append(effects, "child "+s.Name), append(output, "child "+s.Name)
		case throwing:
			return effects, nil, least, most
		}
		most = len(effects)
		if s.Kind != awaiting { // an event that is there already is given to it at once
			least = most
		}
	}
	return effects, output, least, most
}

// payments are the names of the calls of the bank that the run makes, in their order.
func (j *job) payments() (names []string) {
	for _, s := range j.Steps {
		if s.Kind == paying {
			names = append(names, s.Name)
		}
	}
	return names
}

func ask[Out any](ctx context.Context, c host.Call, name string, in any) (out Out, err error) {
	b, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	if b, err = c.Calls(ctx, name, b); err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &out)
	}
	return out, err
}

// work is the code of a run.
func (m *machine) work(ctx context.Context, c host.Call) (agent.Payload, error) {
	var j job
	if err := json.Unmarshal(c.Input.Body, &j); err != nil {
		return agent.Payload{}, err
	}
	output := []string{}
	for _, s := range j.Steps {
		said, err := s.take(ctx, c)
		if err != nil {
			return agent.Payload{}, err
		}
		if said != "" {
			output = append(output, said)
		}
	}
	b, err := json.Marshal(output)
	return agent.JSON(b), err
}

func (s step) take(ctx context.Context, c host.Call) (string, error) {
	switch s.Kind {
	case effect:
		return s.Name, count(ctx, c, s.Name)
	case napping:
		_, err := ask[struct{}](ctx, c, abi.CallSleep, abi.Sleep{For: s.For})
		return "", err
	case awaiting:
		got, err := ask[abi.Waited](ctx, c, abi.CallWait, abi.Wait{Type: "go"})
		return string(got.Data), err
	case paying:
		var said string
		out, err := runtimetest.CallAgent(ctx, c, "bank", "pay", agent.Text(s.Name))
		if err == nil {
			err = json.Unmarshal(out.Body, &said)
		}
		return said, err
	case starting:
		begun, err := ask[abi.Started](ctx, c, abi.CallStart, abi.Start{Function: "child", Type: agent.TypeText, Input: []byte(s.Name)})
		if err != nil {
			return "", err
		}
		got, err := ask[abi.AgentResult](ctx, c, abi.CallResult, abi.Result{Run: begun.Run})
		return string(got.Output), err
	}
	return "", errors.New("as it was asked to")
}

// count adds one to a number of the instance, keeps what it was for under it, and tells of it.
func count(ctx context.Context, c host.Call, what string) error {
	got, err := ask[abi.StateEntries](ctx, c, abi.CallStorageGet, abi.StateGet{Keys: []string{"n"}})
	if err != nil {
		return err
	}
	n := 0
	if len(got.Entries) > 0 {
		if err := json.Unmarshal(got.Entries[0].JSON, &n); err != nil {
			return err
		}
	}
	n++
	for _, e := range [][2]string{{"n", fmt.Sprint(n)}, {fmt.Sprint("e/", n), fmt.Sprintf("%q", what)}} {
		if _, err := ask[abi.StateVersion](ctx, c, abi.CallStorageSet, abi.StateEdit{Key: e[0], StateValue: abi.StateValue{JSON: abi.Raw(e[1])}}); err != nil {
			return err
		}
	}
	return runtimetest.Emit(ctx, c, "effect", what)
}

// child is the code of a run that another one has begun.
func (m *machine) child(ctx context.Context, c host.Call) (agent.Payload, error) {
	what := "child " + string(c.Input.Body)
	m.note("child")
	return agent.Text(what), count(ctx, c, what)
}

const longestPay = 200 * time.Millisecond // before it has its effect

// pay is a call that has an effect outside. It takes its time before that and after it; half of the calls have it whatever becomes of who has called.
func (m *machine) pay(ctx context.Context, c host.Call) (agent.Payload, error) {
	what := string(c.Input.Body)
	before := m.chance("before " + what)
	pass(time.Duration(before * float64(longestPay)))
	if before < 0.5 && ctx.Err() != nil {
		return agent.Payload{}, ctx.Err()
	}
	m.mu.Lock()
	m.paid[what]++
	m.mu.Unlock()
	pass(time.Duration(m.chance("after "+what) * float64(200*time.Millisecond)))
	return agent.JSON(fmt.Appendf(nil, "%q", "paid "+what)), nil
}
