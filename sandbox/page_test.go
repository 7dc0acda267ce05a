package sandbox_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/kube"
)

var update = flag.Bool("update", false, "write the page of capabilities")

const page = "../docs/design/sandbox-capabilities.md"

// installation is an engine that only says what it is.
type installation struct {
	title    string
	name     string
	podman   bool
	user     bool // Podman of a user
	remote   bool
	info     map[string]any
	security []string
}

func installations() []installation {
	v2 := map[string]any{"MemoryLimit": true, "SwapLimit": true, "CpuCfsPeriod": true, "CpuCfsQuota": true, "PidsLimit": true, "CgroupVersion": "2", "DefaultRuntime": "runc"}
	with := func(changes map[string]any) map[string]any {
		out := map[string]any{}
		for k, v := range v2 {
			out[k] = v
		}
		for k, v := range changes {
			out[k] = v
		}
		return out
	}
	bare := map[string]any{"CgroupVersion": "1", "DefaultRuntime": "runc"}
	seccomp := "name=seccomp,profile=builtin"
	return []installation{
		{title: "Docker Engine", name: "docker", info: v2, security: []string{seccomp}},
		{title: "Docker Engine, `userns-remap`", name: "docker", info: v2, security: []string{seccomp, "name=userns"}},
		{title: "Docker Engine, `default-runtime` runsc", name: "docker", info: with(map[string]any{"DefaultRuntime": "runsc"}), security: []string{seccomp}},
		{title: "Docker Engine, no swap accounting", name: "docker", info: with(map[string]any{"SwapLimit": false, "CgroupVersion": "1"}), security: []string{seccomp}},
		{title: "Docker Engine, rootless", name: "docker", info: v2, security: []string{seccomp, "name=rootless"}},
		{title: "Docker Engine, rootless on cgroup v1", name: "docker", info: bare, security: []string{seccomp, "name=rootless"}},
		{title: "Docker Engine, `seccomp-profile` unconfined", name: "docker", info: v2, security: []string{"name=seccomp,profile=unconfined"}},
		{title: "Docker Engine at `tcp://`", name: "docker", info: v2, security: []string{seccomp}, remote: true},
		{title: "Docker Desktop", name: "docker", info: with(map[string]any{"OperatingSystem": "Docker Desktop"}), security: []string{seccomp}},
		{title: "Podman", name: "podman", info: v2, security: []string{"name=seccomp,profile=default"}, podman: true},
		{title: "Podman, rootless", name: "podman", info: v2, security: []string{"name=seccomp,profile=default"}, podman: true, user: true},
		{title: "Podman, rootless on cgroup v1", name: "podman", info: with(map[string]any{"CgroupVersion": "1"}), security: []string{"name=seccomp,profile=default"}, podman: true, user: true},
	}
}

