// Package kube makes boxes of pods, by the API of Kubernetes (https://kubernetes.io/docs/reference/kubernetes-api/), 1.30 or newer.
//
// A pod is created with a scheduling gate, so that it is not run before it is started. It has no network by a NetworkPolicy, which is as good as the cluster's
// network plugin; and it reaches the control plane by a socket of the node, so that boxes run on the node that the control plane runs on. What a cluster
// cannot do for a box is said by Probe. Nothing is tried on a real cluster by the tests: they have the one of package kubetest.
package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// Options of a Provider.
type Options struct {
	Cluster // Here unless its Server is given
	// Node is the name of the node that this process runs on (the downward API has it as spec.nodeName). Boxes run there, for the sake of their sockets, whose
	// folders must have the same paths on the node as here. Without it there are no boxes.
	Node string
	// StorageClass is of the volumes of pets; the cluster's default unless given.
	StorageClass string
	// Pull says when the node gets an image from its registry: Always, IfNotPresent or Never; IfNotPresent unless given.
	Pull string
}

// Provider is a sandbox.Provider that can run programs in boxes, read logs and keep volumes.
type Provider struct {
	o    Options
	http *http.Client
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Execer   = (*Provider)(nil)
	_ sandbox.Logger   = (*Provider)(nil)
	_ sandbox.Volumes  = (*Provider)(nil)
)

// New returns a provider. It does not connect. An error is Invalid.
func New(o *Options) (*Provider, error) {
	if o == nil {
		o = &Options{}
	}
	p := &Provider{o: *o}
	if p.o.Server == "" {
		here, err := Here()
		if err != nil {
			return nil, err
		}
		here.Namespace = cmp.Or(o.Namespace, here.Namespace)
		p.o.Cluster = here
	}
	p.o.Server, p.o.Namespace, p.o.Pull = strings.TrimRight(p.o.Server, "/"), cmp.Or(p.o.Namespace, "default"), cmp.Or(p.o.Pull, "IfNotPresent")
	if pulls := []string{"Always", "IfNotPresent", "Never"}; !slices.Contains(pulls, p.o.Pull) {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("kubernetes: %q says not when to pull an image", p.o.Pull), Hint: "there are " + strings.Join(pulls, ", ")}
	}
	config, err := p.o.tls()
	if err != nil {
		return nil, err
	}
	p.http = &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: false, Proxy: http.ProxyFromEnvironment}}
	return p, nil
}

// Name returns kubernetes.
func (p *Provider) Name() string { return "kubernetes" }

// Close closes idle connections.
func (p *Provider) Close() error {
	p.http.CloseIdleConnections()
	return nil
}

// path is that of a thing of the namespace, or of all of its kind.
func (p *Provider) path(group, kind, name string) string {
	return strings.TrimRight(group+"/namespaces/"+p.o.Namespace+"/"+kind+"/"+name, "/")
}

func (p *Provider) pod(name string) string { return p.path("/api/v1", "pods", name) }

// call makes one request; a body is JSON of that type. out is a pointer to what JSON is decoded into, an *[]byte for the text of the answer, or nil.
func (p *Provider) call(ctx context.Context, what, method, path, contentType string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.o.Server+path, body)
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "kubernetes: the address of the API server is of no use", Err: err, Hint: "an address is https://HOST:PORT"}
	}
	if req.Header, err = p.header(); err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := p.http.Do(req)
	if err != nil {
		return p.lost(what, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return p.lost(what, err)
	}
	if res.StatusCode >= 300 {
		return refused(what, res.StatusCode, answer)
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = answer
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &agent.Error{Kind: agent.Unavailable, Msg: "kubernetes: cannot " + what + ": the answer is no JSON", Err: err}
	}
	return nil
}

func (p *Provider) header() (http.Header, error) {
	h := http.Header{"Accept": {"application/json, */*"}}
	token := p.o.Token
	if p.o.TokenFile != "" {
		b, err := os.ReadFile(p.o.TokenFile)
		if err != nil {
			return nil, &agent.Error{Kind: agent.Invalid, Msg: "kubernetes: the token of the API server cannot be read", Err: err, Hint: "mount a service account into this pod"}
		}
		token = strings.TrimSpace(string(b))
	}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return h, nil
}

// lost is the error of a request that has no answer.
func (p *Provider) lost(what string, err error) error {
	e := &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("kubernetes: cannot %s: no answer from %s", what, p.o.Server), Err: err, Hint: "is the API server there, and its certificate of the authority that was given?"}
	if errors.Is(err, context.Canceled) {
		e.Kind = agent.Cancelled
	}
	return e
}

