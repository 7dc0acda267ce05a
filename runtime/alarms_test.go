package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
)

// alarmed has methods that set alarms and note when they were called.
type alarmed struct {
	calls []string
	fail  map[string]int // by payload, how many calls fail
	began time.Time
}

func (a *alarmed) funcs() map[string]runtimetest.Func {
	note := func(ctx context.Context, c host.Call) (agent.Payload, error) {
		what := string(c.Input.Body)
		a.calls = append(a.calls, fmt.Sprintf("%s@%v", what, time.Since(a.began)))
		if a.fail[what] > 0 {
			a.fail[what]--
			_, _ = count(ctx, c, "n")
			return agent.Payload{}, errors.New("not now")
		}
		return number(count(ctx, c, "n"))
	}
	return map[string]runtimetest.Func{
		"note": note, "onAlarm": note,
		"set": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			var in abi.AlarmSet
			if err := decode(c.Input.Body, &in); err != nil {
				return agent.Payload{}, err
			}
			out, err := ask[abi.Alarm](ctx, c, abi.CallAlarmSet, in)
			return agent.Text(out.Name), err
		},
		"cancel": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			out, err := ask[abi.AlarmCancelled](ctx, c, abi.CallAlarmCancel, abi.AlarmCancel{Name: string(c.Input.Body)})
			return agent.Text(fmt.Sprint(out.Cancelled)), err
		},
		"list": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			var names []string
			for q := (abi.AlarmList{Limit: 2}); ; {
				out, err := ask[abi.Alarms](ctx, c, abi.CallAlarmList, q)
				if err != nil {
					return agent.Payload{}, err
				}
				for _, x := range out.Alarms {
					names = append(names, x.Name)
				}
				if q.After = out.After; out.After == "" {
					return agent.Text(strings.Join(names, " ")), nil
				}
			}
		},
	}
}

// inBubble runs a test whose time passes as fast as it can.
func inBubble(t *testing.T, a *alarmed, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, a.funcs(), &runtime.Options{})
		a.began = time.Now()
		stop := r.start()
		test(t, r)
		stop()
	})
}

func wait(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func TestAlarms(t *testing.T) {
	a := &alarmed{fail: map[string]int{`"r"`: 2}}
	inBubble(t, a, func(t *testing.T, r *rig) {
		r.mustCall("k", "set", `{"method":"note","payload":"d","delay":1500}`)
		r.mustCall("k", "set", `{"method":"note","payload":"d","delay":1500}`) // the same
		r.mustCall("k", "set", `{"name":"moved","payload":"m","delay":1000}`)
		r.mustCall("k", "set", `{"name":"moved","payload":"m2","delay":3000}`)
		r.mustCall("k", "set", `{"name":"kept","method":"note","payload":"k","delay":2000}`)
		r.mustCall("k", "set", `{"name":"kept","method":"note","payload":"k2","delay":1,"keep":true}`)
		r.mustCall("k", "set", `{"name":"gone","method":"note","payload":"g","delay":500}`)
		r.mustCall("k", "set", `{"name":"retry","method":"note","payload":"r","delay":10000,"retry":{"delay":1000}}`)
		if got := r.mustCall("k", "cancel", "gone") + r.mustCall("k", "cancel", "gone"); got != "truefalse" {
			t.Errorf("cancelled: %s", got)
		}
		if got := strings.Fields(r.mustCall("k", "list", "")); len(got) != 4 || !slices.Contains(got, "kept") {
			t.Errorf("alarms %q", got)
		}
		wait(20 * time.Second)
		want := []string{`"d"@1.5s`, `"k"@2s`, `"m2"@3s`, `"r"@10s`, `"r"@11s`, `"r"@13s`}
		if !slices.Equal(a.calls, want) {
			t.Errorf("calls %q, want %q", a.calls, want)
		}
		page, _, err := r.ListStorage(t.Context(), app, "a", "k", agent.StateRange{})
		if err != nil || string(page[0].Value.Body) != "4" {
			t.Errorf("what failed is not undone: %s, %v", page[0].Value.Body, err)
		}
		if got := r.mustCall("k", "list", ""); got != "" {
			t.Errorf("alarms %q are left", got)
		}
	})
}

func TestDeadLetter(t *testing.T) {
	a := &alarmed{fail: map[string]int{`"x"`: 3}}
	inBubble(t, a, func(t *testing.T, r *rig) {
		r.mustCall("k", "set", `{"name":"x","method":"note","payload":"x","delay":1000,"retry":{"attempts":3,"delay":1000,"max_delay":1500}}`)
		wait(time.Minute)
		if want := []string{`"x"@1s`, `"x"@2s`, `"x"@3.5s`}; !slices.Equal(a.calls, want) {
			t.Errorf("calls %q, want %q", a.calls, want)
		}
		list, _, err := r.Alarms(t.Context(), app, "a", "k", "", 0)
		if err != nil || len(list) != 1 || !list[0].Dead || list[0].Attempt != 3 || list[0].Error != "not now" {
			t.Fatalf("%+v, %v", list, err)
		}
		if _, err := r.RetryAlarm(t.Context(), app, "a", "k", "x"); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		if len(a.calls) != 4 {
			t.Errorf("it was not run again: %q", a.calls)
		}
		if list, _, _ := r.Alarms(t.Context(), app, "a", "k", "", 0); len(list) != 0 {
			t.Errorf("%+v is left", list)
		}
		if got := r.instanceLog("k"); !slices.Equal(got, []string{"instance.created", "alarm.failed", "alarm.fired"}) {
			t.Errorf("events %q", got)
		}
	})
}

func TestRepeating(t *testing.T) {
	a := &alarmed{fail: map[string]int{}}
	inBubble(t, a, func(t *testing.T, r *rig) {
		r.mustCall("k", "set", `{"method":"note","payload":"e","every":10000}`)
		wait(5 * time.Second)
		r.mustCall("k", "set", `{"method":"note","payload":"e","every":10000}`) // keeps its time
		r.mustCall("k", "set", `{"name":"c","method":"note","payload":"c","cron":"0 0 1 * *","zone":"Europe/Berlin"}`)
		wait(30 * time.Second)
		if want := []string{`"e"@10s`, `"e"@20s`, `"e"@30s`}; !slices.Equal(a.calls, want) {
			t.Errorf("calls %q, want %q", a.calls, want)
		}
		list, _, err := r.Alarms(t.Context(), app, "a", "k", "", 0)
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, x := range list {
			if x.Name == "c" && x.At.Format("02 15:04") != "31 23:00" {
				t.Errorf("midnight of the first in Berlin is %v", x.At)
			}
		}
	})
}

func TestAlarmsRefused(t *testing.T) {
	a := &alarmed{}
	r := newRig(t, a.funcs(), nil)
	for in, want := range map[string]string{
		`{"method":"none"}`:                    "the code has no",
		`{"method":"skep:connect"}`:            "the code has no",
		`{"at":1,"delay":1}`:                   "one of",
		`{"every":999}`:                        "too short",
		`{"cron":"x"}`:                         "not valid",
		`{"delay":-1}`:                         "below 0",
		`{"delay":1,"overlap":"x"}`:            "overlap",
		`{"delay":1,"missed":"x"}`:             "missed",
		`{"delay":1,"retry":{"attempts":101}}`: "1 to 100 times",
		`{"delay":1,"name":"` + strings.Repeat("x", 127) + `"}`:       "more than 126",
		`{"delay":1,"payload":"` + strings.Repeat("x", 64<<10) + `"}`: "more than 65536",
	} {
		if _, err := r.callInstance("k", "set", in); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", in, err, want)
		}
	}
}

