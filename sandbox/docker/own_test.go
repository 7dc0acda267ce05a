package docker_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/dockertest"
)

// each calls everything that asks the engine, and returns the errors.
func each(ctx context.Context, p *docker.Provider, r *sandbox.Request) map[string]error {
	errs := map[string]error{}
	_, errs["create"] = p.Create(ctx, r)
	_, errs["inspect"] = p.Inspect(ctx, "box")
	_, errs["list"] = p.List(ctx, "owner")
	_, errs["exec"] = p.Exec(ctx, "box", []string{"true"}, nil, nil)
	_, errs["log"] = p.Log(ctx, "box", 10)
	_, errs["volumes"] = p.ListVolumes(ctx, "owner")
	errs["start"] = p.Start(ctx, "box", strings.NewReader("boot"))
	errs["stop"] = p.Stop(ctx, "box", time.Second)
	errs["delete"] = p.Delete(ctx, "box")
	errs["pause"] = p.Pause(ctx, "box")
	errs["resume"] = p.Resume(ctx, "box")
	errs["snapshot"] = p.Snapshot(ctx, "box", "image")
	errs["delete volume"] = p.DeleteVolume(ctx, "volume")
	return errs
}

// request is of a box whose driver is that file, and whose socket nobody listens at.
func request(t *testing.T, image, driver string) *sandbox.Request {
	return &sandbox.Request{
		Owner: "own-" + strings.ToLower(string(agent.NewSandboxID(time.Now()))), ID: agent.NewSandboxID(time.Now()), Generation: 1, Image: image,
		Sockets: t.TempDir(), Driver: driver, Size: agent.SandboxSize{Memory: 64 << 20, CPUs: 1, Pids: 64, Disk: 1 << 20},
	}
}

