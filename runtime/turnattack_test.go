package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// leaving is a method that leaves its turn, does work, and enters again.
func leaving(work func(context.Context, host.Call) error) runtimetest.Func {
	return func(ctx context.Context, c host.Call) (agent.Payload, error) {
		if _, err := count(ctx, c, "n"); err != nil {
			return agent.Payload{}, err
		}
		if _, err := c.Calls(ctx, abi.CallTurnLeave, nil); err != nil {
			return agent.Payload{}, err
		}
		if err := work(ctx, c); err != nil {
			return agent.Payload{}, err
		}
		if _, err := c.Calls(ctx, abi.CallTurnEnter, nil); err != nil {
			return agent.Payload{}, err
		}
		return number(count(ctx, c, "n"))
	}
}

// A call that has left its turn may call others, for all that it changed is durable; what is the instance's it cannot reach.
func TestCallsOutsideOfTheTurn(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"slow": leaving(func(ctx context.Context, c host.Call) error {
			if _, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Agent: "b", Function: "free"}); err != nil {
				return fmt.Errorf("a function: %w", err)
			}
			if _, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: "other", Function: "free"}); err != nil {
				return fmt.Errorf("another instance: %w", err)
			}
			for _, in := range []abi.AgentCall{{Key: "x", Function: "free", Send: true}, {Key: "x", Function: "free", Child: true}} {
				if _, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, in); agent.KindOf(err) != agent.Conflict {
					return fmt.Errorf("%+v: %w", in, err)
				}
			}
			return nil
		}),
		"free": func(context.Context, host.Call) (agent.Payload, error) { return agent.Text("free"), nil },
	}, nil, "b")
	r.grant(agent.Grants{Agents: []agent.NamedGrant{{Name: "b"}}})
	if got := r.mustCall("k", "slow", ""); got != "2" {
		t.Errorf("counted to %s", got)
	}
}

func (r *rig) grant(g agent.Grants) {
	r.t.Helper()
	if _, err := r.UpdateAgent(r.t.Context(), app, "a", runtime.AgentPatch{Grants: &g}); err != nil {
		r.t.Fatal(err)
	}
}

// An instance that is deleted while a call is outside of its turn is not made anew by that call.
func TestDeletedOutsideOfTheTurn(t *testing.T) {
	var r *rig
	r = newRig(t, map[string]runtimetest.Func{"slow": leaving(func(context.Context, host.Call) error {
		return r.DeleteInstances(context.Background(), app, "a", "k")
	})}, nil)
	if _, err := r.callInstance("k", "slow", ""); agent.KindOf(err) != agent.NotFound && !strings.Contains(fmt.Sprint(err), "no instance") {
		t.Errorf("the call: %v", err)
	}
	if _, err := r.InspectInstance(t.Context(), app, "a", "k"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("the instance: %v", err)
	}
}

// A call made again under its name, while the first one is outside of its turn, has no effect of its own.
func TestOnceOutsideOfTheTurn(t *testing.T) {
	var r *rig
	var again error
	var inside atomic.Int64
	call := func() (string, error) {
		res, err := r.CallInstance(context.Background(), app, runtime.InstanceCall{Agent: "a", Key: "k", Function: "slow", Once: "name"})
		return string(res.Output.Body), err
	}
	r = newRig(t, map[string]runtimetest.Func{"slow": leaving(func(context.Context, host.Call) error {
		if inside.Add(1) == 1 {
			_, again = call()
		}
		return nil
	})}, nil)
	first, err := call()
	if err != nil || first != "2" || inside.Load() != 1 || agent.KindOf(again) != agent.Conflict {
		t.Errorf("first %s, %v; again: %v; %d were made", first, err, again, inside.Load())
	}
	if later, err := call(); later != "2" || err != nil {
		t.Errorf("later: %s, %v", later, err)
	}
}

