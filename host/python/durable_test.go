package python

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

const durable = `
import skep
from datetime import datetime, timedelta, timezone

left = 2

def flaky():
    global left
    left -= 1
    if left >= 0:
        raise ValueError("not yet")
    return "worked"

async def later(): return await skep.Call("words", "up", "a")
def hopeless(): raise skep.PermanentError("never")
def undo(v): raise RuntimeError("stuck")

def steps():
    out = [skep.step("a", flaky, retries=3, rollback=undo), skep.step("a", later, rollback=lambda v: skep.emit("undone", v))]
    try:
        skep.step("b", hopeless, retries=3, rollback=undo)
    except skep.PermanentError as e:
        out.append(str(e))
    skep.emit("had", out)
    skep.step("c", lambda: 1 / 0)

def alarms():
    skep.schedule(1.5, "ring", {"a": 1}, name="n", attempts=2, delay=timedelta(seconds=3))
    skep.schedule(datetime(2030, 1, 2, tzinfo=timezone.utc), keep=True)
    skep.schedule("0 9 * * *", "ring", zone="Europe/Berlin", missed="skip")
    skep.schedule(every=timedelta(minutes=1))
    skep.sleep(0)
    skep.sleep(timedelta(days=2))
    skep.sleep_until(datetime(2030, 1, 2, tzinfo=timezone.utc))
    try:
        skep.wait_for_event("late", timeout=0.001)
    except TimeoutError as e:
        return str(e)

def values():
    rows = skep.sql("q", None, True, 2**60, 1.5, "é", b"\xff")
    rows[0]["f"] = list(rows[0]["f"])
    return [list(rows[0].values()), rows.changes]

def messages():
    return [skep.agent("a", "k", send=True).say("hi"), skep.child("a", "c").say(), skep.agent("a").say(1)]
`

// durably answers as an instance does, to a run, and keeps what it was asked.
func durably(asked *[]string) func(context.Context, string, []byte) ([]byte, error) {
	return func(_ context.Context, name string, in []byte) ([]byte, error) {
		*asked = append(*asked, strings.TrimSpace(fmt.Sprintf("%s %s", name, in)))
		switch name {
		case abi.CallSelf:
			return json.Marshal(abi.Self{Agent: "a", Key: "k", Run: "r"})
		case abi.CallAgent:
			var c abi.AgentCall
			if err := json.Unmarshal(in, &c); err != nil || c.Send {
				return []byte(`{"type":""}`), err
			}
			return json.Marshal(abi.AgentResult{Type: "text/plain", Output: []byte(c.Function + c.Key)})
		case abi.CallAlarmSet:
			return []byte(`{"name":"n","method":"m","at":1500}`), nil
		case abi.CallWait:
			return []byte(`{"timed_out":true}`), nil
		case abi.CallStorageSQL:
			var q abi.SQL
			if err := json.Unmarshal(in, &q); err != nil {
				return nil, err
			}
			return json.Marshal(abi.SQLRows{Columns: []string{"a", "b", "c", "d", "e", "f"}, Rows: [][]abi.SQLValue{q.Params}, Changes: 3})
		}
		return nil, nil
	}
}

func TestDurableCalls(t *testing.T) {
	a := load(t, "main.py", durable)
	var asked, log []string
	env := cell.Env{Calls: durably(&asked), Log: func(_ agent.LogLevel, line string) { log = append(log, line) }}
	run := func(function string) string {
		asked = nil
		out, err := call(t, a, function, agent.Payload{}, env)
		if err != nil {
			return err.Error()
		}
		return string(out.Body)
	}
	check := func(function, want string, wire ...string) {
		t.Helper()
		if got := run(function); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", function, got, want)
		}
		asked = slices.DeleteFunc(asked, func(s string) bool { return s == "self" })
		if d := cmp.Diff(wire, asked); d != "" && wire != nil {
			t.Errorf("%s asked (-want +got):\n%s", function, d)
		}
	}
	mark := func(what, name string, attempt int, rollback bool, err string) string {
		end := "}"
		if err != "" {
			end = `, "error": "` + err + `"}`
		}
		return fmt.Sprintf(`step.%s {"name": "%s", "attempt": %d, "rollback": %v%s`, what, name, attempt, rollback, end)
	}
	begin := func(name string, attempt int) string { return mark("begin", name, attempt, false, "") }
	check("steps", "ZeroDivisionError",
		begin("a", 1), mark("end", "a", 1, false, "ValueError: not yet"), `run.sleep {"for": 10000}`,
		begin("a", 2), mark("end", "a", 2, false, "ValueError: not yet"), `run.sleep {"for": 20000}`,
		begin("a", 3), mark("end", "a", 3, false, ""),
		begin("a#2", 1), `agent {"agent": "words", "function": "up", "type": "text/plain; charset=utf-8", "input": "YQ=="}`, mark("end", "a#2", 1, false, ""),
		begin("b", 1), mark("end", "b", 1, false, "PermanentError: never"),
		`emit {"name": "had", "data": ["worked", "up", "never"]}`,
		begin("c", 1), mark("end", "c", 1, false, "ZeroDivisionError: division by zero"),
		mark("begin", "a#2", 1, true, ""), `emit {"name": "undone", "data": "up"}`, mark("end", "a#2", 1, true, ""),
		mark("begin", "a", 1, true, ""), mark("end", "a", 1, true, "RuntimeError: stuck"), `run.sleep {"for": 10000}`,
		mark("begin", "a", 2, true, ""), mark("end", "a", 2, true, "RuntimeError: stuck"), `run.sleep {"for": 20000}`,
		mark("begin", "a", 3, true, ""), mark("end", "a", 3, true, "RuntimeError: stuck"), `run.sleep {"for": 40000}`,
		mark("begin", "a", 4, true, ""), mark("end", "a", 4, true, "RuntimeError: stuck"),
	)
	if len(log) != 1 || log[0] != "rollback of a: RuntimeError: stuck" {
		t.Errorf("the log: %q", log)
	}
	alarm := func(name, method, zone, missed, keep, rest string) string {
		return fmt.Sprintf(`alarm.set {"name": "%s", "method": "%s", "zone": "%s", "overlap": "", "missed": "%s", "keep": %s, %s}`, name, method, zone, missed, keep, rest)
	}
	check("alarms", "event 'late' did not come in time",
		alarm("n", "ring", "", "", "false", `"payload": {"a": 1}, "delay": 1500, "retry": {"attempts": 2, "delay": 3000}`),
		alarm("", "", "", "", "true", `"at": 1893542400000`),
		alarm("", "ring", "Europe/Berlin", "skip", "false", `"cron": "0 9 * * *"`),
		alarm("", "", "", "", "false", `"every": 60000`),
		`run.sleep {"for": 172800000}`, `run.sleep {"until": 1893542400000}`, `run.wait {"type": "late", "timeout": 1}`,
	)
	check("messages", `[null,"sayc","say"]`)
	check("values", `[[null,1,1152921504606846976,1.5,"é",[255]],3]`)
}
