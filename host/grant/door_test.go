package grant_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
	"github.com/skep-dev/skep/host/grant/emit"
	"github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/log"
)

// sealed is a door as an agent called "a" has it, which may call "b", with what came out of it.
type sealed struct {
	*grant.Door
	lines  []agent.LogLine
	events []string
	called []string
}

func auth(name string, g agent.Grants) *grant.Authority {
	return grant.NewAuthority(grant.Subject{Agent: name}, func() agent.Grants { return g }, nil, nil)
}

func seal(limits agent.Limits, depth int) *sealed {
	s := &sealed{}
	limits = limits.Or(agent.DefaultLimits())
	handlers := http.Refused("agent \"a\"")
	maps.Copy(handlers, map[string]grant.Handler{
		abi.CallLog: log.New(limits.Log, func(_ context.Context, l agent.LogLine) error {
			s.lines = append(s.lines, l)
			return nil
		}),
		abi.CallEmit: emit.New(limits.Events, func(_ context.Context, name string, data json.RawMessage) error {
			s.events = append(s.events, name+string(data))
			return nil
		}),
		abi.CallAgent: grantagent.New(auth("a", agent.AgentGrants("b")), depth,
			func(_ context.Context, to grantagent.Target, in agent.Payload, depth int) (agent.Payload, error) {
				s.called = append(s.called, to.Agent+"."+to.Function+" "+in.Type)
				return agent.Payload{Type: in.Type, Body: in.Body}, nil
			}),
	})
	s.Door = grant.NewDoor(limits, handlers, nil)
	return s
}

// What code did not catch of a refusal is explained by the host's own words, and by nobody else's.
func TestExplain(t *testing.T) {
	s := seal(agent.Limits{}, 0)
	_, refused := s.Call(t.Context(), abi.CallHTTP, []byte(`{"url":"https://api.example.com/x"}`))
	want := agent.AsError(refused)
	if want == nil || want.Hint == "" {
		t.Fatalf("refused with %v", refused)
	}
	for _, tt := range []struct {
		err  error
		hint string
	}{
		{agent.Errorf(agent.Failed, "TypeError: %s", want.Msg), want.Hint},
		{agent.Errorf(agent.Failed, "TypeError: no host"), ""},
		{agent.Errorf(agent.Exhausted, "%s", want.Msg), ""},
		{&agent.Error{Kind: agent.Failed, Msg: want.Msg, Hint: "export a function"}, "export a function"},
	} {
		if got := agent.AsError(s.Explain(tt.err)); got.Hint != tt.hint || got.Msg != agent.AsError(tt.err).Msg {
			t.Errorf("%v: explained as %q, want %q", tt.err, got.Hint, tt.hint)
		}
	}
	if err := s.Explain(nil); err != nil {
		t.Errorf("nothing became %v", err)
	}
	for range 20 { // the latest calls that failed are remembered
		_, _ = s.Call(t.Context(), abi.CallAgent, []byte(`{"agent":"c","function":"f"}`))
	}
	if got := agent.AsError(s.Explain(agent.Errorf(agent.Failed, "%s", want.Msg))); got.Hint != "" {
		t.Errorf("still explained as %q", got.Hint)
	}
}

func TestDoor(t *testing.T) {
	s := seal(agent.Limits{}, 0)
	for _, tt := range []struct{ call, in, want string }{
		{abi.CallLog, `{"level":"warn","message":"hm"}`, ""},
		{abi.CallEmit, `{"name":"step","data":{"n":1}}`, ""},
		{abi.CallEmit, `{"name":"bare"}`, ""},
		{abi.CallAgent, `{"agent":"b","function":"f","input":"MQ=="}`, `{"type":"application/json","output":"MQ=="}`},
	} {
		out, err := s.Call(t.Context(), tt.call, []byte(tt.in))
		if err != nil || string(out) != tt.want {
			t.Errorf("%s %s: got %s, %v", tt.call, tt.in, out, err)
		}
	}
	if len(s.lines) != 1 || s.lines[0] != (agent.LogLine{Level: agent.LevelWarn, Message: "hm"}) {
		t.Errorf("lines: %v", s.lines)
	}
	if strings.Join(s.events, " ") != `step{"n":1} bare` {
		t.Errorf("events: %v", s.events)
	}
	if strings.Join(s.called, " ") != "b.f application/json" {
		t.Errorf("called: %v", s.called)
	}
}