// refused is the error of a request that the API server refuses: it answers with a Status.
func refused(what string, code int, answer []byte) error {
	var status struct{ Message, Reason string }
	_ = json.Unmarshal(answer, &status)
	e := &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("kubernetes: cannot %s: %s", what, cmp.Or(status.Message, http.StatusText(code)))}
	switch code {
	case http.StatusNotFound:
		e.Kind = agent.NotFound
	case http.StatusConflict:
		e.Kind = agent.Conflict
		if status.Reason == "AlreadyExists" {
			e.Kind = agent.Exists
		}
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed:
		e.Kind = agent.Invalid
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Kind = agent.Denied
		e.Hint = "its service account must get, list, create, patch and delete pods and persistentvolumeclaims, create networkpolicies, get pods/log, and get and create pods/attach and pods/exec"
	}
	return e
}

// Probe asks for the version, whether pods may be listed, and whether the namespace and the node are there, as far as the account may see that.
func (p *Provider) Probe(ctx context.Context) agent.SandboxProvider {
	out := agent.SandboxProvider{Name: p.Name(), Isolation: "container"}
	if err := p.look(ctx, &out); err != nil {
		out.Error = err.Error()
	}
	out.Ready = out.Error == ""
	for _, name := range sandbox.Capabilities() {
		c := less[name]
		if out.Version == "" {
			c = agent.Capability{Reason: "the API server does not answer"}
		} else if name == sandbox.SocketMount && p.o.Node == "" {
			c = agent.Capability{Reason: "no node is named that this server runs on"}
		} else if c.Reason == "" {
			c.Level = agent.CapabilityEnforced
		}
		c.Name = name
		out.Capabilities = append(out.Capabilities, c)
	}
	return out
}

// oldest is the minor version from which scheduling gates are for good.
const oldest = 30

// look fills in the version and the runtimes, and returns why there can be no boxes.
func (p *Provider) look(ctx context.Context, out *agent.SandboxProvider) error {
	var v struct{ GitVersion, Major, Minor string }
	if err := p.call(ctx, "ask the version", http.MethodGet, "/version", "", nil, &v); err != nil {
		return err
	}
	out.Version = v.GitVersion
	if minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+")); err == nil && v.Major == "1" && minor < oldest {
		return agent.Errorf(agent.Invalid, "kubernetes: the cluster has version %s, and 1.%d or newer is needed", v.GitVersion, oldest)
	}
	if err := p.call(ctx, "list pods", http.MethodGet, p.pod("")+"?limit=1", "", nil, nil); err != nil {
		return err
	}
	if err := p.there(ctx, "namespace", p.o.Namespace); err != nil {
		return err
	}
	if p.o.Node == "" {
		return agent.Errorf(agent.Invalid, "kubernetes: no node is named: boxes run on the node that this server runs on, for the sake of their sockets")
	}
	if err := p.there(ctx, "node", p.o.Node); err != nil {
		return err
	}
	var err error
	if out.Runtimes, err = p.runtimes(ctx); agent.KindOf(err) == agent.Denied {
		err = nil // then an environment can name none
	}
	return err
}

// there returns an error when there is no such namespace or node. Whoever may not look at them is not told.
func (p *Provider) there(ctx context.Context, kind, name string) error {
	err := p.call(ctx, "look at the "+kind+" "+name, http.MethodGet, "/api/v1/"+kind+"s/"+name, "", nil, nil)
	switch agent.KindOf(err) {
	case agent.NotFound:
		return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("kubernetes: there is no %s %q", kind, name), Hint: "kubectl get " + kind + "s"}
	case agent.Denied:
		return nil
	}
	return err
}

// runtimes lists the RuntimeClasses of the cluster.
func (p *Provider) runtimes(ctx context.Context) ([]string, error) {
	return p.names(ctx, "list runtime classes", "/apis/node.k8s.io/v1/runtimeclasses")
}

// names returns the names of what a list has, sorted.
func (p *Provider) names(ctx context.Context, what, path string) ([]string, error) {
	var got struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := p.call(ctx, what, http.MethodGet, path, "", nil, &got); err != nil {
		return nil, err
	}
	var names []string
	for _, c := range got.Items {
		names = append(names, c.Metadata.Name)
	}
	slices.Sort(names)
	return names, nil
}

// less is what is not enforced, and why.
var less = map[string]agent.Capability{
	sandbox.NoNetwork:    {Level: agent.CapabilityPartial, Reason: "a NetworkPolicy denies all, as far as the network plugin of the cluster heeds it; the node itself may be reached"},
	sandbox.ReadOnlyRoot: {Level: agent.CapabilityPartial, Reason: "a box can write the termination log that its node keeps of it"},
	sandbox.LimitPids:    {Reason: "only the node has a bound, podPidsLimit of its kubelet"},
	sandbox.LimitVolume:  {Level: agent.CapabilityPartial, Reason: "as far as the storage class holds its volumes to their size"},
	sandbox.ImageContent: {Reason: "what is in an image is not known before a pod of it runs"},
	sandbox.CanPause:     {Reason: "a pod cannot be held"},
	sandbox.CanSnapshot:  {Reason: "a pod cannot be made an image"},
	sandbox.CanWarm:      {Reason: "a pod of a pool waits at a scheduling gate"},
	sandbox.CanLog:       {Level: agent.CapabilityPartial, Reason: "standard output is in it too"},
}
