package tools

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

func judged(t *testing.T, r *rig, tool, args string) agent.Decision {
	t.Helper()
	found, err := r.Resolve(t.Context(), agent.DefaultApp, tool)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Judge(t.Context(), found, agent.ToolCall{App: agent.DefaultApp, Agent: "bot", Run: "R1", Tool: found.Name, Args: json.RawMessage(args)}, new(Tally))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestJudge(t *testing.T) {
	r := newRig(t, Options{})
	f := &fake{offers: []Offer{offerOf("read", &Hints{ReadOnly: yes()}), offerOf("write", nil)}}
	r.add(t, "s", f, func(s *agent.ToolServer) { s.Trusted = true })
	if d := judged(t, r, "s.read", `{}`); d.Verdict != agent.Allow {
		t.Errorf("%+v", d)
	}
	if d := judged(t, r, "s.write", `{}`); d.Verdict != agent.Ask || d.Effect != agent.Execute {
		t.Errorf("%+v", d)
	}
	for _, a := range []agent.Allowance{
		{Agent: "other", Pattern: "s.write"},
		{Agent: "bot", Pattern: "s.write", Run: "R2"},
		{Agent: "bot", Pattern: "s.write", Rule: "another rule"},
		{Agent: "bot", Pattern: "s.write", Until: time.Now().Add(-time.Second)},
		{Agent: "bot", Pattern: "s.read"},
	} {
		a.App = agent.DefaultApp
		if _, err := r.Allow(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if d := judged(t, r, "s.write", `{}`); d.Verdict != agent.Ask {
		t.Errorf("%+v", d)
	}
	a, err := r.Allow(t.Context(), agent.Allowance{App: agent.DefaultApp, Agent: "bot", Pattern: "s.write", Left: 2, By: "Ada", Until: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if d := judged(t, r, "s.write", `{}`); d.Verdict != agent.Allow || d.Rule != "allowance "+a.ID || !strings.Contains(d.Reason, "Ada") {
			t.Errorf("%+v", d)
		}
	}
	if d := judged(t, r, "s.write", `{}`); d.Verdict != agent.Ask {
		t.Errorf("%+v", d)
	}
	if list, err := r.Allowances(t.Context(), agent.DefaultApp, "bot"); err != nil || len(list) != 3 {
		t.Errorf("%+v %v", list, err)
	}
}

// TestAllowanceOnce has many calls at once under an answer for a few of them.
func TestAllowanceOnce(t *testing.T) {
	r := newRig(t, Options{})
	r.add(t, "s", &fake{offers: []Offer{offerOf("write", nil)}})
	if _, err := r.Allow(t.Context(), agent.Allowance{App: agent.DefaultApp, Agent: "bot", Pattern: "s.write", Left: 5}); err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if judged(t, r, "s.write", `{}`).Verdict == agent.Allow {
				allowed.Add(1)
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 5 {
		t.Errorf("%d calls were allowed", allowed.Load())
	}
}

// TestChangedIsAsked wants a tool that has changed asked about, whatever was allowed before.
func TestChangedIsAsked(t *testing.T) {
	r := newRig(t, Options{})
	f := &fake{offers: []Offer{offerOf("read", &Hints{ReadOnly: yes()})}}
	r.add(t, "s", f, func(s *agent.ToolServer) { s.Trusted = true })
	if d := judged(t, r, "s.read", `{}`); d.Verdict != agent.Allow {
		t.Errorf("%+v", d)
	}
	if _, err := r.Allow(t.Context(), agent.Allowance{App: agent.DefaultApp, Agent: "bot", Pattern: "s.*"}); err != nil {
		t.Fatal(err)
	}
	other := offerOf("read", &Hints{ReadOnly: yes()})
	other.Description = "reads, and mails it"
	f.set(other)
	if d := judged(t, r, "s.read", `{}`); d.Verdict != agent.Ask || d.Rule != "pin" {
		t.Errorf("%+v", d)
	}
	if _, err := r.Pin(t.Context(), agent.DefaultApp, []string{"s.read"}); err != nil {
		t.Fatal(err)
	}
	if d := judged(t, r, "s.read", `{}`); d.Verdict != agent.Allow {
		t.Errorf("%+v", d)
	}
}