// probe asks the provider that is shipped, which asks an engine that says what i says.
func (i *installation) probe(t *testing.T) agent.SandboxProvider {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	network, address := "unix", filepath.Join(dir, "s")
	if i.remote {
		network, address = "tcp", "127.0.0.1:0"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Api-Version", "1.50")
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	component := "Engine"
	if i.podman {
		component = "Podman Engine"
	}
	info := map[string]any{"OSType": "linux", "SecurityOptions": i.security}
	for k, v := range i.info {
		info[k] = v
	}
	answer("/_ping", "OK")
	answer("/v1.50/version", map[string]any{"Version": "1", "ApiVersion": "1.50", "Components": []any{map[string]any{"Name": component, "Version": "1"}}})
	answer("/v1.50/info", info)
	answer("/info", map[string]any{"Rootless": i.user})
	s := &http.Server{Handler: mux}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() { s.Close(); <-done }()
	p, err := docker.New(&docker.Options{Name: i.name, Host: network + "://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got := p.Probe(t.Context())
	if !got.Ready {
		t.Fatalf("%s: %s", i.title, got.Error)
	}
	return got
}

// probeKubernetes asks an API server that has nothing.
func probeKubernetes(t *testing.T, node string) agent.SandboxProvider {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"gitVersion":"v1.33.1"}`)) }))
	defer s.Close()
	p, err := kube.New(&kube.Options{Cluster: kube.Cluster{Server: s.URL}, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return p.Probe(t.Context())
}

// TestGolden writes the page of capabilities from what the providers say.
func TestGolden(t *testing.T) {
	b := &strings.Builder{}
	b.WriteString(intro)
	b.WriteString("## What they mean\n\n| capability | with it |\n|---|---|\n")
	for _, name := range sandbox.Capabilities() {
		if sandbox.Meaning(name) == "" {
			t.Errorf("%s has no meaning", name)
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, sandbox.Meaning(name))
	}
	b.WriteString("\n## Who has what\n\nEnforced, unless the last column says otherwise.\n\n| installation | isolation | is not enforced |\n|---|---|---|\n")
	row := func(title string, got agent.SandboxProvider) {
		var less []string
		for _, c := range got.Capabilities {
			if c.Level != agent.CapabilityEnforced {
				less = append(less, fmt.Sprintf("`%s` %s: %s", c.Name, c.Level, c.Reason))
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", title, got.Isolation, strings.Join(less, "; "))
	}
	for _, i := range installations() {
		row(i.title, i.probe(t))
	}
	row("Kubernetes, 1.30 or newer", probeKubernetes(t, "node"))
	row("Kubernetes, no node named", probeKubernetes(t, ""))
	b.WriteString(profile)
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s is not what the providers say; go test ./sandbox -run TestGolden -update (-want +got):\n%s", page, diff)
	}
}

func TestAdmit(t *testing.T) {
	p := agent.SandboxProvider{Name: "docker", Capabilities: []agent.Capability{
		{Name: sandbox.NoNetwork, Level: agent.CapabilityEnforced},
		{Name: sandbox.LimitMemory, Level: agent.CapabilityPartial, Reason: "no swap accounting"},
		{Name: sandbox.LimitVolume, Reason: "no quota"},
	}}
	if err := sandbox.Admit(p, []string{sandbox.NoNetwork}); err != nil {
		t.Errorf("what is there is refused: %v", err)
	}
	if err := sandbox.Admit(p, nil); err != nil {
		t.Errorf("nothing is refused: %v", err)
	}
	err := sandbox.Admit(p, []string{sandbox.NoNetwork, sandbox.LimitMemory, sandbox.LimitVolume, "teleport"})
	e := agent.AsError(err)
	if e == nil || e.Kind != agent.Invalid || !strings.HasPrefix(e.Msg, agent.SandboxUnavailable+": docker ") {
		t.Fatalf("what is missing: %v", err)
	}
	for _, want := range []string{"limit.memory is partial (no swap accounting)", "limit.volume is none (no quota)", "teleport is none"} {
		if !strings.Contains(e.Msg, want) {
			t.Errorf("%q does not say %q", e.Msg, want)
		}
	}
	if strings.Contains(e.Msg, sandbox.NoNetwork) {
		t.Errorf("%q names what is there", e.Msg)
	}
}

const intro = `# What providers of sandboxes can do

This page is written by a test, from what the providers say of installations: ` + "`go test ./sandbox -run TestGolden -update`" + `.

A box is one container. What it must and must not be able to do is a list of capabilities. Each provider is asked, on the machine where it is, how far it
has each: **enforced**, **partial** or **none**, and why it is not more. ` + "`skep sandbox providers`" + ` shows it. An environment may require some (` + "`requires`" + `); when
one of them is not enforced, a session is refused with ` + "`sandbox_capability_unavailable`" + `, once and for all: to try again is of no use.

`

const profile = `
## What a box is, with Docker and Podman

| what | how |
|---|---|
| main process | the driver, mounted and read-only, below the engine's init; its boot payload on standard input, once, and nowhere else |
| user | 1000:1000, whatever the image says |
| network | none: no DNS, no host, no other box; the way out is the socket at ` + "`/run/skep/skep.sock`" + `, in a folder of its own |
| privileges | all capabilities dropped, ` + "`no-new-privileges`" + `, the engine's seccomp profile, private IPC, no core dumps, 4096 open files |
| files | the root is read-only; ` + "`/workspace`" + `, ` + "`/home/agent`" + ` and ` + "`/tmp`" + ` are in memory, and count as memory of the box; a volume that the image declares is empty and read-only |
| a pet | ` + "`/workspace`" + ` and ` + "`/home/agent`" + ` are two volumes, ` + "`NAME-workspace`" + ` and ` + "`NAME-home`" + `, which nothing bounds: ` + "`limit.volume`" + ` |
| log | two megabytes of what the driver writes to its standard error |
| image | is there, or is refused: nothing is pulled. Its entry point, user, health check and stop signal do not count |
| name | ` + "`skep-OWNER-SANDBOX-GENERATION`" + `; the same request finds the same box |

A runtime, such as ` + "`runsc`" + ` of gVisor, is named by the environment. gVisor has to be told to let boxes open sockets: ` + "`--host-uds=open`" + ` in its
` + "`runtimeArgs`" + `; without it a box is refused. What goes over a bound of memory or processes ends
the whole box there, for it is one process of the host. Podman's API runs everything with its own runtime, and refuses another name.

Where SELinux is on, boxes run without its labels (` + "`label=disable`" + `): its policy lets no container connect to a socket of the host.

An OOM is known when it took the driver. When it took another process, Docker says nothing of it: the driver tells, from its cgroup. Podman on cgroup v1
says nothing at all.

## What a box is, with Kubernetes

A pod, of the same user, privileges, files and bounds, on the node that the server runs on, for the sake of its socket: the folders of sockets and the driver
are mounted from the node, by the paths that the server has them at, so a namespace of Pod Security level baseline or restricted refuses boxes. A scheduling gate keeps it
from running before it is started. A NetworkPolicy of the namespace, ` + "`skep-boxes`" + `, denies boxes everything; whether it is heeded is for the cluster's network
plugin. A pod that is stopped is gone. A pet is a claim of a volume. The runtime of an environment is a RuntimeClass. Where nodes have cgroup v2, what goes over
the bound of memory ends the whole box. The image comes from a registry that the
cluster knows, or was loaded into the node. The provider passes the suite of all providers against
an API server of the tests whose node runs pods in Docker; it was not tried on a cluster.

Three capabilities that every box needs are less than enforced: ` + "`network.none`, `limit.pids` and `rootfs.readonly`" + `. A server refuses boxes there, until whoever runs it
accepts that by ` + "`skep serve --sandbox-accept`" + `.
`
