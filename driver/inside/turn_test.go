package inside_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/internal/telemetry"
)

func itoa(n int) string { return strconv.Itoa(n) }

func prompt(turn, model, text string) driver.Prompt {
	return driver.Prompt{Turn: turn, CLI: "fake", Model: model, Text: text}
}

// more is a prompt that goes on with the session of the fake.
func more(turn, model, text string) driver.Prompt {
	p := prompt(turn, model, text)
	p.Resume = "session-1"
	return p
}

func kinds(list []driver.Event) string {
	var out []string
	for _, e := range list {
		out = append(out, e.Type)
	}
	return strings.Join(out, " ")
}

func TestTurn(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "m", "say $MODEL_KEY at $MODELS"))
	end, list := r.turnEnd("1")
	if end.Status != driver.TurnCompleted || kinds(list) != "process.started session.started turn.started text.done turn.ended" {
		t.Fatalf("%+v %s", end, kinds(list))
	}
	if text := string(list[3].Data); !strings.Contains(text, "model-key at http://127.0.0.1:") || !strings.Contains(text, "/ai") {
		t.Errorf("the CLI has %s", text)
	}
	for _, e := range list {
		if e.Trace != r.opts.Boot.TraceID && e.Trace != "" {
			t.Errorf("the trace of %s is %q", e.Type, e.Trace)
		}
	}
	// Begun again it is the same turn; another one of the same session goes to the same process.
	do[any](r, driver.DoPrompt, prompt("1", "m", "say no"))
	do[any](r, driver.DoPrompt, more("2", "m", "say 2"))
	_, list = r.turnEnd("2")
	if n := strings.Count(kinds(list), "process.started"); n != 1 || strings.Count(kinds(list), "turn.started") != 2 {
		t.Errorf("there were %d processes: %s", n, kinds(list))
	}
	// Another model is another process.
	do[any](r, driver.DoPrompt, more("3", "other", "say 3"))
	_, list = r.turnEnd("3")
	if n := strings.Count(kinds(list), "process.started"); n != 2 || strings.Count(kinds(list), "process.exited") != 1 {
		t.Errorf("there were %d processes: %s", n, kinds(list))
	}
}

// What was said to a CLI is not for who begins a session of its own: a sandbox that is kept is for more than one.
func TestNewSession(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "m", "say the secret"))
	r.turnEnd("1")
	do[any](r, driver.DoPrompt, prompt("2", "m", "say 2"))
	if _, list := r.turnEnd("2"); strings.Count(kinds(list), "session.started") != 2 {
		t.Errorf("the second prompt came into the session of the first: %s", kinds(list))
	}
}

func TestTurnsOneAtATime(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "m", "hang"))
	r.fails(agent.Conflict, "the turn 1 is under way", driver.DoPrompt, prompt("2", "m", "say x"))
	r.fails(agent.Invalid, "no backend", driver.DoPrompt, driver.Prompt{Turn: "3", CLI: "no"})
	r.fails(agent.NotFound, "no turn 9", driver.DoInterrupt, driver.InterruptArgs{Turn: "9"})
	do[any](r, driver.DoInterrupt, driver.InterruptArgs{Turn: "1"})
	do[any](r, driver.DoInterrupt, driver.InterruptArgs{Turn: "1"})
	do[any](r, driver.DoPrompt, more("2", "m", "say x"))
	if end, list := r.turnEnd("2"); end.Status != driver.TurnCompleted || strings.Count(kinds(list), "process.started") != 1 {
		t.Errorf("%+v: %s", end, kinds(list))
	}
}

// A turn that did not begin leaves nothing, and can be begun again.
func TestStartFails(t *testing.T) {
	r := start(t)
	r.fails(agent.NotFound, "no model none", driver.DoPrompt, prompt("1", "none", "say x"))
	do[any](r, driver.DoPrompt, prompt("1", "m", "say x"))
	if end, _ := r.turnEnd("1"); end.Status != driver.TurnCompleted {
		t.Errorf("%+v", end)
	}
}

func TestTurnEndsThoughTheCLIDies(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "m", "die"))
	end, list := r.turnEnd("1")
	if end.Status != driver.TurnFailed || end.Fault == nil || !strings.Contains(end.Fault.Message, "status 3: it is all over") {
		t.Fatalf("%+v %+v", end, end.Fault)
	}
	if kinds(list) != "process.started session.started turn.started process.exited turn.ended" {
		t.Error(kinds(list))
	}
	do[any](r, driver.DoPrompt, prompt("2", "m", "say x"))
	if end, _ := r.turnEnd("2"); end.Status != driver.TurnCompleted {
		t.Errorf("%+v", end)
	}
}

// A CLI that ignores its protocol, and signals, ends all the same.
func TestInterruptLadder(t *testing.T) {
	for mode, signal := range map[string]string{"deaf": "INT", "stubborn": "KILL"} {
		t.Run(mode, func(t *testing.T) {
			r := start(t)
			do[any](r, driver.DoPrompt, prompt("1", mode, "hang"))
			do[any](r, driver.DoInterrupt, driver.InterruptArgs{Turn: "1"})
			end, list := r.turnEnd("1")
			if end.Status != driver.TurnInterrupted || end.Fault != nil {
				t.Errorf("%+v", end)
			}
			var exit driver.ProcessData
			for _, e := range list {
				if e.Type == driver.CLIExited {
					_ = e.Read(&exit)
				}
			}
			if exit.Signal != signal && !(mode == "deaf" && exit.Code == 2) {
				t.Errorf("it ended by %+v, not by %s", exit, signal)
			}
		})
	}
}

