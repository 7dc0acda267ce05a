package image_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
)

func engine(t *testing.T) *image.Engine {
	t.Helper()
	e, err := image.Dial(dockertest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// unique is a name for an image of one test, which has it no more when the test ends.
func unique(t *testing.T, e *image.Engine) string {
	name := "skep-test/" + strings.ToLower(string(agent.NewSandboxID(time.Now()))) + ":latest"
	t.Cleanup(func() {
		if err := e.Delete(context.Background(), name); err != nil && agent.KindOf(err) != agent.NotFound {
			t.Error(err)
		}
	})
	return name
}

// run runs a command in a box without a network, as boxes are, and returns its output and its exit code.
func run(t *testing.T, name string, command ...string) (string, int64) {
	t.Helper()
	c := dockertest.Client(t, dockertest.Host(t))
	made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config:     &container.Config{Image: name, Cmd: command, User: "1000"},
		HostConfig: &container.HostConfig{NetworkMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := c.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}()
	ended := c.ContainerWait(t.Context(), made.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := c.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	var code int64
	select {
	case end := <-ended.Result:
		code = end.StatusCode
	case err := <-ended.Error:
		t.Fatal(err)
	}
	log, err := c.ContainerLogs(t.Context(), made.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, log); err != nil {
		t.Fatal(err)
	}
	return out.String(), code
}

func TestImageOfThisMachineRuns(t *testing.T) {
	name := imagetest.Tools(t)
	out, code := run(t, name, "sh", "-ec", `git --version; id -un; pwd; echo $HOME; command -v sh /bin/sh git
		stat -c '%a %U %n' /tmp /workspace /home/agent; touch /etc/x 2>&1 || echo read-only`)
	want := []string{"git version ", "agent\n/workspace\n/home/agent\n", "/bin/sh\n", "1777 root /tmp\n755 agent /workspace\n700 agent /home/agent\n",
		"Read-only file system\nread-only\n"}
	for _, part := range want {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in what it says (%d):\n%s", part, code, out)
		}
	}
}

func TestListReuseReplaceDelete(t *testing.T) {
	e := engine(t)
	name := unique(t, e)
	spec := image.Spec{Name: name, Base: image.Host, Programs: []string{"sh"}, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var steps []string
	var last image.Progress
	spec.Progress = func(p image.Progress) {
		if last = p; !slices.Contains(steps, p.Step) {
			steps = append(steps, p.Step)
		}
	}
	first, err := image.Build(t.Context(), e, spec)
	if err != nil {
		t.Fatal(err)
	}
	if first.Reused || first.Name != name || len(first.Manifest.Layer) != 64 || !first.Manifest.Created.Equal(spec.Now) || first.Manifest.Base != image.Host {
		t.Errorf("it made %+v", first)
	}
	if len(steps) != 4 || last.Total == 0 || last.Done != last.Total {
		t.Errorf("steps were %q, and at the end %d of %d bytes", steps, last.Done, last.Total)
	}
	if got := listed(t, e, name); got.ID != first.ID || got.Manifest.Layer != first.Manifest.Layer || got.Size == 0 {
		t.Errorf("the list has %+v", got)
	}

	spec.Now = spec.Now.Add(time.Hour)
	again, err := image.Build(t.Context(), e, spec)
	if err != nil || !again.Reused || again.ID != first.ID {
		t.Errorf("of the same files it made %+v (%v)", again, err)
	}
	spec.Programs = []string{"sh", "true"}
	other, err := image.Build(t.Context(), e, spec)
	if err != nil || other.Reused || other.ID == first.ID {
		t.Errorf("of other files it made %+v (%v)", other, err)
	}
	if err := e.Delete(t.Context(), first.ID); agent.KindOf(err) != agent.NotFound {
		t.Errorf("what has lost its name is still there: %v", err)
	}

	if err := e.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), name); agent.KindOf(err) != agent.NotFound {
		t.Errorf("deleted twice: %v", err)
	}
	if got := listed(t, e, name); got.ID != "" {
		t.Errorf("after it was deleted the list has %+v", got)
	}
}

func listed(t *testing.T, e *image.Engine, name string) image.Image {
	t.Helper()
	list, err := e.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range list {
		if im.Name == name {
			return im
		}
	}
	return image.Image{}
}

func TestDeleteWhatIsNotOursOrInUse(t *testing.T) {
	e, host := engine(t), dockertest.Host(t)
	foreign := dockertest.Image(t, host)
	if err := e.Delete(t.Context(), foreign); agent.KindOf(err) != agent.Denied {
		t.Errorf("an image that something else has made: %v", err)
	}

	name := unique(t, e)
	if _, err := image.Build(t.Context(), e, image.Spec{Name: name, Base: image.Host, Programs: []string{"sh"}}); err != nil {
		t.Fatal(err)
	}
	c := dockertest.Client(t, host)
	made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Image: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	if err := e.Delete(t.Context(), name); agent.KindOf(err) != agent.Conflict {
		t.Errorf("an image that is used: %v", err)
	}
}

func TestImageOnAnother(t *testing.T) {
	e := engine(t)
	base := imagetest.Tools(t)
	name := unique(t, e)
	spec := image.Spec{Name: name, Base: base, CLIs: []string{"claude@0.0.1"}, Cache: fakeCLI(t)}
	im, err := image.Build(t.Context(), e, spec)
	if err != nil {
		t.Fatal(err)
	}
	if im.Manifest.Base != base {
		t.Errorf("its base is %q", im.Manifest.Base)
	}
	if out, _ := run(t, name, "sh", "-c", "id -un; claude --version; ls -d /bin/sh"); !strings.HasPrefix(out, "agent\ngit version") {
		t.Errorf("it says %q", out)
	}
	if again, err := image.Build(t.Context(), e, spec); err != nil || !again.Reused {
		t.Errorf("again: %+v, %v", again, err)
	}
	above, err := image.Build(t.Context(), e, image.Spec{Name: unique(t, e), Base: name})
	if err != nil || !slices.Equal(above.Manifest.Packages, []string{"npm:@anthropic-ai/claude-code@0.0.1"}) || len(above.Manifest.CLIs) != 1 {
		t.Errorf("one that only has what its base has: %+v, %v", above, err)
	}
	if _, err := image.Build(t.Context(), e, image.Spec{Name: unique(t, e), Base: "skep-test/that-is-not:there"}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("a base that is not there: %v", err)
	}
	c := dockertest.Client(t, dockertest.Host(t))
	left, err := c.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", image.Label+".look="+base)})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("what looked into the base is left: %v, %v", left.Items, err)
	}
}

