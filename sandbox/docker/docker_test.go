package docker_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/sandboxtest"
)

const boxProgram = "github.com/skep-dev/skep/sandbox/sandboxtest/box"

func provider(t *testing.T, name, host string) *docker.Provider {
	t.Helper()
	p, err := docker.New(&docker.Options{Name: name, Host: host})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// suite is that of the engine at host.
func suite(t *testing.T, name, host string) sandboxtest.Options {
	return sandboxtest.Options{
		New:   func(t *testing.T) sandbox.Provider { return provider(t, name, host) },
		Image: dockertest.Image(t, host, "VOLUME /data", `CMD ["/evil"]`, "USER 0"), Driver: dockertest.Static(t, boxProgram),
		Tell: func(t *testing.T, h sandbox.Handle) string {
			got, err := dockertest.Client(t, host).ContainerInspect(t.Context(), string(h), client.ContainerInspectOptions{Size: true})
			if err != nil {
				t.Fatal(err)
			}
			return string(got.Raw)
		},
		RemoveImage: func(t *testing.T, image string) { dockertest.RemoveImage(t, host, image) },
	}
}

func TestDocker(t *testing.T) { sandboxtest.Run(t, suite(t, "docker", dockertest.Host(t))) }

func TestPodman(t *testing.T) {
	o := suite(t, "podman", dockertest.Podman(t))
	o.Lacks = []string{"OOM"} // on cgroup v1 it does not notice
	sandboxtest.Run(t, o)
}

// TestRuntimes runs the suite in each further runtime that the engine has, such as gVisor's runsc.
func TestRuntimes(t *testing.T) {
	host := dockertest.Host(t)
	p := provider(t, "docker", host)
	defer p.Close()
	more := slices.DeleteFunc(p.Probe(t.Context()).Runtimes, func(name string) bool { return name == "runc" || strings.HasSuffix(name, "-closed") })
	if len(more) == 0 {
		t.Skip("the engine has runc alone")
	}
	for _, runtime := range more {
		t.Run(runtime, func(t *testing.T) {
			o := suite(t, "docker", host)
			o.Runtime = runtime
			if strings.HasPrefix(runtime, "runsc") { // a kernel of its own, which does not say these, and is one process of the host
				o.Whole = true
				o.Lacks = []string{"NoNewPrivs", "Seccomp", "CapAmb", "make a device"} // of those that its kernel has, which are none of the host's
			}
			sandboxtest.Run(t, o)
		})
	}
}

// fake is an engine that has no box and one image, says of itself what info says, and keeps what it was asked to create.
type fake struct {
	info    map[string]any
	created container.CreateRequest
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.50")
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/info"):
		_ = json.NewEncoder(w).Encode(f.info)
	case strings.HasSuffix(path, "/version"):
		_, _ = w.Write([]byte(`{"ApiVersion":"1.50"}`))
	case strings.HasSuffix(path, "/containers/create"):
		if err := json.NewDecoder(r.Body).Decode(&f.created); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"Id":"1"}`))
	case strings.HasSuffix(path, "/images/image/json"):
		_, _ = w.Write([]byte(`{"Id":"1"}`))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// TestClosedRuntime has a gVisor whose boxes could not reach their socket: it is refused before a box is made of it.
func TestClosedRuntime(t *testing.T) {
	f := &fake{info: map[string]any{"OSType": "linux", "Runtimes": map[string]any{
		"runc": map[string]any{"path": "runc"}, "runsc": map[string]any{"path": "runsc"}, "runsc-none": map[string]any{"path": "runsc", "runtimeArgs": []string{"--host-uds=none"}},
		"runsc-open": map[string]any{"path": "runsc", "runtimeArgs": []string{"--debug", "--host-uds=open"}},
	}}}
	p := provider(t, "docker", serve(t, f))
	defer p.Close()
	r := request(t, "image", os.Args[0])
	for _, runtime := range []string{"runsc", "runsc-none"} {
		r.Runtime = runtime
		_, err := p.Create(t.Context(), r)
		if e := agent.AsError(err); e == nil || e.Kind != agent.Invalid || !strings.Contains(e.Hint, "--host-uds=open") {
			t.Errorf("%s: %v", runtime, err)
		}
	}
	r.Runtime = "runsc-open"
	if _, err := p.Create(t.Context(), r); err != nil || f.created.HostConfig.Runtime != "runsc-open" {
		t.Errorf("one that is open: %v, and %+v was made", err, f.created.HostConfig)
	}
}

func TestSELinux(t *testing.T) {
	for _, on := range []bool{false, true} {
		f := &fake{info: map[string]any{"OSType": "linux"}}
		if on {
			f.info["SecurityOptions"] = []string{"name=seccomp,profile=builtin", "name=selinux"}
		}
		p := provider(t, "docker", serve(t, f))
		defer p.Close()
		if _, err := p.Create(t.Context(), request(t, "image", os.Args[0])); err != nil {
			t.Fatal(err)
		}
		if got := f.created.HostConfig.SecurityOpt; slices.Contains(got, "label=disable") != on || !slices.Contains(got, "no-new-privileges") {
			t.Errorf("SELinux %v: %v", on, got)
		}
	}
}

// TestPackages has images that say what they have, and one that says nothing, and asks for packages.
func TestPackages(t *testing.T) {
	host := dockertest.Host(t)
	p := provider(t, "docker", host)
	defer p.Close()
	label := `LABEL dev.skep.image='{"base":"debian","packages":["deb:git","npm:left-pad@1.3.0"],"clis":[{"name":"claude","package":"@anthropic-ai/claude-code","version":"0.0.1"}]}'`
	says, silent := dockertest.Image(t, host, label), dockertest.Image(t, host)
	for _, tt := range []struct {
		image    string
		packages []string
		want     string // in the error, and ("|") in its hint
	}{
		{silent, nil, ""},
		{says, []string{"deb:git", "npm:left-pad", "npm:left-pad@1.3.0"}, ""},
		{says, []string{"deb:git", "deb:jq"}, "has no deb:jq|skep image build " + says + " --base debian --cli claude@0.0.1 --package deb:git --package deb:jq"},
		{says, []string{"npm:left-pad@1.3.1"}, "has no npm:left-pad@1.3.1|--package npm:left-pad@1.3.1"},
		{silent, []string{"npm:left-pad"}, "does not say which packages it has, and npm:left-pad is asked for|LABEL dev.skep.image='{\"packages\":[\"npm:left-pad\"]}'"},
	} {
		r := request(t, tt.image, os.Args[0])
		r.Packages = tt.packages
		h, err := p.Create(t.Context(), r)
		if err == nil {
			if err := p.Delete(t.Context(), h); err != nil {
				t.Error(err)
			}
		}
		msg, hint, _ := strings.Cut(tt.want, "|")
		switch e := agent.AsError(err); {
		case tt.want == "" && err == nil:
		case tt.want == "" || e == nil || e.Kind != agent.Invalid || !strings.HasPrefix(e.Msg, agent.SandboxPackageMissing+": the image "+tt.image) || !strings.Contains(e.Msg, msg) || !strings.Contains(e.Hint, hint):
			t.Errorf("%s with %q: %+v, want %s", tt.image, tt.packages, e, tt.want)
		}
	}
}
