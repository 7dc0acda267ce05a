//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
	"github.com/skep-dev/skep/sandbox/kube/kubetest"
)

// TestKubernetes runs the scripts in testdata/kubernetes, with KUBECONFIG of a cluster whose node runs pods in Docker.
func TestKubernetes(t *testing.T) {
	host := dockertest.Host(t)
	driver := dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep-driver")
	sockets, err := os.MkdirTemp("", "skep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	vars := map[string]string{
		"IMAGE_TOOLS": imagetest.Tools(t), "IMAGE_CODEX": imagetest.CLI(t, "codex"), "KUBECONFIG": kubetest.New(t, host).Kubeconfig(t), "NODE": kubetest.Node, "DRIVER": driver, "SOCKETS": sockets,
	}
	testscript.Run(t, scripts(t, "testdata/kubernetes", sandboxOptions{kind: sandboxNone}, vars))
}

// TestKubernetesFlags has what is missing said by name.
func TestKubernetesFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("HOME", t.TempDir())
	config := kubetest.New(t, "").Kubeconfig(t)
	for _, tt := range []struct {
		o    sandboxOptions
		want string
	}{
		{sandboxOptions{}, "in no cluster, and no kubeconfig"},
		{sandboxOptions{kube: kubeOptions{context: "c"}}, "--sandbox-context c"},
		{sandboxOptions{kube: kubeOptions{config: config + ".gone"}}, "cannot be read"},
		{sandboxOptions{kube: kubeOptions{config: config, context: "prod", node: "n"}}, `has no context "prod"`},
		{sandboxOptions{kube: kubeOptions{config: config}}, "which node does this server run on"},
		{sandboxOptions{kube: kubeOptions{config: config, node: "n", pull: "Sometimes"}}, `"Sometimes" says not when`},
		{sandboxOptions{host: "tcp://1.2.3.4:1", kube: kubeOptions{config: config, node: "n"}}, "--sandbox-kubeconfig"},
	} {
		tt.o.kind = "kubernetes"
		_, err := tt.o.provider()
		e := agent.AsError(err)
		if e == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	p, err := (&sandboxOptions{kind: "kubernetes", kube: kubeOptions{config: config, node: kubetest.Node}}).provider()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.Probe(t.Context()); !got.Ready || got.Name != "kubernetes" {
		t.Errorf("%+v", got)
	}
}
