// Package kube makes boxes of pods, by the API of Kubernetes (https://kubernetes.io/docs/reference/kubernetes-api/), 1.30 or newer.
//
// A pod is created with a scheduling gate, so that it is not run before it is started. It has no network by a NetworkPolicy, which is as good as the cluster's
// network plugin; and it reaches the control plane by a socket of the node, so that boxes run on the node that the control plane runs on. What a cluster
// cannot do for a box is said by Probe. Nothing is tried on a real cluster by the tests of this package: they have an API server of their own.
package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// Options of a Provider. Within a cluster the zero value is the service account of the pod; its Node alone has to be given.
type Options struct {
	Server    string // https://HOST:PORT
	TokenFile string // of a bearer token; read for each request, for it changes
	CAFile    string // PEM of who signed the certificate of the server
	Namespace string
	// Node is the name of the node that this process runs on (the downward API has it as spec.nodeName). Boxes run there, for the sake of their sockets, whose
	// folders must have the same paths on the node as here. Without it there are no boxes.
	Node string
	// StorageClass is of the volumes of pets; the cluster's default unless given.
	StorageClass string
}

// account is where a pod finds its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

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
		host := os.Getenv("KUBERNETES_SERVICE_HOST")
		if host == "" {
			return nil, &agent.Error{
				Kind: agent.Invalid, Msg: "kubernetes: this process is in no cluster, and no address of an API server is given", Hint: "give the address, the token and the authority of a cluster",
			}
		}
		p.o.Server = "https://" + net.JoinHostPort(host, cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443"))
		p.o.TokenFile, p.o.CAFile = cmp.Or(o.TokenFile, account+"token"), cmp.Or(o.CAFile, account+"ca.crt")
		if here, err := os.ReadFile(account + "namespace"); err == nil {
			p.o.Namespace = cmp.Or(o.Namespace, strings.TrimSpace(string(here)))
		}
	}
	p.o.Server, p.o.Namespace = strings.TrimRight(p.o.Server, "/"), cmp.Or(p.o.Namespace, "default")
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.o.CAFile != "" {
		pem, err := os.ReadFile(p.o.CAFile)
		config.RootCAs = x509.NewCertPool()
		if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &agent.Error{Kind: agent.Invalid, Msg: "kubernetes: there is no certificate in " + p.o.CAFile, Err: err, Hint: "it is the authority of the API server, as PEM"}
		}
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
	if p.o.TokenFile != "" {
		token, err := os.ReadFile(p.o.TokenFile)
		if err != nil {
			return nil, &agent.Error{Kind: agent.Invalid, Msg: "kubernetes: the token of the API server cannot be read", Err: err, Hint: "mount a service account into this pod"}
		}
		h.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
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
		e.Hint = "its service account must get, list, create, patch and delete pods and persistentvolumeclaims, create networkpolicies, get pods/log, and create pods/attach and pods/exec"
	}
	return e
}

// Probe asks for the version, and whether pods may be listed.
func (p *Provider) Probe(ctx context.Context) agent.SandboxProvider {
	out := agent.SandboxProvider{Name: p.Name(), Isolation: "container"}
	var v struct{ GitVersion, Major, Minor string }
	err := p.call(ctx, "ask the version", http.MethodGet, "/version", "", nil, &v)
	if err == nil {
		err = p.call(ctx, "list pods", http.MethodGet, p.pod("")+"?limit=1", "", nil, nil)
	}
	switch {
	case err != nil:
		out.Error = err.Error()
	case p.o.Node == "":
		out.Error = "kubernetes: no node is named: boxes run on the node that this server runs on, for the sake of their sockets"
	}
	out.Ready, out.Version = out.Error == "", v.GitVersion
	for _, name := range sandbox.Capabilities() {
		c := less[name]
		if err != nil {
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

// less is what is not enforced, and why.
var less = map[string]agent.Capability{
	sandbox.NoNetwork:    {Level: agent.CapabilityPartial, Reason: "a NetworkPolicy denies all, as far as the network plugin of the cluster heeds it; the node itself may be reached"},
	sandbox.ReadOnlyRoot: {Level: agent.CapabilityPartial, Reason: "a box can write the termination log that its node keeps of it"},
	sandbox.LimitPids:    {Reason: "only the node has a bound, podPidsLimit of its kubelet"},
	sandbox.LimitVolume:  {Level: agent.CapabilityPartial, Reason: "as far as the storage class holds its volumes to their size"},
	sandbox.CanPause:     {Reason: "a pod cannot be held"},
	sandbox.CanSnapshot:  {Reason: "a pod cannot be made an image"},
	sandbox.CanWarm:      {Reason: "a pod of a pool waits at a scheduling gate"},
	sandbox.CanLog:       {Level: agent.CapabilityPartial, Reason: "standard output is in it too"},
}
