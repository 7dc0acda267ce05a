package examples

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/host/wasi"
)

// instance answers the calls of modules as a host does, from memory and with time that passes at once.
type instance struct {
	mu      sync.Mutex
	now     time.Time
	storage map[string]abi.StateEntry
	alarms  []abi.AlarmSet
	done    []string // what other agents were asked for
	broken  string   // a function of theirs that fails
	journal []entry
	at      int // of the journal; below its length it is replayed
}

type entry struct{ asked, answer string }

func (i *instance) call(_ context.Context, name string, in []byte) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked := fmt.Sprintf("%s %s", name, in)
	if i.at < len(i.journal) {
		e := i.journal[i.at]
		if i.at++; e.asked != asked {
			return nil, agent.Errorf(agent.Conflict, "the run diverges: it asks %s, where it asked %s", asked, e.asked)
		}
		return []byte(e.answer), nil
	}
	out, err := i.answer(name, in)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(out)
	i.journal = append(i.journal, entry{asked, string(b)})
	i.at++
	return b, err
}

func (i *instance) answer(name string, in []byte) (any, error) {
	var q struct {
		abi.StateGet
		abi.StateBatch
		abi.StateList
		abi.StateEdit
		abi.Sleep
		Agent, Function string // of an abi.AgentCall
	}
	if len(in) > 0 {
		if err := json.Unmarshal(in, &q); err != nil {
			return nil, err
		}
	}
	switch name {
	case abi.CallSelf:
		return abi.Self{Agent: "a", Key: "k", Run: "r"}, nil
	case abi.CallStepBegin, abi.CallStepEnd, abi.CallEmit, abi.CallSocketSend:
		return nil, nil
	case abi.CallStorageGet:
		var out abi.StateEntries
		for _, k := range q.Keys {
			if e, ok := i.storage[k]; ok {
				out.Entries = append(out.Entries, e)
			}
		}
		return out, nil
	case abi.CallStorageList:
		var out abi.StateEntries
		for k, e := range i.storage {
			if strings.HasPrefix(k, q.Prefix) {
				out.Entries = append(out.Entries, e)
			}
		}
		return out, nil
	case abi.CallStorageSet, abi.CallStorageBatch:
		edits := []abi.StateEdit{q.StateEdit}
		for n, e := range q.Edits {
			edits = append(edits[:n], e.StateEdit)
		}
		for _, e := range edits {
			i.storage[e.Key] = abi.StateEntry{Key: e.Key, Version: 1, StateValue: e.StateValue}
		}
		return abi.StateVersion{Version: 1}, nil
	case abi.CallAlarmSet:
		var a abi.AlarmSet
		err := json.Unmarshal(in, &a)
		i.alarms = append(i.alarms, a)
		return abi.Alarm{Name: a.Name, Cron: a.Cron}, err
	case abi.CallSleep:
		i.now = i.now.Add(time.Duration(q.For) * time.Millisecond)
		return nil, nil
	case abi.CallWait:
		return abi.Waited{Data: abi.Raw(`{"ok":true,"by":"Ada"}`)}, nil
	case abi.CallAgent:
		if q.Function == i.broken {
			return nil, agent.Errorf(agent.Failed, "%s is down", q.Agent)
		}
		i.done = append(i.done, q.Function)
		return abi.AgentResult{Type: "text/plain", Output: []byte("c-1")}, nil
	}
	return nil, agent.Errorf(agent.Invalid, "the test has no call %s", name)
}