func TestImageOnOneWithoutLibc(t *testing.T) {
	e := engine(t)
	bare := dockertest.Image(t, dockertest.Host(t))
	cache := fakeCLI(t)
	_, err := image.Build(t.Context(), e, image.Spec{Name: unique(t, e), Base: bare, CLIs: []string{"claude@0.0.1"}, Cache: cache})
	if agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), "is loaded by") {
		t.Errorf("a base without glibc: %v", err)
	}
}

func TestImageOnOneWithoutALibrary(t *testing.T) {
	e := engine(t)
	base := unique(t, e)
	if _, err := image.Build(t.Context(), e, image.Spec{Name: base, Base: image.Host, Programs: []string{"sh"}}); err != nil {
		t.Fatal(err)
	}
	_, err := image.Build(t.Context(), e, image.Spec{Name: unique(t, e), Base: base, CLIs: []string{"claude@0.0.1"}, Cache: fakeCLI(t)})
	if agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), "claude needs the library lib") {
		t.Errorf("a base with libc alone: %v", err)
	}
}

func TestStoppedWhileTheEngineReads(t *testing.T) {
	e := engine(t)
	name := unique(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	spec := image.Spec{Name: name, Base: image.Host, Programs: []string{"sh", "git"}, Progress: func(p image.Progress) {
		if p.Done > 0 {
			cancel()
		}
	}}
	if _, err := image.Build(ctx, e, spec); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("it was stopped: %v", err)
	}
	if got := listed(t, e, name); got.ID != "" {
		t.Errorf("it left %+v", got)
	}
}

