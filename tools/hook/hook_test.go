package hook

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/policy"
)

// script is a hook that runs a script of sh.
func script(when policy.When, text string) policy.Hook {
	return policy.Hook{When: when, Text: when.String() + " *: test", From: "policy:1", Command: []string{"/bin/sh", "-c", text}, Timeout: 20 * time.Second}
}

func TestPrograms(t *testing.T) {
	in := Input{Hook: "before", App: "default", Agent: "bot", Tool: "fs.write", Effect: agent.Modify, Args: json.RawMessage(`{"path":"/tmp/x"}`)}
	for _, c := range []struct {
		name, text string
		when       policy.When
		want       agent.Verdict
		reason     string
	}{
		{"no answer", `cat >/dev/null`, policy.Before, agent.Allow, ""},
		{"pass", `echo '{"decision":"pass","note":"seen"}'`, policy.Before, agent.Allow, ""},
		{"allow is no decision", `echo '{"decision":"allow"}'`, policy.Before, agent.Deny, "a hook says pass, ask or deny"},
		{"ask", `echo '{"decision":"ask","reason":"who?"}'`, policy.Before, agent.Ask, "who?"},
		{"ask after", `echo '{"decision":"ask","reason":"who?"}'`, policy.After, agent.Deny, "who?"},
		{"deny", `echo '{"decision":"deny","reason":"no"}'`, policy.Before, agent.Deny, "no"},
		{"deny without a reason", `echo '{"decision":"deny"}'`, policy.Before, agent.Deny, "no more than deny"},
		{"fails", `echo broken >&2; exit 3`, policy.Before, agent.Deny, "exit status 3: broken"},
		{"no JSON", `echo yes`, policy.Before, agent.Deny, "its answer is not"},
		{"misspelt", `echo '{"desicion":"deny"}'`, policy.Before, agent.Deny, "desicion"},
		{"two values", `echo '{} {}'`, policy.Before, agent.Deny, "more than one"},
		{"too much", `head -c 100000 /dev/zero`, policy.Before, agent.Deny, "more than 65536 bytes"},
		{"is told the call", `grep -q '"tool":"fs.write","effect":"modify","args":{"path":"/tmp/x"}' && echo '{"decision":"deny","reason":"told"}'`, policy.Before, agent.Deny, "told"},
		{"has no environment", `env | grep -q SKEP_TEST && exit 1; exit 0`, policy.Before, agent.Allow, ""},
		{"does not read its input", `exec <&-; echo '{"decision":"ask","reason":"deaf"}'`, policy.Before, agent.Ask, "deaf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("SKEP_TEST", "secret")
			got, err := Run(t.Context(), []policy.Hook{script(c.when, c.text)}, in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != c.want || !strings.Contains(got.Reason, c.reason) || (got.Rule == "") != (c.want == agent.Allow) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTimeoutKillsTheGroup(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "alive")
	h := script(policy.Before, `(trap '' TERM; while :; do echo x >>`+pipe+`; sleep 0.01; done) & sleep 100`)
	h.Timeout = 300 * time.Millisecond
	start := time.Now()
	got, err := Run(t.Context(), []policy.Hook{h}, Input{}, nil)
	if err != nil || got.Verdict != agent.Deny || !strings.Contains(got.Reason, "took longer than 300ms") {
		t.Fatalf("%+v %v", got, err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	size := func() int64 {
		i, err := os.Stat(pipe)
		if err != nil {
			return 0
		}
		return i.Size()
	}
	for deadline, last, same := time.Now().Add(10*time.Second), size(), 0; same < 20; { // the child writes each 10 ms while it lives
		<-time.After(20 * time.Millisecond)
		if now := size(); now != last {
			last, same = now, 0
		} else {
			same++
		}
		if time.Now().After(deadline) {
			t.Fatal("the child of a hook lives on")
		}
	}
}

func TestAgents(t *testing.T) {
	hooks := []policy.Hook{
		{When: policy.Before, Text: "a", Agent: "guard", Function: "check"},
		{When: policy.Before, Text: "b", From: "policy:3", Agent: "guard", Function: "no"},
		{When: policy.Before, Text: "c", Agent: "guard", Function: "never"},
	}
	var called []string
	out, err := Run(t.Context(), hooks, Input{Tool: "a.b"}, func(_ context.Context, agent, function string, in []byte) ([]byte, error) {
		called = append(called, agent+"."+function)
		if function == "no" {
			return []byte(`{"decision":"deny","reason":"because","note":"n2"}`), nil
		}
		return []byte(`{"decision":"ask","note":"n1"}`), nil
	})
	if err != nil || out.Verdict != agent.Deny || out.Rule != "hook b" || out.From != "policy:3" || strings.Join(out.Notes, " ") != "n1 n2" || strings.Join(called, " ") != "guard.check guard.no" {
		t.Errorf("%+v %v %v", out, err, called)
	}
	out, err = Run(t.Context(), hooks[:1], Input{}, func(context.Context, string, string, []byte) ([]byte, error) {
		return nil, errors.New("gone")
	})
	if err != nil || out.Verdict != agent.Deny || !strings.Contains(out.Reason, "gone") {
		t.Errorf("%+v %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, hooks, Input{}, func(ctx context.Context, _, _ string, _ []byte) ([]byte, error) { return nil, ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"decision":"deny","reason":"x","note":"y"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parse(b)
		if err == nil && a.Decision != "" && a.Decision != "pass" && a.Decision != "ask" && a.Decision != "deny" {
			t.Fatal(a)
		}
	})
}
