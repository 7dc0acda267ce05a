package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// engine is what an engine says of itself.
type engine struct {
	system.Info
	about  client.ServerVersionResult
	podman bool // whatever the provider is called: DOCKER_HOST may lead to Podman's socket
	user   bool // it is of a user, not of root
	local  bool // it sees the files that we see
}

func (p *Provider) ask(ctx context.Context) (*engine, error) {
	v, err := p.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, p.fail("ask the engine what it is", err)
	}
	info, err := p.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, p.fail("ask the engine what it has", err)
	}
	e := &engine{Info: info.Info, about: v, local: p.local}
	for _, c := range v.Components {
		e.podman = e.podman || strings.HasPrefix(c.Name, "Podman")
	}
	_, e.user = e.security("rootless")
	if e.podman {
		if e.user, err = p.podmanRootless(ctx); err != nil {
			return nil, p.fail("ask the engine whose it is", err)
		}
	}
	return e, nil
}

// podmanRootless reads a field of /info that Podman alone has, and has instead of the option that Docker shows.
func (p *Provider) podmanRootless(ctx context.Context) (bool, error) {
	dial := p.api.Dialer()
	h := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://podman/info", nil)
	if err != nil {
		return false, err
	}
	res, err := h.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	var info struct{ Rootless bool }
	return info.Rootless, json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&info)
}

// Probe asks the engine for its version, and for what it can do and limit on this machine.
func (p *Provider) Probe(ctx context.Context) agent.SandboxProvider {
	out := agent.SandboxProvider{Name: p.name, Isolation: "container"}
	e, err := p.ask(ctx)
	if err != nil {
		out.Error = err.Error()
		for _, name := range sandbox.Capabilities() {
			out.Capabilities = append(out.Capabilities, agent.Capability{Name: name, Reason: "the engine at " + p.host + " does not answer"})
		}
		return out
	}
	out.Ready = e.OSType == "linux"
	if !out.Ready {
		out.Error = fmt.Sprintf("%s: its containers are of %s; boxes are of linux", p.name, e.OSType)
	}
	out.Version, out.Isolation, out.Runtimes, out.Capabilities = e.version(), e.isolation(), e.runtimes(), e.capabilities()
	return out
}

func (e *engine) version() string {
	about := []string{"API " + e.about.APIVersion}
	if e.CgroupVersion != "" {
		about = append(about, "cgroup v"+e.CgroupVersion)
	}
	if e.user {
		about = append(about, "rootless")
	}
	return e.about.Version + " (" + strings.Join(about, ", ") + ")"
}

// security tells whether SecurityOptions, such as name=seccomp,profile=builtin, has name, and returns its profile.
func (e *engine) security(name string) (profile string, ok bool) {
	for _, option := range e.SecurityOptions {
		fields := strings.Split(option, ",")
		if fields[0] != "name="+name && fields[0] != name {
			continue
		}
		for _, f := range fields[1:] {
			if v, is := strings.CutPrefix(f, "profile="); is {
				profile = v
			}
		}
		return profile, true
	}
	return "", false
}

// isolation is that of the runtime that boxes have unless they ask for another.
func (e *engine) isolation() string {
	if s := runtimeIsolation(e.DefaultRuntime); s != "container" {
		return s
	}
	if _, remapped := e.security("userns"); remapped || e.user {
		return "user-namespace"
	}
	return "container"
}

func runtimeIsolation(runtime string) string {
	switch {
	case strings.Contains(runtime, "runsc"), strings.Contains(runtime, "gvisor"):
		return "user-kernel"
	case strings.Contains(runtime, "kata"), strings.Contains(runtime, "krun"):
		return "vm"
	}
	return "container"
}

// runtimes lists what Request.Runtime may name. Podman lists what it has heard of, there or not, and its API takes none but its own.
func (e *engine) runtimes() []string {
	if e.podman {
		return []string{e.DefaultRuntime}
	}
	var names []string
	for name := range e.Runtimes {
		if !strings.HasPrefix(name, "io.containerd.") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (e *engine) capabilities() []agent.Capability {
	level := map[string]agent.Capability{
		sandbox.SocketMount: e.sockets(),
		sandbox.Seccomp:     e.seccomp(),
		sandbox.LimitMemory: e.memory(),
		sandbox.LimitCPU:    e.cpu(),
		sandbox.LimitPids:   e.limit(e.PidsLimit),
		sandbox.CanPause:    enforced,
		sandbox.LimitVolume: none("the volumes of the engine have no bound"),
	}
	if e.user && e.CgroupVersion == "1" {
		level[sandbox.CanPause] = none("a rootless engine on cgroup v1 cannot freeze")
	}
	var list []agent.Capability
	for _, name := range sandbox.Capabilities() {
		c, ok := level[name]
		if !ok {
			c = enforced // by the profile of each box, wherever it is
		}
		c.Name = name
		list = append(list, c)
	}
	return list
}

var enforced = agent.Capability{Level: agent.CapabilityEnforced}

func none(reason string) agent.Capability { return agent.Capability{Reason: reason} }
func partial(reason string) agent.Capability {
	return agent.Capability{Level: agent.CapabilityPartial, Reason: reason}
}

// sockets: a socket is mounted only into a box that runs on the kernel that the control plane runs on.
func (e *engine) sockets() agent.Capability {
	switch {
	case !e.local:
		return none("the engine is on another machine")
	case strings.Contains(e.OperatingSystem, "Docker Desktop"):
		return none("Docker Desktop has its boxes in a virtual machine, which does not reach sockets of the host")
	}
	return enforced
}

func (e *engine) seccomp() agent.Capability {
	profile, ok := e.security("seccomp")
	switch {
	case !ok:
		return none("the kernel or the engine has no seccomp")
	case profile == "unconfined":
		return none("the engine was told to filter nothing (seccomp-profile unconfined)")
	}
	return enforced
}

func (e *engine) memory() agent.Capability {
	c := e.limit(e.MemoryLimit)
	if c.Level == agent.CapabilityEnforced && !e.SwapLimit {
		return partial("the kernel does not account for swap: a box may have as much again of it (boot with swapaccount=1)")
	}
	return c
}

func (e *engine) cpu() agent.Capability {
	c := e.limit(e.CPUCfsQuota && e.CPUCfsPeriod)
	if c.Level == agent.CapabilityEnforced && e.podman && e.user {
		return partial("if the controller is delegated to the user of the engine, which it is not everywhere")
	}
	return c
}

// limit tells whether the engine can hold a bound. What a Podman of a user says of itself is what the machine has, and on cgroup v1 it may not use it.
func (e *engine) limit(has bool) agent.Capability {
	switch {
	case has && (!e.podman || !e.user || e.CgroupVersion != "1"):
		return enforced
	case e.user:
		return none("a rootless engine needs cgroup v2, and the controller delegated to its user")
	}
	return none("the kernel has no such controller for the engine")
}