func TestEngineDown(t *testing.T) {
	p := provider(t, "docker", filepath.Join(t.TempDir(), "nobody.sock"))
	defer p.Close()
	got := p.Probe(t.Context())
	if got.Ready || !strings.Contains(got.Error, "nobody.sock") || len(got.Capabilities) != len(sandbox.Capabilities()) {
		t.Errorf("probe: %+v", got)
	}
	for what, err := range each(t.Context(), p, request(t, "image", os.Args[0])) {
		e := agent.AsError(err)
		if e == nil || e.Kind != agent.Unavailable || e.Hint == "" || !strings.Contains(e.Error(), "nobody.sock") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestEngineHangs has an engine that takes requests and never answers.
func TestEngineHangs(t *testing.T) {
	host := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	p := provider(t, "docker", host)
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for what, err := range each(ctx, p, request(t, "image", os.Args[0])) {
		if e := agent.AsError(err); e == nil || e.Kind != agent.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := p.Probe(ctx); got.Ready || got.Error == "" {
		t.Errorf("probe: %+v", got)
	}
}

// serve serves h at a Unix socket and returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return "unix://" + l.Addr().String()
}

func TestHost(t *testing.T) {
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("CONTAINER_HOST", "")
	if _, err := docker.New(&docker.Options{Host: "nonsense"}); agent.AsError(err) == nil || agent.AsError(err).Kind != agent.Invalid {
		t.Errorf("a host that is none: %v", err)
	}
	where := func(o *docker.Options) string {
		t.Helper()
		p, err := docker.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return agent.AsError(p.Delete(cancelled(), "box")).Msg + " " + p.Probe(cancelled()).Capabilities[0].Reason
	}
	for _, tt := range []struct {
		o         *docker.Options
		env, want string
	}{
		{nil, "", "unix:///var/run/docker.sock"},
		{nil, "DOCKER_HOST=unix:///a.sock", "unix:///a.sock"},
		{&docker.Options{Host: "/b.sock"}, "DOCKER_HOST=unix:///a.sock", "unix:///b.sock"},
		{&docker.Options{Host: "tcp://127.0.0.1:1"}, "", "tcp://127.0.0.1:1"},
		{&docker.Options{Name: "podman"}, "CONTAINER_HOST=unix:///c.sock", "unix:///c.sock"},
	} {
		name, value, _ := strings.Cut(tt.env, "=")
		if name != "" {
			t.Setenv(name, value)
		}
		if got := where(tt.o); !strings.Contains(got, tt.want) {
			t.Errorf("%+v with %s: %s, want %s", tt.o, tt.env, got, tt.want)
		}
		if name != "" {
			t.Setenv(name, "")
		}
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestImageSaysOtherwise has an image that wants to be root, run something else, be probed, and have a folder that can be written.
func TestImageSaysOtherwise(t *testing.T) {
	host := dockertest.Host(t)
	image := dockertest.Image(t, host, "VOLUME /data", "USER 0", "CMD [\"/evil\"]", "HEALTHCHECK CMD [\"/evil\"]", "ENV FROM=image", "WORKDIR /data")
	c := dockertest.Client(t, host)
	p := provider(t, "docker", host)
	defer p.Close()
	h, err := p.Create(t.Context(), request(t, image, dockertest.Static(t, boxProgram)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.ContainerInspect(t.Context(), string(h), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := got.Container.Config
	if config.User != "1000:1000" || len(config.Cmd) != 0 || config.StopSignal != "SIGTERM" || config.WorkingDir != sandbox.Workspace || !slices.Equal(config.Healthcheck.Test, []string{"NONE"}) {
		t.Errorf("the image had its way: %+v", config)
	}
	for _, m := range got.Container.Mounts {
		if m.Type == "volume" || m.RW {
			t.Errorf("a mount of the image's: %+v", m)
		}
	}
	if !strings.HasPrefix(got.Container.HostConfig.Tmpfs["/data"], "ro,") {
		t.Errorf("/data can be written: %v", got.Container.HostConfig.Tmpfs)
	}
	if err := p.Delete(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

// TestForeign has a container of someone else, and one that a server died over, in the way.
func TestForeign(t *testing.T) {
	host := dockertest.Host(t)
	image, driver := dockertest.Image(t, host), dockertest.Static(t, boxProgram)
	c := dockertest.Client(t, host)
	p := provider(t, "docker", host)
	defer p.Close()
	r := request(t, image, driver)
	r.Volume = strings.ToLower(r.Owner) + "-pet"
	foreign := func(name string) {
		t.Helper()
		_, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name, Config: &container.Config{Image: image, Entrypoint: []string{"/none"}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := p.DeleteVolume(context.Background(), r.Volume); err != nil {
			t.Error(err)
		}
	})
	foreign("skep-seed-" + r.Volume)
	h, err := p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	foreign(string(h))
	defer p.Delete(context.Background(), h)
	_, err = p.Create(t.Context(), r)
	if e := agent.AsError(err); e == nil || e.Kind != agent.Conflict || !strings.Contains(e.Hint, string(h)) {
		t.Errorf("a name that another has: %v", err)
	}
	theirs := *r
	theirs.Owner, theirs.ID = "another", agent.NewSandboxID(time.Now())
	_, err = p.Create(t.Context(), &theirs)
	if e := agent.AsError(err); e == nil || e.Kind != agent.Conflict || !strings.Contains(e.Msg, "volume") {
		t.Errorf("a volume that another has: %v", err)
	}
}

// TestPodmanShortName has an image as Podman names what it builds.
func TestPodmanShortName(t *testing.T) {
	host := dockertest.Podman(t)
	image, short := dockertest.Image(t, host), "skep-test-short:latest"
	out, err := exec.Command("podman", "--url", host, "tag", "docker.io/library/"+image, "localhost/"+short).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dockertest.RemoveImage(t, host, "localhost/"+short)
	p := provider(t, "docker", host) // whatever it is called
	defer p.Close()
	h, err := p.Create(t.Context(), request(t, short, dockertest.Static(t, boxProgram)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), h); err != nil {
		t.Error(err)
	}
}
