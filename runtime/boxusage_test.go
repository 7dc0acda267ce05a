package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store/ledger"
)

// What a task has used is among the files of its session, as the ledger has it: with the last call, whose end is written down after the CLI's.
func TestBoxUsage(t *testing.T) {
	l := (*ledger.Ledger)(nil)
	call := func(c *cliTurn, name, model string, in int64, micro *int64) (end func()) {
		run, _, _ := strings.Cut(c.prompt.Turn, "-")
		e := agent.UsageEvent{Kind: agent.UseModel, App: app, Agent: "coder", Run: agent.RunID(run), Outcome: agent.Succeeded, Model: &agent.ModelUse{
			Call: name, Provider: "p", Model: model, Source: agent.FromProvider, Tokens: agent.ModelTokens{Input: in, Output: 1}, Micro: micro,
		}}
		if err := l.Begin(e); err != nil {
			t.Error(err)
		}
		return func() {
			if err := l.Append(e); err != nil {
				t.Error(err)
			}
		}
	}
	late := make(chan func(), 1)
	w := newBoxWorld(t, allowEdits, "", agent.Cattle, func(c *cliTurn) {
		cost := int64(7)
		call(c, "1", "small", 10, &cost)()
		call(c, "2", "large", 100, nil)()
		late <- call(c, "3", "small", 20, &cost)
		c.write("a", "a")
	})
	var err error
	if l, err = ledger.Open(t.Context(), w.store, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	w.opts.Ledger = l
	w.Runtime = runtime.New(w.store, w.cells, &w.opts)
	w.yard.serve(w.Runtime)
	w.start()
	run := w.task(`"go"`, "")
	end := <-late
	w.untilTold(run, "turn.ended")
	end()
	out := w.outcome(run)
	if out.Used != "artifacts/"+string(run.ID)+"/usage.json" || out.Patch == "" {
		t.Fatalf("%+v", out)
	}
	var used struct {
		Run    agent.RunID
		Open   int
		Total  agent.ModelSum
		Models []struct {
			Provider, Model string
			agent.ModelSum
		}
		Sandbox struct {
			ID          agent.SandboxID
			Environment string
			Wall        time.Duration
		}
	}
	text := w.file(run, out.Used)
	if err := json.Unmarshal([]byte(text), &used); err != nil {
		t.Fatal(err)
	}
	if used.Run != run.ID || used.Open != 0 || used.Sandbox.ID == "" || used.Sandbox.Environment != "env@1" || used.Sandbox.Wall <= 0 || used.Sandbox.Wall > time.Minute {
		t.Errorf("%s", text)
	}
	cost := int64(14)
	if d := cmp.Diff(agent.ModelSum{Calls: 3, Tokens: agent.ModelTokens{Input: 130, Output: 3}, Micro: &cost, Unpriced: 1}, used.Total); d != "" {
		t.Errorf("in all: %s", d)
	}
	rows, err := l.Rows(t.Context(), ledger.Query{App: app, Run: run.ID, From: run.Created, To: time.Now(), By: ledger.ByProvider | ledger.ByModel})
	if err != nil || len(rows) != 2 || !strings.Contains(text, `"model": "large"`) {
		t.Fatalf("%+v, %v: %s", rows, err, text)
	}
	for i, r := range rows {
		if d := cmp.Diff(*r.Models, used.Models[i].ModelSum); d != "" || used.Models[i].Model != r.Model || used.Models[i].Provider != r.Provider {
			t.Errorf("%s is not as the ledger has it: %s", r.Model, d)
		}
	}
}
