package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/sandbox/dockertest"
)

// A brief round with each kind of database, one of them with cells in other processes: some tens of kills.
func TestKills(t *testing.T) {
	all := ""
	for _, c := range []struct{ store, isolation string }{{"badger", "inline"}, {"pebble", "process"}} {
		s := settings{
			length: 10 * time.Second, kills: 12, round: 12, flows: true, stores: []string{c.store}, isolation: []string{c.isolation}, seed: 1,
			program: program(t),
		}
		var out strings.Builder
		if err := run(t.Context(), s, &out); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		t.Log(out.String())
		all += out.String()
	}
	for _, want := range []string{"kills ", "effects ", "versions of states ", "frames ", "events told ", "events sent ", "calls that were paid "} {
		if !t.Failed() && !strings.Contains(all, want) { // else it has shown nothing
			t.Errorf("there is no %q in\n%s", want, all)
		}
	}
}

// Brief rounds of scripts of code mode, in whose middle servers die: no call of a tool is made twice, and no person is asked twice.
func TestKillsOfCode(t *testing.T) {
	for _, c := range []struct{ store, isolation string }{{"badger", "process"}, {"pebble", "inline"}} {
		s := settings{
			length: 30 * time.Second, kills: 4, round: 4, code: true, stores: []string{c.store}, isolation: []string{c.isolation}, seed: 3, program: program(t),
		}
		var out strings.Builder
		err := run(t.Context(), s, &out)
		if err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		for _, want := range []string{"scripts completed ", "effects ", "kills "} { // else it has shown nothing
			if err == nil && !strings.Contains(out.String(), want) {
				t.Errorf("%s: there is no %q in\n%s", c.store, want, out.String())
			}
		}
		t.Log(out.String())
	}
}

// A brief round of runs in boxes, in which servers, containers and drivers die: no event is lost or told twice, no run stays without an end, and no container
// is left.
func TestKillsOfBoxes(t *testing.T) {
	dockertest.Host(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, for drivers are killed from outside their containers")
	}
	s := settings{length: 20 * time.Second, kills: 4, round: 4, boxes: true, stores: []string{"badger"}, isolation: []string{"inline"}, seed: 4, program: program(t)}
	var out strings.Builder
	if err := run(t.Context(), s, &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"runs completed ", "approvals ", "kills of servers ", "kills of containers ", "kills of drivers "} {
		if !t.Failed() && !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
	t.Log(out.String())
}

// A brief storm: many alarms within seconds, with a kill in the middle.
func TestStorm(t *testing.T) {
	s := settings{storm: 2000, within: 6 * time.Second, stores: []string{"badger"}, isolation: []string{"inline"}, program: program(t)}
	var out strings.Builder
	if err := run(t.Context(), s, &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}

// built is removed by TestMain.
var built string

func TestMain(m *testing.M) {
	beLedger()
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

// program builds skep once.
func program(t *testing.T) string {
	t.Helper()
	if built == "" {
		dir, err := os.MkdirTemp("", "skep-crash-test-")
		if err != nil {
			t.Fatal(err)
		}
		s := settings{dir: dir}
		if err := s.build(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		built = s.program
	}
	return built
}

// The model finds what it is for: a check that is fed a lost, a doubled and a reordered effect says so.
func TestModelFinds(t *testing.T) {
	for name, c := range map[string]struct {
		ops  []*op
		at   map[string]int
		want string
	}{
		"lost":    {[]*op{{name: "a", outcome: done}}, map[string]int{}, "is lost"},
		"undone":  {[]*op{{name: "a", outcome: undone}}, map[string]int{"a": 1}, "was refused and took effect"},
		"thrown":  {[]*op{{name: "a", kind: failing}}, map[string]int{"a": 1}, "threw, and took effect"},
		"number":  {[]*op{{name: "a", outcome: done, n: 2}}, map[string]int{"a": 1}, "as number 2"},
		"alarm":   {[]*op{{name: "a", kind: alarmed, outcome: done}}, map[string]int{"a": 1}, "alarm a"},
		"beat":    {[]*op{{name: "a", kind: beating, outcome: done}}, map[string]int{"a": 1, "beat 1 a": 2, "beat 3 a": 3}, "beat 2 a"},
		"outside": {[]*op{{name: "a", kind: telling, outcome: done}}, map[string]int{"a": 1, "a/b": 2}, "told the outside world 0 times"},
	} {
		r := &round{world: &world{came: map[string]int{}}, tally: tally{}}
		for _, o := range c.ops {
			r.op(o, c.at, nil, false)
		}
		if len(r.wrong) != 1 || !strings.Contains(r.wrong[0], c.want) {
			t.Errorf("%s: %q, want %q", name, r.wrong, c.want)
		}
	}
	r := &round{ops: []*op{{name: "a", key: "x", to: []string{"y"}}, {name: "b", key: "x", to: []string{"y"}}}, tally: tally{}}
	at := map[string]map[string]int{"x": {"a": 1, "b": 2}}
	for _, names := range [][]string{{"message b", "message a"}, {"message a"}, {"message a", "message b", "message b"}} {
		r.wrong = nil
		if r.messages("y", names, at); len(r.wrong) != 1 {
			t.Errorf("%v: %q", names, r.wrong)
		}
	}
}
