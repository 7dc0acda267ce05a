package kube

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/kube/kubetest"
	"github.com/skep-dev/skep/sandbox/sandboxtest"
)

func setup(t *testing.T) (*kubetest.Cluster, *Provider) {
	t.Helper()
	c := kubetest.New(t, "")
	return c, provider(t, c)
}

func provider(t *testing.T, c *kubetest.Cluster) *Provider {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(kubetest.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := New(&Options{Cluster: Cluster{Server: c.URL, TokenFile: token, CA: c.CA, Namespace: kubetest.Namespace}, Node: kubetest.Node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func request() *sandbox.Request {
	return &sandbox.Request{
		Owner: "server-1", ID: agent.NewSandboxID(time.Now()), Generation: 1, Image: "registry.example/agents:1", Sockets: os.TempDir(), Driver: os.Args[0],
		Size: agent.SandboxSize{Memory: 1 << 30, CPUs: 1.5, Pids: 100, Disk: 1 << 20}, Variables: map[string]string{"PRICE": "$(HOME)"},
	}
}

func phase(t *testing.T, p *Provider, h sandbox.Handle, want sandbox.Phase) sandbox.State {
	t.Helper()
	got, err := p.Inspect(t.Context(), h)
	if err != nil || got.Phase != want {
		t.Errorf("phase %d, want %d: %+v, %v", got.Phase, want, got, err)
	}
	return got
}

func kind(t *testing.T, what string, err error, want agent.Kind) {
	t.Helper()
	if agent.KindOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func TestLife(t *testing.T) {
	for _, old := range []bool{false, true} {
		s, p := setup(t)
		s.Old = old
		r := request()
		h, err := p.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		phase(t, p, h, sandbox.Created)
		if again, err := p.Create(t.Context(), r); again != h || err != nil {
			t.Errorf("created again: %s, %v", again, err)
		}
		boot := strings.Repeat("boot ", 20_000)
		if err := p.Start(t.Context(), h, strings.NewReader(boot)); err != nil {
			t.Fatal(err)
		}
		if got, closed := s.Boot(string(h)); got != boot || closed == old {
			t.Errorf("old %v: %d bytes were given, and closed is %v", old, len(got), closed)
		}
		if strings.Contains(s.Everything(), "boot boot") {
			t.Error("the cluster keeps the boot payload")
		}
		phase(t, p, h, sandbox.Running)
		kind(t, "start twice", p.Start(t.Context(), h, strings.NewReader("x")), agent.Conflict)
		phase(t, p, h, sandbox.Running)
		for range 2 {
			if err := p.Stop(t.Context(), h, time.Second); err != nil {
				t.Fatal(err)
			}
			if err := p.Delete(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			phase(t, p, h, sandbox.Absent)
		}
		kind(t, "start one that is not there", p.Start(t.Context(), h, strings.NewReader("x")), agent.NotFound)
	}
}

// TestPod holds what the API server is sent, for a fake one does not do what it says.
func TestPod(t *testing.T) {
	s, p := setup(t)
	r := request()
	r.Runtime = "gvisor"
	h, err := p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	got := s.Thing(kubetest.PodPath(string(h)))
	for _, want := range []string{
		`"automountServiceAccountToken":false`, `"schedulingGates":[{"name":"dev.skep/start"}]`, `"matchFields":[{"key":"metadata.name","operator":"In","values":["this-node"]}]`, `"imagePullPolicy":"IfNotPresent"`, `"runtimeClassName":"gvisor"`,
		`"capabilities":{"drop":["ALL"]}`, `"readOnlyRootFilesystem":true`, `"allowPrivilegeEscalation":false`, `"runAsNonRoot":true`, `"runAsUser":1000`,
		`"seccompProfile":{"type":"RuntimeDefault"}`, `"memory":"1073741824"`, `"cpu":"1500m"`, `"stdinOnce":true`, `"enableServiceLinks":false`, `"restartPolicy":"Never"`,
		`"emptyDir":{"medium":"Memory","sizeLimit":"524288"}`, `"value":"$$(HOME)"`, `"mountPath":"/run/skep","name":"socket","readOnly":true`, `"dnsPolicy":"None"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the pod has no %s: %s", want, got)
		}
	}
	for _, no := range []string{"hostNetwork", "hostPID", "privileged\":true"} {
		if strings.Contains(got, no) {
			t.Errorf("the pod has %s", no)
		}
	}
	if s.Thing("/apis/networking.k8s.io/v1/namespaces/boxes/networkpolicies/"+policy) == "null" {
		t.Error("there is no network policy")
	}
}

func TestEnds(t *testing.T) {
	s, p := setup(t)
	for _, tt := range []struct {
		code   int
		reason string
		oom    bool
	}{{0, "Completed", false}, {7, "Error", false}, {137, "OOMKilled", true}} {
		h, err := p.Create(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context(), h, strings.NewReader("boot")); err != nil {
			t.Fatal(err)
		}
		s.End(string(h), tt.code, tt.reason)
		if got := phase(t, p, h, sandbox.Exited); got.Code != tt.code || got.OOM != tt.oom {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

func TestCannotStart(t *testing.T) {
	for reason, want := range map[string]agent.Kind{
		"ErrImagePull": agent.NotFound, "ImagePullBackOff": agent.NotFound, "InvalidImageName": agent.Invalid, "CreateContainerError": agent.Invalid,
	} {
		s, p := setup(t)
		s.Waiting = reason
		h, err := p.Create(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		kind(t, reason, p.Start(t.Context(), h, strings.NewReader("boot")), want)
		phase(t, p, h, sandbox.Absent) // nothing goes on trying
	}

	s, p := setup(t)
	s.Waiting = "ContainerCreating"
	h, err := p.Create(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	kind(t, "a node without room", p.Start(ctx, h, strings.NewReader("boot")), agent.Unavailable)
	phase(t, p, h, sandbox.Absent)
}

func TestBootFails(t *testing.T) {
	_, p := setup(t)
	h, err := p.Create(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	half := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("gone")))
	kind(t, "half a payload", p.Start(t.Context(), h, half), agent.Unavailable)
	phase(t, p, h, sandbox.Absent)
}

func TestListAndForeign(t *testing.T) {
	_, p := setup(t)
	r := request()
	want := map[sandbox.Handle]int64{}
	for _, generation := range []int64{1, 2, 77} {
		r.Generation = generation
		h, err := p.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		want[h] = generation
	}
	other := request()
	other.Owner = "server-2"
	if _, err := p.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	list, err := p.List(t.Context(), r.Owner)
	if err != nil || len(list) != len(want) {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, got := range list {
		if want[got.Handle] != got.Generation || got.ID != r.ID || got.State.Phase != sandbox.Created || got.Created.IsZero() {
			t.Errorf("%+v", got)
		}
	}
	bad := request()
	bad.Owner = "not a label"
	_, err = p.Create(t.Context(), bad)
	kind(t, "an owner that is no label", err, agent.Invalid)
}

func TestPet(t *testing.T) {
	s, p := setup(t)
	r := request()
	r.Volume = "pet-1"
	for _, generation := range []int64{1, 2} {
		r.Generation = generation
		if _, err := p.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := p.ListVolumes(t.Context(), r.Owner); err != nil || !slices.Equal(got, []string{"pet-1"}) {
		t.Errorf("volumes: %v, %v", got, err)
	}
	spec := s.Thing(kubetest.PodPath(string(r.Handle())))
	if !strings.Contains(spec, `"claimName":"pet-1"`) {
		t.Errorf("the pod has no claim: %s", spec)
	}
	theirs := request()
	theirs.Owner, theirs.Volume = "server-2", "pet-1"
	_, err := p.Create(t.Context(), theirs)
	kind(t, "a volume of another", err, agent.Conflict)
	kind(t, "a volume that boxes have", p.DeleteVolume(t.Context(), "pet-1"), agent.Conflict)
	for _, generation := range []int64{1, 2} {
		r.Generation = generation
		if err := p.Delete(t.Context(), r.Handle()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := p.DeleteVolume(t.Context(), "pet-1"); err != nil {
			t.Error(err)
		}
	}
}

func TestExecAndLog(t *testing.T) {
	_, p := setup(t)
	for command, want := range map[string]int{"good": 0, "three": 3} {
		var out, errOut bytes.Buffer
		code, err := p.Exec(t.Context(), "box", []string{command}, &out, &errOut)
		if err != nil || code != want || out.String() != "ran "+command || errOut.String() != "err" {
			t.Errorf("%s: %d, %v; %q, %q", command, code, err, &out, &errOut)
		}
	}
	_, err := p.Exec(t.Context(), "box", []string{"none"}, io.Discard, io.Discard)
	kind(t, "no such program", err, agent.Failed)
	if got, err := p.Log(t.Context(), "box", 4); err != nil || string(got) != "two\n" {
		t.Errorf("log: %q, %v", got, err)
	}
}

func TestProbe(t *testing.T) {
	c, p := setup(t)
	got := p.Probe(t.Context())
	var names []string
	for _, c := range got.Capabilities {
		names = append(names, c.Name)
		if c.Level != agent.CapabilityEnforced && c.Reason == "" {
			t.Errorf("%s is %s, and nothing says why", c.Name, c.Level)
		}
	}
	if !got.Ready || got.Version != "v1.33.1" || !slices.Equal(got.Runtimes, []string{kubetest.Runtime}) || !slices.Equal(names, sandbox.Capabilities()) {
		t.Errorf("probe: %+v", got)
	}
	if c.Minor = 29; p.Probe(t.Context()).Ready || !strings.Contains(p.Probe(t.Context()).Error, "version v1.29.1, and 1.30 or newer") {
		t.Errorf("an old cluster: %+v", p.Probe(t.Context()))
	}
	c.Minor = 0
	for _, wrong := range []func(*Options) *string{func(o *Options) *string { return &o.Node }, func(o *Options) *string { return &o.Namespace }} {
		was := *wrong(&p.o)
		*wrong(&p.o) = "elsewhere"
		if got := p.Probe(t.Context()); got.Ready || !strings.Contains(got.Error, `"elsewhere"`) {
			t.Errorf("what is not there: %+v", got)
		}
		*wrong(&p.o) = was
	}
	r := request()
	r.Runtime = "runsc"
	_, err := p.Create(t.Context(), r)
	if kind(t, "a runtime that is not there", err, agent.Invalid); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), `no runtime "runsc"; it has gvisor`) {
		t.Errorf("a runtime that is not there: %v", err)
	}
	r = request()
	r.Driver += ".gone"
	_, err = p.Create(t.Context(), r)
	kind(t, "a driver that is not there", err, agent.Invalid)
	p.o.Node = ""
	if got := p.Probe(t.Context()); got.Ready || sandbox.Admit(got, []string{sandbox.SocketMount}) == nil {
		t.Errorf("without a node: %+v", got)
	}
	_, err = p.Create(t.Context(), request())
	kind(t, "without a node", err, agent.Invalid)
	if !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("without a node: %v", err)
	}
	if err := os.WriteFile(p.o.TokenFile, []byte("stolen"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.Probe(t.Context()); got.Ready || !strings.Contains(got.Error, "Unauthorized") {
		t.Errorf("with another's token: %+v", got)
	}
	_, err = p.List(t.Context(), "server-1")
	kind(t, "with another's token", err, agent.Denied)
	if e := agent.AsError(err); e == nil || e.Hint == "" {
		t.Errorf("it does not say what it may do: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := New(nil)
	kind(t, "no cluster", err, agent.Invalid)
	h := httptest.NewTLSServer(http.NotFoundHandler())
	defer h.Close()
	p, err := New(&Options{Cluster: Cluster{Server: h.URL}}) // whose authority is not known
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.List(t.Context(), "server-1")
	kind(t, "a certificate of nobody", err, agent.Unavailable)
	h.Close()
	_, err = p.Inspect(t.Context(), "box")
	kind(t, "no server", err, agent.Unavailable)
	for code, want := range map[int]agent.Kind{http.StatusTooManyRequests: agent.Unavailable, 500: agent.Unavailable, 403: agent.Denied, 422: agent.Invalid} {
		kind(t, http.StatusText(code), refused("x", code, nil), want)
	}
}

// TestKubernetes has the suite of all providers, with a node that runs pods in Docker.
func TestKubernetes(t *testing.T) {
	host := dockertest.Host(t)
	c := kubetest.New(t, host)
	sandboxtest.Run(t, sandboxtest.Options{
		New:   func(t *testing.T) sandbox.Provider { return provider(t, c) },
		Image: dockertest.Image(t, host), Driver: dockertest.Static(t, "github.com/skep-dev/skep/sandbox/sandboxtest/box"),
		Tell: func(_ *testing.T, h sandbox.Handle) string { return c.Thing(kubetest.PodPath(string(h))) },
		Gone: true,
	})
}