// An instance keeps the newest dead letters, and its alarms have room beside them.
// Dead letters of all instances are on pages that end with an instance.
func TestDeadLettersOfAllInstances(t *testing.T) {
	a := &alarmed{fail: map[string]int{`"x"`: 100}}
	inBubble(t, a, func(t *testing.T, r *rig) {
		for _, key := range []string{"a", "b", "c", "d"} {
			for _, name := range []string{"one", "two"} {
				payload := "x"
				if key == "b" {
					payload = "fine"
				}
				r.mustCall(key, "set", fmt.Sprintf(`{"name":%q,"method":"note","payload":%q,"delay":1000,"retry":{"attempts":1}}`, name, payload))
			}
			r.mustCall(key, "set", `{"name":"later","method":"note","delay":3600000}`)
		}
		wait(time.Minute)
		for limit, want := range map[int]string{0: "a/one a/two c/one c/two d/one d/two", 1: "a/one a/two | c/one c/two | d/one d/two", 3: "a/one a/two c/one c/two | d/one d/two"} {
			var pages []string
			for p := (agent.Page{Limit: limit}); ; {
				list, next, err := r.DeadLetters(t.Context(), app, "a", p)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, x := range list {
					if !x.Dead || x.Error != "not now" {
						t.Errorf("%+v", x)
					}
					names = append(names, x.Key+"/"+x.Name)
				}
				pages = append(pages, strings.Join(names, " "))
				if p.After = next; next == "" {
					break
				}
			}
			if got := strings.Join(pages, " | "); got != want {
				t.Errorf("by pages of %d: %q, want %q", limit, got, want)
			}
		}
		if n := r.Stats().DeadAlarms; n != 6 {
			t.Errorf("%d alarms are counted as dead", n)
		}
		a.fail[`"x"`] = 0
		if _, err := r.RetryAlarm(t.Context(), app, "a", "c", "one"); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if list, _, err := r.DeadLetters(t.Context(), app, "a", agent.Page{After: "b"}); err != nil || len(list) != 3 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestDeadLettersAreBounded(t *testing.T) {
	a := &alarmed{fail: map[string]int{}}
	inBubble(t, a, func(t *testing.T, r *rig) {
		const most = 1000
		for i := range most + 2 {
			a.fail[fmt.Sprintf(`"%d"`, i)] = 1
			r.mustCall("k", "set", fmt.Sprintf(`{"name":"%d","method":"note","payload":"%d","delay":%d,"retry":{"attempts":1}}`, i, i, 1000+i))
		}
		wait(time.Minute)
		dead := 0
		for after := ""; ; {
			list, next, err := r.Alarms(t.Context(), app, "a", "k", after, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				if dead++; !x.Dead || x.Name == "0" || x.Name == "1" {
					t.Errorf("%+v", x)
				}
			}
			if after = next; next == "" {
				break
			}
		}
		if dead != most {
			t.Errorf("%d dead letters are kept", dead)
		}
	})
}
