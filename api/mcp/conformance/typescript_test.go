package conformance

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestTypeScript connects the official TypeScript client.
func TestTypeScript(t *testing.T) {
	node, _ := suite(t)
	r := serve(t)
	b, err := exec.CommandContext(t.Context(), node, "client.mjs", r.url+"/mcp", r.token).Output()
	if err != nil {
		if e, ok := err.(*exec.ExitError); ok {
			t.Fatalf("%v\n%s", err, e.Stderr)
		}
		t.Fatal(err)
	}
	var got struct {
		Server    string
		Tools     []string
		Add       struct{ Sum float64 }
		Failed    bool
		Templates int
		Progress  []string
		Execute   string
		Cancelled bool
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if got.Server != "skep" || !slices.Contains(got.Tools, "demo.add") || !slices.Contains(got.Tools, "execute") || got.Add.Sum != 42 || !got.Failed ||
		got.Templates != 1 || got.Execute != "10" || !got.Cancelled || !slices.Contains(got.Progress, "step 1") || !slices.Contains(got.Progress, "step 2") {
		t.Errorf("%s", b)
	}
	select {
	case <-r.demo.gone: // the run was cancelled, and the tool with it
	case <-time.After(30 * time.Second):
		t.Error("the tool was not cancelled")
	}
}
