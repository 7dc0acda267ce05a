package docker

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// cleanup is how long is taken to undo what was cut short.
const cleanup = 20 * time.Second

// Start starts a box with its standard input attached, unless it waits for this, and writes boot to it. Nothing of boot is kept by the engine.
func (p *Provider) Start(ctx context.Context, h sandbox.Handle, boot io.Reader) error {
	if !p.claim(h) {
		return p.notStartable(h, "is being started")
	}
	defer p.release(h)
	in, err := p.begun(ctx, h)
	if err != nil {
		return err
	}
	p.cool(h, false)
	defer in.Close()
	defer context.AfterFunc(ctx, in.Close)()
	if _, err := io.Copy(in.Conn, boot); err != nil {
		return p.undo(ctx, h, p.fail("give the box what it boots with", err))
	}
	if err := in.CloseWrite(); err != nil {
		return p.undo(ctx, h, p.fail("give the box what it boots with", err))
	}
	return nil
}

// Warm starts a box and keeps its standard input. When that is closed, as it is when this process dies, the driver finds its end, and so does the box.
func (p *Provider) Warm(ctx context.Context, h sandbox.Handle) error {
	if !p.claim(h) {
		return p.notStartable(h, "is being started")
	}
	defer p.release(h)
	in, err := p.begun(ctx, h)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warm[h] = in
	return nil
}

// begun returns the standard input of a box that runs and has been given nothing. The caller has claimed it.
func (p *Provider) begun(ctx context.Context, h sandbox.Handle) (client.HijackedResponse, error) {
	p.mu.Lock()
	in, warm := p.warm[h]
	p.mu.Unlock()
	var none client.HijackedResponse
	switch s, err := p.Inspect(ctx, h); {
	case err != nil:
		return none, err
	case s.Phase == sandbox.Absent:
		return none, &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("%s: there is no box %s", p.name, h), Hint: "it was deleted, or never made"}
	case s.Phase == sandbox.Exited: // Podman is not always done with what has ended, and loses what it is then given
		return none, p.notStartable(h, "has ended")
	case warm:
		return in, nil
	case s.Phase != sandbox.Created:
		return none, p.notStartable(h, "is running")
	}
	got, err := p.api.ContainerAttach(ctx, string(h), client.ContainerAttachOptions{Stream: true, Stdin: true})
	if err != nil {
		return none, p.fail("attach to the box", err)
	}
	in = got.HijackedResponse
	defer context.AfterFunc(ctx, in.Close)()
	if _, err := p.api.ContainerStart(ctx, string(h), client.ContainerStartOptions{}); err != nil {
		in.Close()
		return none, p.undo(ctx, h, p.fail("start the box", err)) // an answer that did not come may have been that it was started
	}
	return in, nil
}

// cool forgets the standard input of a box, and closes it if asked to.
func (p *Provider) cool(h sandbox.Handle, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in, ok := p.warm[h]; ok && end {
		in.Close()
	}
	delete(p.warm, h)
}

func (p *Provider) notStartable(h sandbox.Handle, why string) error {
	return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("%s: the box %s %s", p.name, h, why), Hint: "a box is started once; delete it and make another generation"}
}

// claim keeps two from writing to one standard input.
func (p *Provider) claim(h sandbox.Handle) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting[h] {
		return false
	}
	p.starting[h] = true
	return true
}

func (p *Provider) release(h sandbox.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.starting, h)
}

// undo stops a box that may run without all of its boot payload, and returns err.
func (p *Provider) undo(ctx context.Context, h sandbox.Handle, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_ = p.Stop(ctx, h, 0) // who gets err looks at the box again
	return err
}

// Inspect says where a box stands.
func (p *Provider) Inspect(ctx context.Context, h sandbox.Handle) (sandbox.State, error) {
	c, err := p.api.ContainerInspect(ctx, string(h), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return sandbox.State{Phase: sandbox.Absent}, nil
	case err != nil:
		return sandbox.State{}, p.fail("inspect a box", err)
	}
	return stateOf(&c.Container), nil
}

func stateOf(c *container.InspectResponse) sandbox.State {
	s := sandbox.State{Phase: phaseOf(c.State.Status), Reason: c.State.Error, OOM: c.State.OOMKilled}
	since := c.Created
	switch s.Phase {
	case sandbox.Running, sandbox.Paused:
		since = c.State.StartedAt
	case sandbox.Exited:
		since, s.Code = c.State.FinishedAt, c.State.ExitCode
	}
	s.Since, _ = time.Parse(time.RFC3339Nano, since)
	return s
}

// phaseOf reads the states of Docker, and those that Podman has besides. A container that is being removed has ended.
func phaseOf(s container.ContainerState) sandbox.Phase {
	switch s {
	case "created", "configured", "initialized":
		return sandbox.Created
	case "running", "restarting", "stopping":
		return sandbox.Running
	case "paused":
		return sandbox.Paused
	}
	return sandbox.Exited
}

// Stop sends TERM to the driver, and after grace, which is rounded up to seconds, KILL to all that is in the box.
func (p *Provider) Stop(ctx context.Context, h sandbox.Handle, grace time.Duration) error {
	s, err := p.Inspect(ctx, h)
	if err != nil {
		return err
	}
	if s.Phase == sandbox.Paused { // else it cannot hear
		if err := p.Resume(ctx, h); err != nil && agent.KindOf(err) != agent.Conflict {
			return err
		}
	}
	if s.Phase != sandbox.Paused && s.Phase != sandbox.Running {
		return nil
	}
	seconds := int(math.Ceil(grace.Seconds()))
	_, err = p.api.ContainerStop(ctx, string(h), client.ContainerStopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		return p.fail("stop a box", err)
	}
	return nil
}

// Delete kills what runs in a box and deletes it. When it returns nil, there is no such box.
func (p *Provider) Delete(ctx context.Context, h sandbox.Handle) error {
	p.cool(h, true)
	return p.remove(ctx, string(h))
}

// remove removes a container. One that someone else removes is waited for.
func (p *Provider) remove(ctx context.Context, name string) error {
	for {
		_, err := p.api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "in progress"):
			return p.fail("delete a box", err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return p.fail("delete a box", err)
		}
	}
}

// List lists the boxes of owner, with the phase of each.
func (p *Provider) List(ctx context.Context, owner string) ([]sandbox.Observed, error) {
	got, err := p.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", sandbox.OwnerLabel+"="+owner)})
	if err != nil {
		return nil, p.fail("list boxes", err)
	}
	var out []sandbox.Observed
	for _, c := range got.Items {
		if len(c.Names) == 0 {
			continue
		}
		generation, _ := strconv.ParseInt(c.Labels[sandbox.GenerationLabel], 10, 64) // 0: of nobody who is known
		out = append(out, sandbox.Observed{
			Handle: sandbox.Handle(strings.TrimPrefix(c.Names[0], "/")), ID: agent.SandboxID(c.Labels[sandbox.BoxLabel]), Generation: generation,
			State: sandbox.State{Phase: phaseOf(c.State), Reason: c.Status}, Created: time.Unix(c.Created, 0),
		})
	}
	return out, nil
}
