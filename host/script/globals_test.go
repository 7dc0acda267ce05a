package script

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

func TestGlobals(t *testing.T) {
	text, err := os.ReadFile("testdata/globals.ts")
	if err != nil {
		t.Fatal(err)
	}
	a := load(t, files("globals.ts", "globals.ts", string(text)))
	var names []string
	if err := json.Unmarshal([]byte(result(t, a, Call{Function: "names"})), &names); err != nil || len(names) < 30 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			in, _ := json.Marshal(name)
			// Under a clock that stands still, the order of timers depends on their delays alone.
			now := func() time.Time { return time.Unix(1_700_000_000, 0) }
			if got := result(t, a, Call{Function: "run", Input: agent.JSON(in), Now: now}); got != "ok" {
				t.Error(got)
			}
		})
	}
}