// What cannot be undone leaves after the commit of what was changed before it: agents' state, the end of a child.
func TestGates(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"kv": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if _, err := count(ctx, c, "n"); err != nil {
				return agent.Payload{}, err
			}
			edit := abi.StateEdit{Key: "told", StateValue: abi.StateValue{JSON: abi.Raw("1")}}
			if _, err := ask[abi.StateVersion](ctx, c, abi.CallStateSet, edit); err != nil {
				return agent.Payload{}, err
			}
			return agent.Payload{}, errors.New("undone")
		},
		"child": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: "c", Function: "ok", Child: true})
			return agent.Payload{}, err
		},
		"end": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if _, err := count(ctx, c, "n"); err != nil {
				return agent.Payload{}, err
			}
			if _, err := ask[struct{}](ctx, c, abi.CallChildDelete, abi.ChildDelete{Key: "c"}); err != nil {
				return agent.Payload{}, err
			}
			return agent.Payload{}, errors.New("undone")
		},
		"ok":    func(context.Context, host.Call) (agent.Payload, error) { return agent.Payload{}, nil },
		"count": counting["count"],
	}, nil)
	r.grant(agent.Grants{State: &agent.StateGrant{}})
	if _, err := r.callInstance("k", "kv", ""); agent.KindOf(err) != agent.Failed {
		t.Fatal(err)
	}
	if got := r.mustCall("k", "count", ""); got != "2" {
		t.Errorf("others saw the agent's state before the instance had what led to it: %s", got)
	}
	r.mustCall("p", "child", "")
	if _, err := r.callInstance("p", "end", ""); agent.KindOf(err) != agent.Failed {
		t.Fatal(err)
	}
	if got := r.mustCall("p", "count", ""); got != "2" {
		t.Errorf("a child was ended before its parent had what led to that: %s", got)
	}
}

// Times that overflow, or that no alarm can have, are refused where they are said.
func TestTimesOfAlarms(t *testing.T) {
	a := &alarmed{}
	r := newRig(t, a.funcs(), nil)
	for _, in := range []string{
		`{"delay":9300000000000}`, `{"delay":9223372036854775807}`, `{"every":18446744075000}`, `{"every":9223372036854775807}`,
		`{"at":8640000000000000}`, `{"at":253402214400000}`, `{"delay":1,"retry":{"delay":9300000000000}}`, `{"delay":1,"retry":{"max_delay":9223372036854775807}}`,
	} {
		if _, err := r.callInstance("k", "set", in); err == nil || agent.KindOf(err) == agent.Internal || strings.Contains(err.Error(), "internal") {
			t.Errorf("%s: %v", in, err)
		}
	}
	for _, in := range []string{`{"delay":3153600000000}`, `{"at":253402214399000}`, `{"every":3153600000000}`} {
		if _, err := r.callInstance("k", "set", in); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// Code that always leaves a transaction open is tried as often as code that throws, and no more; a message to it is not stuck.
func TestOpenTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, heard := 0, 0
		open := func(ctx context.Context, c host.Call) (agent.Payload, error) {
			opened++
			_, err := ask[abi.SQLRows](ctx, c, abi.CallStorageSQL, abi.SQL{Query: "BEGIN"})
			return agent.Payload{}, err
		}
		set := (&alarmed{}).funcs()["set"]
		r := newRig(t, map[string]runtimetest.Func{
			"open": open, "set": set,
			"send": func(ctx context.Context, c host.Call) (agent.Payload, error) {
				for _, fn := range []string{"open", "hear"} {
					if _, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: "to", Function: fn, Send: true}); err != nil {
						return agent.Payload{}, err
					}
				}
				return agent.Payload{}, nil
			},
			"hear": func(context.Context, host.Call) (agent.Payload, error) { heard++; return agent.Payload{}, nil },
		}, &runtime.Options{})
		stop := r.start()
		r.mustCall("k", "set", `{"name":"x","method":"open","delay":1000,"retry":{"attempts":3,"delay":1000}}`)
		wait(time.Hour)
		list, _, err := r.Alarms(t.Context(), app, "a", "k", "", 0)
		if opened != 3 || err != nil || len(list) != 1 || !list[0].Dead || !strings.Contains(list[0].Error, "transaction") {
			t.Errorf("%d attempts, %+v, %v", opened, list, err)
		}
		opened = 0
		r.mustCall("from", "send", "")
		wait(time.Hour)
		if opened != 1 || heard != 1 {
			t.Errorf("the message was tried %d times, the one after it came %d times", opened, heard)
		}
		stop()
	})
}

