package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// kubelet runs pods in Docker, as far as their specs say how. Their network is none: that of a network plugin which heeds the policy that denies all.
type kubelet struct {
	t        testing.TB
	api      *client.Client
	dir      string // of claims
	setState func(name, phase string, state thing)

	ctx  context.Context
	work sync.WaitGroup
	mu   sync.Mutex
	has  []string // containers
}

func newKubelet(t testing.TB, docker string, setState func(string, string, thing)) *kubelet {
	api, err := client.New(client.WithHost(docker))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &kubelet{t: t, api: api, dir: t.TempDir(), setState: setState, ctx: ctx}
	t.Cleanup(func() {
		k.mu.Lock()
		left := slices.Clone(k.has)
		k.mu.Unlock()
		for _, name := range left {
			k.remove(name)
		}
		stop()
		k.work.Wait()
		api.Close()
	})
	return k
}

// pod is what is read of a spec.
type pod struct {
	Hostname        string
	SecurityContext struct{ RunAsUser, RunAsGroup int }
	Volumes         []volume
	Containers      []struct {
		Image, WorkingDir string
		Command, Args     []string
		Stdin, StdinOnce  bool
		Env               []struct{ Name, Value string }
		VolumeMounts      []struct {
			Name, MountPath, SubPath string
			ReadOnly                 bool
		}
		SecurityContext struct {
			AllowPrivilegeEscalation bool
			ReadOnlyRootFilesystem   bool
			Capabilities             struct{ Drop []string }
		}
		Resources struct {
			Limits struct{ Memory, CPU string }
		}
	}
}

type volume struct {
	Name     string
	EmptyDir *struct{ Medium, SizeLimit string }
	HostPath *struct{ Path, Type string }
	Claim    *struct{ ClaimName string } `json:"persistentVolumeClaim"`
}

// run runs a pod. What is wrong with it is said in its status.
func (k *kubelet) run(name string, spec any) {
	b, err := json.Marshal(spec)
	var p pod
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || len(p.Containers) != 1 {
		k.t.Errorf("the pod %s has no such spec: %s (%v)", name, b, err)
		return
	}
	k.work.Go(func() {
		ctx, cancel := within(k.ctx)
		err := k.start(ctx, name, &p)
		cancel()
		switch {
		case errdefs.IsNotFound(err):
			k.setState(name, "Pending", thing{"waiting": thing{"reason": "ErrImagePull", "message": "no registry has " + p.Containers[0].Image}})
		case err != nil:
			k.setState(name, "Pending", thing{"waiting": thing{"reason": "CreateContainerError", "message": err.Error()}})
		default:
			k.setState(name, "Running", thing{"running": thing{"startedAt": now()}})
			k.watch(name)
		}
	})
}

func (k *kubelet) start(ctx context.Context, name string, p *pod) error {
	c := p.Containers[0]
	memory, err := strconv.ParseInt(c.Resources.Limits.Memory, 10, 64)
	if err != nil {
		return err
	}
	cpu, err := strconv.ParseInt(strings.TrimSuffix(c.Resources.Limits.CPU, "m"), 10, 64)
	if err != nil {
		return err
	}
	config := &container.Config{
		Image: c.Image, Hostname: p.Hostname, User: fmt.Sprintf("%d:%d", p.SecurityContext.RunAsUser, p.SecurityContext.RunAsGroup),
		WorkingDir: c.WorkingDir, Entrypoint: c.Command, Cmd: c.Args, OpenStdin: c.Stdin, StdinOnce: c.StdinOnce,
	}
	for _, v := range c.Env {
		config.Env = append(config.Env, v.Name+"="+strings.ReplaceAll(v.Value, "$$", "$"))
	}
	host := &container.HostConfig{
		NetworkMode: "none", ReadonlyRootfs: c.SecurityContext.ReadOnlyRootFilesystem, CapDrop: c.SecurityContext.Capabilities.Drop, Tmpfs: map[string]string{},
		Resources: container.Resources{Memory: memory, MemorySwap: memory, CPUPeriod: 100_000, CPUQuota: cpu * 100},
	}
	if !c.SecurityContext.AllowPrivilegeEscalation {
		host.SecurityOpt = []string{"no-new-privileges"}
	}
	for _, m := range c.VolumeMounts {
		at := slices.IndexFunc(p.Volumes, func(v volume) bool { return v.Name == m.Name })
		if at < 0 {
			return fmt.Errorf("there is no volume %s", m.Name)
		}
		switch v := p.Volumes[at]; {
		case v.EmptyDir != nil:
			host.Tmpfs[m.MountPath] = fmt.Sprintf("rw,exec,nosuid,nodev,mode=1777,uid=%d,gid=%[1]d,size=%s", p.SecurityContext.RunAsGroup, v.EmptyDir.SizeLimit) // fsGroup
		case v.HostPath != nil:
			host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: v.HostPath.Path, Target: m.MountPath, ReadOnly: m.ReadOnly})
		case v.Claim != nil:
			dir := filepath.Join(k.dir, v.Claim.ClaimName, m.SubPath)
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return err
			}
			if err := os.Chmod(dir, 0o777); err != nil { // fsGroup
				return err
			}
			host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: dir, Target: m.MountPath})
		}
	}
	if _, err := k.api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: config, HostConfig: host}); err != nil {
		return err
	}
	k.mu.Lock()
	k.has = append(k.has, name)
	k.mu.Unlock()
	_, err = k.api.ContainerStart(ctx, name, client.ContainerStartOptions{})
	return err
}