// An interruption that comes while the CLI of the turn before is still being closed is of the turn that it names.
func TestInterruptBeforeTheCLIStarts(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "stubborn", "say x"))
	r.turnEnd("1")
	began := make(chan error, 1)
	go func() { began <- r.link.Do(r.ctx(), driver.DoPrompt, prompt("2", "m", "hang"), nil) }()
	var err error
	r.until("the turn 2 is not known", func() bool {
		err = r.link.Do(r.ctx(), driver.DoInterrupt, driver.InterruptArgs{Turn: "2"}, nil)
		return agent.KindOf(err) != agent.NotFound || err == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-began; err != nil { // the fake does not mind that it is to stop, and begins
		t.Fatal(err)
	}
	if end, _ := r.turnEnd("2"); end.Status != driver.TurnInterrupted {
		t.Errorf("%+v", end)
	}
}

func TestAnswers(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "m", "ask"))
	ask := func(turn string) (d driver.PermissionData) {
		e, _ := r.await(func(e driver.Event) bool { return e.Turn == turn && e.Type == driver.PermissionAsked })
		_ = e.Read(&d)
		return d
	}
	first := ask("1")
	if first.ID == "0" || first.Action != driver.ActionRun {
		t.Errorf("what is asked is %+v", first)
	}
	r.fails(agent.NotFound, "nothing was asked", driver.DoAnswer, driver.Answer{ID: "0", Allow: true})
	do[any](r, driver.DoAnswer, driver.Answer{ID: first.ID, Allow: true})
	do[any](r, driver.DoAnswer, driver.Answer{ID: first.ID, Allow: true})
	r.fails(agent.Conflict, "answered, and otherwise", driver.DoAnswer, driver.Answer{ID: first.ID})
	if _, list := r.turnEnd("1"); !strings.Contains(show(list), "0 true") || strings.Contains(kinds(list), "withdrawn") {
		t.Error(show(list))
	}

	// The same id of the CLI's own is another one here, and the old does not fit it.
	do[any](r, driver.DoPrompt, more("2", "m", "ask"))
	second := ask("2")
	if second.ID == first.ID {
		t.Error("an id was used twice")
	}
	do[any](r, driver.DoInterrupt, driver.InterruptArgs{Turn: "2"})
	if _, list := r.turnEnd("2"); !strings.HasSuffix(kinds(list), "permission.withdrawn turn.ended") {
		t.Error(kinds(list))
	}
	r.fails(agent.NotFound, "withdrawn", driver.DoAnswer, driver.Answer{ID: second.ID, Allow: true})

	do[any](r, driver.DoPrompt, more("3", "m", "withdraw"))
	e, _ := r.await(func(e driver.Event) bool { return e.Turn == "3" && e.Type == driver.PermissionWithdrawn })
	third := ask("3")
	if !strings.Contains(string(e.Data), third.ID) {
		t.Errorf("withdrawn is %s, not %s", e.Data, third.ID)
	}
}

// What a backend cannot read, and what is no JSON or too long, comes through as far as it can.
func TestOddEvents(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, prompt("1", "m", `raw {"type":"tool.started","data":{"id":"1","input":"`+strings.Repeat("ä<", 60000)+`"}}`))
	_, list := r.turnEnd("1")
	e := list[3]
	var d driver.ToolData
	if err := e.Read(&d); err != nil || !e.Cut || d.ID != "1" || len(e.Data) > driver.MaxEvent || len(d.Input) < driver.MaxEvent/4 {
		t.Errorf("a long event: cut %v, %d bytes, %v", e.Cut, len(e.Data), err)
	}
	do[any](r, driver.DoPrompt, prompt("2", "m", `raw this is no JSON`))
	if _, list := r.turnEnd("2"); !strings.Contains(show(list), "agent.unparsed") {
		t.Error(show(list))
	}
}

// What comes of a command has its trace; what else there is, that of the boot payload.
func TestTraceOfACommand(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := start(t)
	ctx := telemetry.WithTraceparent(r.ctx(), trace)
	if err := r.link.Do(ctx, driver.DoPrompt, prompt("1", "m", "say x"), nil); err != nil {
		t.Fatal(err)
	}
	_, list := r.turnEnd("1")
	for _, e := range list {
		if !strings.Contains(e.Trace, trace[3:35]) && e.Type != driver.SessionStarted {
			t.Errorf("the trace of %s is %q", e.Type, e.Trace)
		}
	}
	do[any](r, driver.DoPrompt, prompt("2", "m", "say x"))
	if _, list := r.turnEnd("2"); list[len(list)-1].Trace != r.opts.Boot.TraceID {
		t.Errorf("without a trace of its own, an event has %q", list[len(list)-1].Trace)
	}
}
