package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/kube"
)

// kubeOptions are the flags about sandboxes in Kubernetes.
type kubeOptions struct {
	config    string // file
	context   string
	namespace string
	node      string
	pull      string
	class     string // of storage
}

func (o *kubeOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.config, "sandbox-kubeconfig", os.Getenv("SKEP_SANDBOX_KUBECONFIG"), "kubernetes: `FILE` that says where the cluster is; KUBECONFIG, else the service account of this pod, else ~/.kube/config unless given (SKEP_SANDBOX_KUBECONFIG)")
	flags.StringVar(&o.context, "sandbox-context", os.Getenv("SKEP_SANDBOX_CONTEXT"), "kubernetes: context of that file; its current one unless given (SKEP_SANDBOX_CONTEXT)")
	flags.StringVar(&o.namespace, "sandbox-namespace", os.Getenv("SKEP_SANDBOX_NAMESPACE"), "kubernetes: namespace of the pods; that of the context or of this pod unless given (SKEP_SANDBOX_NAMESPACE)")
	flags.StringVar(&o.node, "sandbox-node", os.Getenv("SKEP_SANDBOX_NODE"), "kubernetes: name of the node that this server runs on, where its sandboxes run too (SKEP_SANDBOX_NODE)")
	flags.StringVar(&o.pull, "sandbox-pull", or(os.Getenv("SKEP_SANDBOX_PULL"), "IfNotPresent"), "kubernetes: when the node gets an image from its registry: Always, IfNotPresent or Never (SKEP_SANDBOX_PULL)")
	flags.StringVar(&o.class, "sandbox-storage-class", os.Getenv("SKEP_SANDBOX_STORAGE_CLASS"), "kubernetes: storage class of what agents keep; the cluster's default unless given (SKEP_SANDBOX_STORAGE_CLASS)")
}

// provider returns what makes sandboxes of pods. It need not be there yet.
func (o *kubeOptions) provider() (sandbox.Provider, error) {
	cluster, err := o.cluster()
	if err != nil {
		return nil, err
	}
	cluster.Namespace = or(o.namespace, cluster.Namespace)
	if o.node == "" {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "kubernetes: which node does this server run on? Its sandboxes run there, for they reach it by a socket of the node",
			Hint: "skep serve --sandbox-node NAME, as kubectl get nodes shows it; in a pod, have SKEP_SANDBOX_NODE from its field spec.nodeName",
		}
	}
	p, err := kube.New(&kube.Options{Cluster: cluster, Node: o.node, StorageClass: o.class, Pull: o.pull})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// cluster finds the cluster as kubectl does, but that a pod's own comes before a file of its user.
func (o *kubeOptions) cluster() (kube.Cluster, error) {
	file := o.config
	if file == "" {
		for _, f := range filepath.SplitList(os.Getenv("KUBECONFIG")) {
			if file == "" && exists(f) {
				file = f
			}
		}
	}
	if file == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		if home, err := os.UserHomeDir(); err == nil && exists(filepath.Join(home, ".kube", "config")) {
			file = filepath.Join(home, ".kube", "config")
		}
	}
	if file != "" {
		return kube.Kubeconfig(file, o.context)
	}
	if o.context != "" {
		return kube.Cluster{}, usageError("--sandbox-context %s: there is no kubeconfig that has it; name one by --sandbox-kubeconfig FILE", o.context)
	}
	return kube.Here()
}