func TestDoorRefuses(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, tt := range []struct {
		call, in string
		depth    int
		kind     agent.Kind
		want     string
	}{
		{call: "exec", in: `{}`, kind: agent.Denied, want: `host call "exec" is not granted`},
		{call: abi.CallLog, in: `{"level":"loud","message":""}`, kind: agent.Invalid, want: "log level"},
		{call: abi.CallLog, in: `{"lvl":"info"}`, kind: agent.Invalid, want: `unknown field "lvl"`},
		{call: abi.CallLog, in: `{} {}`, kind: agent.Invalid, want: "goes on after"},
		{call: abi.CallLog, in: ``, kind: agent.Invalid, want: "EOF"},
		{call: abi.CallEmit, in: `{"name":""}`, kind: agent.Invalid, want: "needs a name"},
		{call: abi.CallEmit, in: `{"name":"` + long + `"}`, kind: agent.Invalid, want: "200 bytes"},
		{call: abi.CallEmit, in: `{"name":"x","data":"` + strings.Repeat("x", emit.MaxData) + `"}`, kind: agent.Invalid, want: "more than 262144"},
		{call: abi.CallHTTP, in: `{"method":"GET","url":"https://example.com/x"}`, kind: agent.Denied, want: `no host is granted to agent "a", so it may not reach example.com`},
		{call: abi.CallHTTP, in: `{"method":"GET","url":"/x"}`, kind: agent.Invalid, want: "not an absolute URL"},
		{call: abi.CallAgent, in: `{"agent":"c","function":"f"}`, kind: agent.Denied, want: `no grant to call agent "c": add "c" to grants.agents of agent "a"`},
		{call: abi.CallAgent, in: `{"agent":"../b","function":"f"}`, kind: agent.Invalid, want: "not valid"},
		{call: abi.CallAgent, in: `{"agent":"b"}`, kind: agent.Invalid, want: "must name a function"},
		{call: abi.CallAgent, in: `{"agent":"b","function":"f"}`, depth: grantagent.MaxDepth, kind: agent.Exhausted, want: "cycle"},
	} {
		s := seal(agent.Limits{}, tt.depth)
		_, err := s.Call(t.Context(), tt.call, []byte(tt.in))
		if e := agent.AsError(err); e == nil || e.Kind != tt.kind || !strings.Contains(e.Msg, tt.want) {
			t.Errorf("%s %.80s: got %v, want %s with %q", tt.call, tt.in, err, tt.kind, tt.want)
		}
		if len(s.lines)+len(s.events)+len(s.called) > 0 {
			t.Errorf("%s %.80s: went through", tt.call, tt.in)
		}
	}
}

func TestDoorCounts(t *testing.T) {
	s := seal(agent.Limits{HostCalls: 3, Events: 2, Input: 1 << 10}, 0)
	event := func() error {
		_, err := s.Call(t.Context(), abi.CallEmit, []byte(`{"name":"x"}`))
		return err
	}
	for i, want := range []agent.Limit{agent.NoLimit, agent.NoLimit, agent.LimitEvents, agent.LimitHostCalls} {
		var got agent.Limit
		if err := event(); err != nil {
			got = agent.AsError(err).Limit
		}
		if got != want {
			t.Errorf("event %d: limit %q, want %q", i+1, got, want)
		}
	}
	s = seal(agent.Limits{Input: 1 << 10}, 0)
	_, err := s.Call(t.Context(), abi.CallLog, make([]byte, 80<<10))
	if e := agent.AsError(err); e == nil || e.Limit != agent.LimitInput {
		t.Errorf("large body: %v", err)
	}
}

func TestLogLimit(t *testing.T) {
	s := seal(agent.Limits{Log: 12, HostCalls: 1}, 0)
	for i, want := range []agent.Limit{agent.NoLimit, agent.NoLimit, agent.LimitLog} {
		_, err := s.Call(t.Context(), abi.CallLog, []byte(`{"level":"info","message":"12345"}`))
		var got agent.Limit
		if err != nil {
			got = agent.AsError(err).Limit
		}
		if got != want {
			t.Errorf("line %d: limit %q, want %q", i+1, got, want)
		}
	}
	if len(s.lines) != 2 {
		t.Errorf("lines: %v", s.lines)
	}
}

func TestPanicEndsOneCall(t *testing.T) {
	var logged bytes.Buffer
	d := grant.NewDoor(agent.DefaultLimits(), map[string]grant.Handler{
		"boom": func(context.Context, []byte) ([]byte, error) { panic("secret") },
	}, &grant.Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	_, err := d.Call(t.Context(), "boom", nil)
	if e := agent.AsError(err); e == nil || e.Kind != agent.Internal || strings.Contains(e.Msg, "secret") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(logged.String(), "secret") {
		t.Errorf("log: %s", logged.String())
	}
}

// FuzzDoor sends any bytes as any call: the door answers with a typed error or lets a valid call through.
func FuzzDoor(f *testing.F) {
	for _, call := range []string{abi.CallLog, abi.CallEmit, abi.CallHTTP, abi.CallHTTPOpen, abi.CallAgent, "x"} {
		f.Add(call, []byte(`{"name":"x","data":[1],"level":"info","message":"m","agent":"b","function":"f","url":"http://x"}`))
		f.Add(call, []byte(`{"name":"x"}`))
	}
	f.Fuzz(func(t *testing.T, call string, in []byte) {
		s := seal(agent.Limits{}, 0)
		out, err := s.Call(t.Context(), call, in)
		if err != nil {
			if k := agent.KindOf(err); k != agent.Invalid && k != agent.Denied {
				t.Fatalf("%s: %v", k, err)
			}
			return
		}
		if len(out) > 0 && !json.Valid(out) {
			t.Fatalf("output %q", out)
		}
	})
}