func TestSpecsThatCannotBe(t *testing.T) {
	e, err := image.Dial("unix:///nowhere/docker.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for why, s := range map[string]image.Spec{
		"no name":            {Base: image.Host},
		"bad name":           {Name: "A b", Base: image.Host},
		"its own base":       {Name: "a:b", Base: "a:b"},
		"a second line":      {Name: "a", Base: "b\nRUN evil"},
		"programs":           {Name: "a", Base: image.Debian, Programs: []string{"sh"}},
		"deb on host":        {Name: "a", Base: image.Host, Packages: []string{"deb:jq"}},
		"option for a name":  {Name: "a", Base: image.Debian, Packages: []string{"deb:--hook"}},
		"two in one":         {Name: "a", Base: image.Debian, Packages: []string{"deb:a,b"}},
		"other package":      {Name: "a", Base: image.Debian, Packages: []string{"pip:x"}},
		"suite is an option": {Name: "a", Base: image.Debian, Suite: "--x"},
		"mirror":             {Name: "a", Base: image.Debian, Mirror: "--x"},
	} {
		if _, err := image.Build(t.Context(), e, s); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", why, err)
		}
	}
	_, err = image.Build(t.Context(), e, image.Spec{Name: "a", Base: image.Host})
	if got := agent.AsError(err); got == nil || got.Kind != agent.Unavailable || got.Hint == "" {
		t.Errorf("no engine: %v", err)
	}
	if _, err := image.Dial("what is it"); agent.KindOf(err) != agent.Invalid {
		t.Errorf("no address: %v", err)
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	e := engine(t)
	for program, want := range map[string]agent.Kind{"no-such-program": agent.NotFound, "/etc/no-such": agent.NotFound} {
		if _, err := image.Build(t.Context(), e, image.Spec{Name: unique(t, e), Base: image.Host, Programs: []string{program}}); agent.KindOf(err) != want {
			t.Errorf("%s: %v", program, err)
		}
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/usr/bin/env python3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := image.Build(t.Context(), e, image.Spec{Name: unique(t, e), Base: image.Host, Programs: []string{script}}); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a script for Python: %v", err)
	}
}

// TestEngineThatBreaksOff has a daemon that takes a part of the image and says that its disk is full.
func TestEngineThatBreaksOff(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l)
	e, err := image.Dial("unix://" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = image.Build(t.Context(), e, image.Spec{Name: "a", Base: image.Host, Programs: []string{"sh"}})
	if got := agent.AsError(err); got == nil || got.Kind != agent.Exhausted || !strings.Contains(got.Msg, "disk is full") || errors.Is(err, context.Canceled) {
		t.Errorf("the engine's disk is full: %v", err)
	}
}

func TestPodman(t *testing.T) {
	e, err := image.Dial(dockertest.Podman(t))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	name := unique(t, e)
	spec := image.Spec{Name: name, Base: image.Host, Programs: []string{"sh", "git"}}
	first, err := image.Build(t.Context(), e, spec)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := image.Build(t.Context(), e, spec); err != nil || !again.Reused || again.ID != first.ID {
		t.Errorf("of the same files it made %+v (%v)", again, err)
	}
	above := unique(t, e)
	if im, err := image.Build(t.Context(), e, image.Spec{Name: above, Base: name, CLIs: []string{"claude@0.0.1"}, Cache: fakeCLI(t)}); err != nil || len(im.Manifest.CLIs) != 1 {
		t.Errorf("above it: %+v, %v", im, err)
	}
	list, err := e.List(t.Context())
	if err != nil || !slices.ContainsFunc(list, func(im image.Image) bool { return strings.HasSuffix(im.Name, name) }) {
		t.Errorf("the list has %+v (%v)", list, err)
	}
}