// A message that comes while its receiver's quota is used up is not lost.
func TestMessagesWaitForQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := 0
		r := newRig(t, map[string]runtimetest.Func{
			"send": func(ctx context.Context, c host.Call) (agent.Payload, error) {
				_, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: "to", Function: "hear", Send: true})
				return agent.Payload{}, err
			},
			"hear": func(ctx context.Context, c host.Call) (agent.Payload, error) {
				if heard++; heard < 3 {
					return agent.Payload{}, agent.Exceeded(agent.LimitQuota, "used up")
				}
				return number(count(ctx, c, "n"))
			},
		}, &runtime.Options{})
		stop := r.start()
		r.mustCall("from", "send", "")
		wait(time.Minute)
		if page, _, err := r.ListStorage(t.Context(), app, "a", "to", agent.StateRange{}); err != nil || len(page) != 1 || heard != 3 {
			t.Errorf("heard %d times, %+v, %v", heard, page, err)
		}
		stop()
	})
}

// However many commits its turns have, an instance keeps the newest of its events only.
func TestEventsAreTrimmed(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"emit": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			for i := range 200 {
				if _, err := ask[struct{}](ctx, c, abi.CallEmit, abi.Emit{Name: "e", Data: abi.Raw("1")}); err != nil {
					return agent.Payload{}, err
				}
				if i == 100 { // a commit in the middle
					if _, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: "other", Function: "ok"}); err != nil {
						return agent.Payload{}, err
					}
				}
			}
			return agent.Payload{}, nil
		},
		"ok": func(context.Context, host.Call) (agent.Payload, error) { return agent.Payload{}, nil },
	}, nil)
	for range 70 {
		r.mustCall("k", "emit", "")
	}
	first, last, err := r.store.Bounds(t.Context(), r.ownLog("k"))
	if err != nil || last < 14_000 || last-first > 12_000 {
		t.Errorf("events %d to %d, %v", first, last, err)
	}
}

func (r *rig) ownLog(key string) store.Log {
	r.t.Helper()
	a, err := r.store.Agent(r.t.Context(), app, "a")
	if err != nil {
		r.t.Fatal(err)
	}
	return store.InstanceLog(instance.ID{App: app, Agent: a.ID, Key: key}, "events")
}

// Answers of any size can be kept or are known not to be; and they do not take the room of what the code keeps.
func TestAnswersThatAreKept(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"say": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			n := 0
			_, _ = fmt.Sscan(string(c.Input.Body), &n)
			return agent.Text(strings.Repeat("x", n)), nil
		},
		"count": counting["count"],
	}, nil)
	say := func(once string, n int) (int, error) {
		res, err := r.CallInstance(t.Context(), app, runtime.InstanceCall{Agent: "a", Key: "k", Function: "say", Input: agent.Text(fmt.Sprint(n)), Once: once})
		return len(res.Output.Body), err
	}
	for n := 90 << 10; n <= 100<<10; n += 1 << 9 {
		if got, err := say(fmt.Sprint("size ", n), n); err != nil || got != n {
			t.Errorf("an answer of %d bytes: %d, %v", n, got, err)
		}
	}
	for i := range 300 {
		if _, err := say(fmt.Sprint("many ", i), 80<<10); err != nil {
			t.Fatal(i, err)
		}
	}
	if got := r.mustCall("k", "count", ""); got != "1" {
		t.Errorf("counted to %s", got)
	}
}

// All instances together keep so much of SQL in memory; past that, each is closed when its turn is over.
func TestSQLInMemory(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"sql": func(ctx context.Context, c host.Call) (agent.Payload, error) {
		out, err := ask[abi.SQLRows](ctx, c, abi.CallStorageSQL, abi.SQL{Query: string(c.Input.Body)})
		return agent.Text(fmt.Sprint(len(out.Rows))), err
	}}, nil)
	r.mustCall("k", "sql", "CREATE TABLE t (x)")
	held := r.SQLHeld().Load()
	if held <= 0 {
		t.Fatalf("%d bytes are held", held)
	}
	r.mustCall("k", "sql", "INSERT INTO t VALUES (1)")
	r.SQLHeld().Add(1 << 30) // others hold much
	if got := r.mustCall("k", "sql", "SELECT * FROM t"); got != "1" {
		t.Errorf("%s rows", got)
	}
	r.mustCall("k2", "sql", "CREATE TABLE t (x)")
	if now := r.SQLHeld().Load(); now != 1<<30 {
		t.Errorf("%d bytes are held beside those of others", now-1<<30)
	}
	r.SQLHeld().Add(-1 << 30)
	if got := r.mustCall("k", "sql", "SELECT * FROM t"); got != "1" {
		t.Errorf("opened again: %s rows", got)
	}
}
