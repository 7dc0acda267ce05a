// Package docker makes boxes of Docker Engine and of Podman, by the API that both speak (https://docs.docker.com/reference/api/engine/; Podman at its
// Docker-compatible socket). Package image, which makes images, speaks it too.
//
// A box is one container: no network, a root that cannot be written, no capabilities, no new privileges, the engine's filter of system calls, and bounds for
// memory, processors, processes and files. Nothing is kept here: a box is found by its name, which is made of owner, sandbox and generation, and by its labels.
package docker

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// Options of a Provider. The zero value is Docker Engine, where the environment says that it is.
type Options struct {
	Name string // docker unless given; podman looks for Podman's socket
	// Host is where the engine listens: unix:///PATH, tcp://HOST:PORT or the path of a Unix socket. Unless given it is DOCKER_HOST, with its certificates of
	// DOCKER_CERT_PATH, or /var/run/docker.sock; for podman CONTAINER_HOST, or the socket of the system or, when not root, of the user.
	Host string
}

// Provider is a sandbox.Provider with all abilities.
type Provider struct {
	name  string
	host  string // as the client has it
	api   *client.Client
	local bool // the engine sees the files that we see

	mu       sync.Mutex
	engine   *engine // once known
	starting map[sandbox.Handle]bool
	warm     map[sandbox.Handle]client.HijackedResponse // standard inputs of boxes that wait for their boot payload
}

var (
	_ sandbox.Provider    = (*Provider)(nil)
	_ sandbox.Execer      = (*Provider)(nil)
	_ sandbox.Pauser      = (*Provider)(nil)
	_ sandbox.Snapshotter = (*Provider)(nil)
	_ sandbox.Warmer      = (*Provider)(nil)
	_ sandbox.Logger      = (*Provider)(nil)
	_ sandbox.Volumes     = (*Provider)(nil)
)

// New returns a provider. It does not connect: Probe says whether the engine is there. An error is Invalid.
func New(o *Options) (*Provider, error) {
	if o == nil {
		o = &Options{}
	}
	p := &Provider{name: cmp.Or(o.Name, "docker"), starting: map[sandbox.Handle]bool{}, warm: map[sandbox.Handle]client.HijackedResponse{}}
	host := o.Host
	if host == "" && p.name == "podman" {
		host = podmanHost()
	}
	if filepath.IsAbs(host) {
		host = "unix://" + host
	}
	opts := []client.Opt{client.FromEnv}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	api, err := client.New(opts...)
	if err != nil {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("%s: the address of the engine, %q, is of no use", p.name, cmp.Or(host, os.Getenv("DOCKER_HOST"))), Err: err,
			Hint: "an address is the path of a Unix socket, unix:///PATH or tcp://HOST:PORT",
		}
	}
	p.api, p.host = api, api.DaemonHost()
	u, err := url.Parse(p.host)
	p.local = err == nil && u.Scheme == "unix"
	return p, nil
}

// podmanHost is where podman(1) finds its service: CONTAINER_HOST, else the socket of podman-system-service(1).
func podmanHost() string {
	if h := os.Getenv("CONTAINER_HOST"); h != "" {
		return h
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); os.Getuid() != 0 && dir != "" {
		return "unix://" + dir + "/podman/podman.sock"
	}
	return "unix:///run/podman/podman.sock"
}

// Name returns Options.Name.
func (p *Provider) Name() string { return p.name }

// Close closes idle connections, and ends the boxes that wait for a boot payload.
func (p *Provider) Close() error {
	p.mu.Lock()
	for h, in := range p.warm {
		in.Close()
		delete(p.warm, h)
	}
	p.mu.Unlock()
	return p.api.Close()
}

// known asks once what the engine is. What boxes are made by does not change while it runs.
func (p *Provider) known(ctx context.Context) (*engine, error) {
	p.mu.Lock()
	e := p.engine
	p.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := p.ask(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.engine = e
	p.mu.Unlock()
	return e, nil
}
