// Package kubetest has a cluster for tests: an API server with pods, claims and policies of one namespace, and a node. It checks what the real one checks of
// what package kube uses: names that are taken, a gate that can only be taken away, a token. Its node runs pods in Docker, as a kubelet would, or only says
// that it does.
package kubetest

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What there is in each cluster.
const (
	Namespace = "boxes"
	Node      = "this-node"
	Token     = "secret"
	Runtime   = "gvisor" // a class of runtimes, which is that of all pods
	Container = "box"
)

// Cluster is an API server. Its fields are set before it is asked anything.
type Cluster struct {
	URL     string
	CA      []byte // PEM
	Waiting string // reason why a started pod does not run; of one whose node only says that it runs
	Minor   int    // of its version 1.Minor; 33 unless given
	Old     bool   // it speaks the fourth protocol of streams alone

	t      testing.TB
	node   *kubelet // nil: it only says so
	mu     sync.Mutex
	things map[string]thing  // by path
	boot   map[string]string // by pod, what was written to its standard input
	closed map[string]bool   // by pod: that was closed by word
}

type thing = map[string]any

// New starts a cluster until the test ends. Its node runs pods at the Docker engine at docker, or with "" only says that it does.
func New(t testing.TB, docker string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, things: map[string]thing{}, boot: map[string]string{}, closed: map[string]bool{}}
	for _, path := range []string{"/api/v1/namespaces/" + Namespace, "/api/v1/nodes/" + Node, "/apis/node.k8s.io/v1/runtimeclasses/" + Runtime} {
		c.things[path] = thing{"metadata": thing{"name": path[strings.LastIndex(path, "/")+1:]}}
	}
	if docker != "" {
		c.node = newKubelet(t, docker, c.setState)
	}
	h := httptest.NewTLSServer(c)
	t.Cleanup(h.Close)
	c.URL, c.CA = h.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return c
}

