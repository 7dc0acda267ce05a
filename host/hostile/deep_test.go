package hostile_test

import (
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// deepSources nest so deeply that a parser that calls itself for each level fills its stack, which ends a Go process.
var deepSources = map[string]agent.Source{
	"parentheses": script("export const a = " + strings.Repeat("(", 400_000)),
	"arrays":      script("export const a = " + strings.Repeat("[", 400_000)),
	"types":       script("type A = " + strings.Repeat("(", 400_000)),
	"JSON":        upload("a.js", `import x from "./x.json"; export const y = x`, "x.json", strings.Repeat("[", 400_000)),
}

// TestDeepSources prepares each in a process of its own: it must be refused, and the process must live.
func TestDeepSources(t *testing.T) {
	const which = "SKEP_DEEP_SOURCE"
	if src, ok := deepSources[os.Getenv(which)]; ok {
		debug.SetMaxStack(64 << 20) // of 1 GiB, so that it does not take long
		_, err := open(t).host.Prepare(t.Context(), host.Who{}, src, nil)
		if k := agent.KindOf(err); err == nil || k != agent.Invalid && k != agent.Exhausted {
			t.Errorf("ended as %v", err)
		}
		return
	}
	for name := range deepSources {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeepSources$")
			cmd.Env = append(os.Environ(), which+"="+name)
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
			default:
				t.Errorf("%v\n%.2000s", err, out)
			}
		})
	}
}