// load makes a module of an example ready.
func load(t *testing.T, wasm string) *extism.Agent {
	t.Helper()
	code, err := os.ReadFile(wasm)
	if err != nil {
		t.Fatal(err)
	}
	eng, err := cell.New(t.Context(), append(extism.Funcs(), wasi.Funcs()...), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	a, err := extism.Load(t.Context(), eng, code, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

func (i *instance) enter(t *testing.T, a *extism.Agent, function, in string) (string, error) {
	t.Helper()
	out, _, err := a.Call(t.Context(), extism.Call{
		Function: function, Input: agent.Payload{Type: agent.TypeJSON, Body: []byte(in)},
		Env: cell.Env{Calls: i.call, Random: rand.NewChaCha8([32]byte{1}), Now: func() time.Time {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.now
		}},
	})
	return string(out.Body), err
}

func newInstance() *instance {
	return &instance{now: time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC), storage: map[string]abi.StateEntry{}}
}

// TestGoWorkflowInCells runs the workflow in real cells: to its end, once more from its journal in a cell of another image, and to a
// failure that it takes back.
func TestGoWorkflowInCells(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a module")
	}
	readTree(t, "..")
	wasm := filepath.Join(t.TempDir(), "agent.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", wasm, "./go-workflow")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	const order = `{"item":"honey","count":3,"cents":25000}`
	shop, a := newInstance(), load(t, wasm)
	first, err := shop.enter(t, a, "fulfil", order)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(value(`{"charge":"c-1","approved":"Ada","shipped":"2030-01-02T09:00:00Z"}`), value(first)); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	if left, err := shop.enter(t, a, "left", "honey"); err != nil || left != "7" {
		t.Errorf("%s are left, %v", left, err)
	}

	shop.at = 0
	again, err := shop.enter(t, load(t, wasm), "fulfil", order)
	if err != nil || again != first || len(shop.done) != 2 {
		t.Errorf("replayed: %s, %v, done %v", again, err, shop.done)
	}

	sad := newInstance()
	sad.broken = "ship"
	if out, err := sad.enter(t, a, "fulfil", order); err == nil || !strings.Contains(err.Error(), `step "ship": warehouse is down`) {
		t.Errorf("got %s, %v", out, err)
	}
	if diff := cmp.Diff([]string{"charge", "refund"}, sad.done); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if left, err := sad.enter(t, a, "left", "honey"); err != nil || left != "10" {
		t.Errorf("%s are left, %v", left, err)
	}
}

// TestRustCounterInCells has the counter count and close a day in real cells, called by the names of its handlers.
func TestRustCounterInCells(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a module")
	}
	needs(t, "hello-rust")
	readTree(t, "..")
	target := t.TempDir()
	cmd := exec.Command("cargo", "build", "--offline", "--quiet", "--release", "--target", "wasm32-unknown-unknown")
	cmd.Dir, cmd.Env = "rust-counter", append(os.Environ(), "CARGO_TARGET_DIR="+target)
	if _, err := os.Stat("/usr/lib/rustlib/wasm32-unknown-unknown"); err == nil { // a distribution's has the target
		cmd.Path, cmd.Env = "/usr/bin/cargo", append(cmd.Env, "RUSTC=/usr/bin/rustc")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cargo build: %v\n%s", err, out)
	}
	a := load(t, filepath.Join(target, "wasm32-unknown-unknown", "release", "rust_counter.wasm"))
	counter := newInstance()
	for _, tt := range []struct{ function, in, want string }{
		{handler(t, a, "onStart"), "", ""},
		{"add", "2", "2"},
		{"add", "3", "5"},
		{"total", "", "5"},
		{handler(t, a, "onAlarm"), "", ""},
		{"total", "", "0"},
		{"days", "", "[[21914,5]]"},
	} {
		if got, err := counter.enter(t, a, tt.function, tt.in); err != nil || got != tt.want {
			t.Errorf("%s(%s) is %q, %v; want %q", tt.function, tt.in, got, err, tt.want)
		}
	}
	if len(counter.alarms) != 1 || counter.alarms[0].Cron != "@daily" {
		t.Errorf("alarms are %+v", counter.alarms)
	}
}

// handler finds a module's export for what its host calls.
func handler(t *testing.T, a *extism.Agent, name string) string {
	t.Helper()
	for _, want := range abi.HandlerNames(name) {
		for _, export := range a.Exports() {
			if export == want {
				return export
			}
		}
	}
	t.Fatalf("no handler %s among %v", name, a.Exports())
	return ""
}
