package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/image"
)

// Bounds that no one sets.
const (
	openFiles = 4096                                       // of a process
	processes = 1 << 15                                    // of the user, over all boxes: it only replaces a default of Podman, which may be more than it can give; pids bounds each box
	logSize   = "1m"                                       // of what the driver writes to its standard error, twice over
	cpuPeriod = 100_000                                    // microseconds
	closed    = "ro,noexec,nosuid,nodev,size=64k,mode=755" // a tmpfs where nothing is to be written
)

// Create makes the container of r, and for a pet its volumes. It returns the one that is there when there is one.
func (p *Provider) Create(ctx context.Context, r *sandbox.Request) (sandbox.Handle, error) {
	h := r.Handle()
	if there, err := p.existing(ctx, h, r); there || err != nil {
		return h, err
	}
	e, err := p.known(ctx)
	if err != nil {
		return "", err
	}
	if p.local { // Podman would make a folder of what is not there
		if err := r.CheckFiles(p.name, "is the engine on another machine, or was the folder of the server moved?"); err != nil {
			return "", err
		}
	}
	if err := p.checkRuntime(ctx, r.Runtime); err != nil {
		return "", err
	}
	found, err := p.image(ctx, r.Image, e)
	if err != nil {
		return "", err
	}
	if err := image.Need(r.Image, found.labels, r.Packages); err != nil {
		return "", err
	}
	if r.Volume != "" {
		if err := p.ensureVolumes(ctx, r, found.ref); err != nil {
			return "", err
		}
	}
	made := client.ContainerCreateOptions{Name: string(h), Config: configOf(r, found), HostConfig: hostConfigOf(r, found, e)}
	for end := time.Now().Add(cleanup); ; {
		_, err := p.api.ContainerCreate(ctx, made)
		if err == nil {
			return h, nil
		}
		if !nameTaken(err) {
			return "", p.fail("make a box of the image "+r.Image, err)
		}
		// Another makes it, or it is being deleted: the name is taken, and the box is not there yet, or not any more.
		if there, err := p.existing(ctx, h, r); there || err != nil {
			return h, err
		}
		if time.Now().After(end) {
			return "", &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("%s: the name of the box %s is not set free", p.name, h), Hint: "try again"}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return "", p.fail("make a box", err)
		}
	}
}

// nameTaken knows the answer of Podman too, which may be an error of the server.
func nameTaken(err error) bool {
	return errdefs.IsConflict(err) || strings.Contains(err.Error(), "is already in use")
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// existing tells whether the box of r is there. Another's of that name is a Conflict.
func (p *Provider) existing(ctx context.Context, h sandbox.Handle, r *sandbox.Request) (bool, error) {
	c, err := p.api.ContainerInspect(ctx, string(h), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, p.fail("look for a box", err)
	}
	for name, value := range r.Labels() {
		if c.Container.Config == nil || c.Container.Config.Labels[name] != value {
			return false, &agent.Error{
				Kind: agent.Conflict, Msg: fmt.Sprintf("%s: there is a container %s that is not of this server: its label %s is not %s", p.name, h, name, value),
				Hint: "remove it: docker rm -f " + string(h),
			}
		}
	}
	return true, nil
}

// checkRuntime refuses a runtime that would not be used, or would not let a box reach its socket. Podman's API takes the name of any, and uses its own.
func (p *Provider) checkRuntime(ctx context.Context, runtime string) error {
	if runtime == "" {
		return nil
	}
	e, err := p.ask(ctx) // anew: an engine reads its list of runtimes again when told to
	if err != nil {
		return err
	}
	if !slices.Contains(e.runtimes(), runtime) {
		return sandbox.NoRuntime(p.name, runtime, e.runtimes(), "runtimes are named in /etc/docker/daemon.json, and for Podman in containers.conf")
	}
	args := e.Runtimes[runtime].Args
	if runtimeIsolation(runtime) == "user-kernel" && !slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(strings.TrimLeft(a, "-"), "host-uds=") && !strings.HasSuffix(a, "=none") && !strings.HasSuffix(a, "=create")
	}) {
		return &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("%s: the runtime %s does not let a box open a socket of the host", p.name, runtime),
			Hint: `add "--host-uds=open" to its runtimeArgs in /etc/docker/daemon.json, and restart the engine`,
		}
	}
	return nil
}

// foundImage is an image by the name that the engine has it by.
type foundImage struct {
	ref     string
	labels  map[string]string
	volumes []string // that it declares
}