// watch says how a container has ended, once it has.
func (k *kubelet) watch(name string) {
	wait := k.api.ContainerWait(k.ctx, name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Error: // it is gone
		return
	case <-wait.Result:
	}
	got, err := k.api.ContainerInspect(k.ctx, name, client.ContainerInspectOptions{})
	if err != nil {
		return
	}
	phase, reason := "Failed", "Error"
	switch s := got.Container.State; {
	case s.OOMKilled:
		reason = "OOMKilled"
	case s.ExitCode == 0:
		phase, reason = "Succeeded", "Completed"
	}
	k.setState(name, phase, thing{"terminated": thing{"exitCode": got.Container.State.ExitCode, "reason": reason, "finishedAt": got.Container.State.FinishedAt}})
}

// end ends a container within grace seconds, and calls gone when it is not there any more.
func (k *kubelet) end(name string, grace int, gone func()) {
	k.work.Go(func() {
		if grace > 0 {
			ctx, cancel := within(k.ctx)
			defer cancel()
			_, _ = k.api.ContainerStop(ctx, name, client.ContainerStopOptions{Timeout: &grace}) // one that has ended is removed
		}
		k.remove(name)
		gone()
	})
}

// remove removes a container, and waits for another that does.
func (k *kubelet) remove(name string) {
	ctx, cancel := within(context.Background())
	defer cancel()
	for {
		_, err := k.api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return
		case !errdefs.IsConflict(err) || ctx.Err() != nil:
			k.t.Errorf("remove the container of the pod %s: %v", name, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// forget deletes what a claim has.
func (k *kubelet) forget(claim string) {
	if err := os.RemoveAll(filepath.Join(k.dir, claim)); err != nil {
		k.t.Errorf("delete the claim %s: %v", claim, err)
	}
}

func (k *kubelet) attach(ctx context.Context, name string) (*client.HijackedResponse, error) {
	got, err := k.api.ContainerAttach(ctx, name, client.ContainerAttachOptions{Stream: true, Stdin: true})
	return &got.HijackedResponse, err
}

func (k *kubelet) exec(ctx context.Context, name string, command []string, out, errOut io.Writer) (int, error) {
	made, err := k.api.ExecCreate(ctx, name, client.ExecCreateOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return 0, err
	}
	io3, err := k.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return 0, err
	}
	defer io3.Close()
	if _, err := stdcopy.StdCopy(out, errOut, io3.Reader); err != nil {
		return 0, err
	}
	for {
		got, err := k.api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
		if err != nil || !got.Running {
			return got.ExitCode, err
		}
	}
}

func (k *kubelet) log(ctx context.Context, name string, lines int, w io.Writer) error {
	r, err := k.api.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(lines)})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = stdcopy.StdCopy(w, w, r)
	return err
}