// Kubeconfig writes one whose current context is the cluster, and returns its path.
func (c *Cluster) Kubeconfig(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts:
- name: test
  context: {cluster: test, user: skep, namespace: %s}
clusters:
- name: test
  cluster: {server: %q, certificate-authority: ca.crt}
users:
- name: skep
  user: {token: %s}
`, Namespace, c.URL, Token)
	for name, b := range map[string][]byte{"config": []byte(text), "ca.crt": c.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config")
}

// Thing returns as JSON what the cluster has at a path; "null" for nothing.
func (c *Cluster) Thing(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := json.Marshal(c.things[path])
	return string(b)
}

// Everything returns as JSON all that the cluster has.
func (c *Cluster) Everything() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := json.Marshal(c.things)
	return string(b)
}

// Boot returns what was written to the standard input of a pod, and whether that was closed by word.
func (c *Cluster) Boot(name string) (text string, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot[name], c.closed[name]
}

// PodPath is where a pod is.
func PodPath(name string) string { return pods + name }

const (
	pods   = "/api/v1/namespaces/" + Namespace + "/pods/"
	claims = "/api/v1/namespaces/" + Namespace + "/persistentvolumeclaims/"
)

// End has a pod's container end, as the kubelet says it.
func (c *Cluster) End(name string, code int, reason string) {
	c.setState(name, "Failed", thing{"terminated": thing{"exitCode": code, "reason": reason, "finishedAt": "2026-01-02T03:04:05Z"}})
}

func (c *Cluster) setState(name, phase string, state thing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pod := c.things[pods+name]; pod != nil {
		pod["status"] = thing{"phase": phase, "containerStatuses": []any{thing{"name": Container, "state": state}}}
	}
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(thing{"kind": "Status", "code": code, "reason": reason, "message": message})
}

func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	path := r.URL.Path
	name, verb, _ := strings.Cut(strings.TrimPrefix(path, pods), "/")
	switch {
	case path == "/version":
		fmt.Fprintf(w, `{"gitVersion":"v1.%d.1","major":"1","minor":"%[1]d+"}`, cmp.Or(c.Minor, 33))
	case verb == "attach":
		c.attach(w, r, name)
	case verb == "exec":
		c.exec(w, r, name)
	case verb == "log":
		c.log(w, r, name)
	case r.Method == http.MethodPost:
		c.post(w, r)
	default:
		c.rest(w, r)
	}
}

func (c *Cluster) post(w http.ResponseWriter, r *http.Request) {
	var in thing
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		status(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	meta := in["metadata"].(thing)
	path := r.URL.Path + "/" + meta["name"].(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.things[path] != nil {
		status(w, http.StatusConflict, "AlreadyExists", path+" already exists")
		return
	}
	meta["creationTimestamp"] = now()
	if strings.HasPrefix(path, pods) {
		in["status"] = thing{"phase": "Pending"}
	}
	c.things[path] = in
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(in)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

func (c *Cluster) rest(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains([]string{"pods", "persistentvolumeclaims", "runtimeclasses"}, path[strings.LastIndex(path, "/")+1:]) {
		c.list(w, path, r.URL.Query().Get("labelSelector"))
		return
	}
	at := c.things[path]
	if at == nil {
		status(w, http.StatusNotFound, "NotFound", path+" not found")
		return
	}
	switch r.Method {
	case http.MethodDelete:
		c.remove(path, r)
	case http.MethodPatch:
		spec := at["spec"].(thing)
		if r.Header.Get("Content-Type") != "application/json-patch+json" || spec["schedulingGates"] == nil {
			status(w, http.StatusUnprocessableEntity, "Invalid", "the server rejected our request due to an error in our request")
			return
		}
		delete(spec, "schedulingGates")
		c.run(path, at)
	}
	_ = json.NewEncoder(w).Encode(at)
}

// run has the node run a pod that is scheduled.
func (c *Cluster) run(path string, pod thing) {
	phase, state := "Running", thing{"running": thing{"startedAt": now()}}
	switch {
	case c.node != nil:
		phase, state = "Pending", thing{"waiting": thing{"reason": "ContainerCreating"}}
		c.node.run(strings.TrimPrefix(path, pods), pod["spec"])
	case c.Waiting != "":
		phase, state = "Pending", thing{"waiting": thing{"reason": c.Waiting, "message": "of the kubelet"}}
	}
	pod["status"] = thing{"phase": phase, "containerStatuses": []any{thing{"name": Container, "state": state}}}
}

// remove deletes something: a pod that runs once its node has ended it.
func (c *Cluster) remove(path string, r *http.Request) {
	name, isPod := strings.CutPrefix(path, pods)
	if claim, ok := strings.CutPrefix(path, claims); ok && c.node != nil {
		c.node.forget(claim)
	}
	if !isPod || c.node == nil {
		delete(c.things, path)
		return
	}
	var options struct{ GracePeriodSeconds int }
	_ = json.NewDecoder(r.Body).Decode(&options) // none is at once
	at := c.things[path]
	at["metadata"].(thing)["deletionTimestamp"] = now()
	c.node.end(name, options.GracePeriodSeconds, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.things, path)
	})
}

// list lists what has a label, KEY=VALUE or KEY; everything for "".
func (c *Cluster) list(w http.ResponseWriter, path, selector string) {
	key, value, valued := strings.Cut(selector, "=")
	items := []any{}
	for at, thing := range c.things {
		labels, _ := thing["metadata"].(map[string]any)["labels"].(map[string]any)
		label, has := labels[key]
		if strings.HasPrefix(at, path+"/") && (selector == "" || has && (!valued || label == value)) {
			items = append(items, thing)
		}
	}
	_ = json.NewEncoder(w).Encode(thing{"items": items})
}

// longest is how long what a test does with a pod may take.
const longest = 2 * time.Minute

func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, longest)
}