// image finds an image. Podman has what it built or imported under localhost/, and looks for a name without a registry elsewhere.
func (p *Provider) image(ctx context.Context, name string, e *engine) (foundImage, error) {
	refs := []string{name}
	if e.podman {
		refs = append(refs, "localhost/"+name)
	}
	for _, ref := range refs {
		i, err := p.api.ImageInspect(ctx, ref)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return foundImage{}, p.fail("look for the image "+name, err)
		}
		found := foundImage{ref: ref}
		if i.Config != nil {
			found.labels = i.Config.Labels
			for path := range i.Config.Volumes {
				found.volumes = append(found.volumes, path)
			}
		}
		return found, nil
	}
	return foundImage{}, &agent.Error{
		Kind: agent.NotFound, Msg: fmt.Sprintf("%s: there is no image %s", p.name, name),
		Hint: "make one with skep image build, or have the engine pull it; images are never pulled by themselves",
	}
}

func configOf(r *sandbox.Request, of foundImage) *container.Config {
	c := &container.Config{
		Image: of.ref, Hostname: "box", User: fmt.Sprintf("%d:%d", sandbox.UserID, sandbox.UserID), WorkingDir: sandbox.Workspace,
		Entrypoint: []string{sandbox.Driver}, Cmd: r.Args,
		OpenStdin: true, StdinOnce: true, AttachStdin: true, // for the boot payload, and closed after it
		StopSignal: "SIGTERM", Labels: r.Labels(), Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // whatever the image says
	}
	if _, ok := r.Variables["HOME"]; !ok {
		c.Env = append(c.Env, "HOME="+sandbox.Home) // which the image need not know
	}
	for name, value := range r.Variables {
		c.Env = append(c.Env, name+"="+value)
	}
	slices.Sort(c.Env)
	return c
}

func hostConfigOf(r *sandbox.Request, of foundImage, e *engine) *container.HostConfig {
	yes := true
	h := &container.HostConfig{
		NetworkMode: "none", IpcMode: "private", ReadonlyRootfs: true, Init: &yes, Runtime: r.Runtime,
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		Resources: container.Resources{
			Memory: r.Size.Memory, MemorySwap: r.Size.Memory, // no swap beside it
			CPUPeriod: cpuPeriod, CPUQuota: max(1000, int64(r.Size.CPUs*cpuPeriod)), // a number of CPUs is refused when the machine has fewer
			PidsLimit: &r.Size.Pids,
			Ulimits:   []*container.Ulimit{{Name: "core"}, {Name: "nofile", Soft: openFiles, Hard: openFiles}},
		},
		LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": logSize, "max-file": "2"}},
		Tmpfs:     tmpfsOf(r, e),
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: r.Sockets, Target: sandbox.SocketDir, ReadOnly: true},
			{Type: mount.TypeBind, Source: r.Driver, Target: sandbox.Driver, ReadOnly: true},
		},
	}
	if _, ok := e.security("selinux"); ok { // its policy lets no container connect to a socket of the host, however that is labelled
		h.SecurityOpt = append(h.SecurityOpt, "label=disable")
	}
	if e.podman {
		h.LogConfig.Config = map[string]string{"max-size": logSize}
	}
	if e.podman && !e.user {
		h.Ulimits = append(h.Ulimits, &container.Ulimit{Name: "nproc", Soft: processes, Hard: processes})
	}
	if r.Volume != "" {
		for target := range kept {
			h.Mounts = append(h.Mounts, volumeMount(r.Volume, target))
		}
	}
	for _, path := range of.volumes { // else the engine makes a volume of each, which could be written
		if _, ours := h.Tmpfs[path]; !ours && !slices.ContainsFunc(h.Mounts, func(m mount.Mount) bool { return m.Target == path }) {
			h.Tmpfs[path] = closed
		}
	}
	return h
}

// tmpfsOf splits the disk of r. Podman knows no owner of a tmpfs, so all who are in the box may write it: there is one user.
func tmpfsOf(r *sandbox.Request, e *engine) map[string]string {
	own := fmt.Sprintf("mode=700,uid=%d,gid=%d", sandbox.UserID, sandbox.UserID)
	if e.podman {
		own = "mode=1777"
	}
	of := func(size int64, mode string) string {
		return fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,%s", size, mode)
	}
	out := map[string]string{"/tmp": of(r.Size.Disk/4, "mode=1777")}
	if e.podman { // it has these for a root that cannot be written, unless it is told otherwise
		for _, dir := range []string{"/run", "/var/tmp"} {
			out[dir] = closed
		}
	}
	if r.Volume == "" {
		out[sandbox.Workspace], out[sandbox.Home] = of(r.Size.Disk/2, own), of(r.Size.Disk/4, own)
	}
	return out
}
