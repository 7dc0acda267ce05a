package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image"
)

// TestImageVerbs makes an image of what this machine has, lists it, makes it again and deletes it, as a person does.
func TestImageVerbs(t *testing.T) {
	t.Setenv("DOCKER_HOST", dockertest.Host(t))
	name := "skep-test/verbs-" + strings.ToLower(string(agent.NewSandboxID(time.Now())))
	skep := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := run(context.Background(), args, strings.NewReader(""), &out, &errOut); code != want {
			t.Fatalf("skep %q exits with %d, want %d\n%s%s", args, code, want, out.String(), errOut.String())
		}
		return out.String(), errOut.String()
	}
	t.Cleanup(func() {
		run(context.Background(), []string{"image", "delete", name}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	})

	out, steps := skep(0, "image", "build", name)
	if !strings.HasPrefix(out, "made image "+name+":latest (") || !strings.Contains(steps, "reading the programs of this machine\n") {
		t.Errorf("build says %q and %q", out, steps)
	}
	if out, _ = skep(0, "image", "build", name); !strings.HasPrefix(out, "there already, of the same files: image "+name) {
		t.Errorf("the second time it says %q", out)
	}
	if out, _ = skep(0, "image", "list"); !strings.HasPrefix(out, "NAME ") || !strings.Contains(out, "\n"+name+":latest ") {
		t.Errorf("list says\n%s", out)
	}
	out, _ = skep(0, "image", "list", "--json")
	var list struct{ Items []image.Image }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) == 0 {
		t.Errorf("as JSON it says %s (%v)", out, err)
	}
	if out, _ = skep(0, "image", "delete", name); out != "deleted image "+name+"\n" {
		t.Errorf("delete says %q", out)
	}
	if _, said := skep(exitCode(agent.NotFound), "image", "delete", name); !strings.Contains(said, "the engine has no image "+name) {
		t.Errorf("deleted twice it says %q", said)
	}
}
