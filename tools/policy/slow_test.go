package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// TestHugeCalls bounds the time that a hostile call takes to be judged.
func TestHugeCalls(t *testing.T) {
	var b strings.Builder
	b.WriteString("rules:\n")
	for range 50 {
		b.WriteString("  - deny s.run(git * push * --force * x * y)\n  - deny s.run(path=/etc/**)\n  - deny s.*(*=*a*b*c*d*)\n")
	}
	p := mustParse(t, b.String()).Guard("/var/lib/skep")
	text := func(s string) string {
		b, _ := json.Marshal(map[string]any{"command": s, "path": s})
		return string(b)
	}
	for name, args := range map[string]string{
		"many commands":    text(strings.Repeat("git a -b c;", 5000)),
		"many words":       text("git " + strings.Repeat("push -x $y ", 4000)),
		"many flags":       text("git " + strings.Repeat("-x ", 400) + strings.Repeat("push ", 100)),
		"deep":             text(strings.Repeat("$(", 90) + "a" + strings.Repeat(")", 90)),
		"wrappers":         text(strings.Repeat("sudo ", 10000) + "a"),
		"quoted in quotes": text(strings.Repeat("bash -c '", 500)),
		"many keys":        `{"x":{` + strings.TrimSuffix(strings.Repeat(`"command":"git push",`, 1), ",") + `},"l":[` + strings.TrimSuffix(strings.Repeat(`{"command":"git a; git b"},`, 20000), ",") + `]}`,
		"long path":        `{"path":"` + strings.Repeat("../", 1<<18) + `"}`,
		"percent":          `{"path":"` + strings.Repeat("%25", 2000) + `"}`,
		"megabytes":        `{"x":"` + strings.Repeat("ab", 1<<18) + `"}`,
	} {
		start := time.Now()
		d := p.Judge(Call{Tool: agent.Tool{Name: "s.run"}, Args: json.RawMessage(args)})
		if took := time.Since(start); took > 5*time.Second || d.Verdict == agent.Allow {
			t.Errorf("%s: %s after %s", name, d.Verdict, took)
		} else {
			t.Logf("%s: %s after %s", name, d.Verdict, took)
		}
	}
}
