package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	boxImage   = "skep-crash/boxagent:latest" // stays in the engine
	boxBase    = "skep-crash/base:latest"
	boxProgram = "/usr/local/bin/boxagent"

	ownerLabel = "dev.skep.owner"
	boxLabel   = "dev.skep.sandbox"
)

// docker runs the engine's client, and returns what it says.
func docker(ctx context.Context, args ...string) (string, error) {
	var said, bad bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdout, cmd.Stderr = &said, &bad
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, bad.Bytes())
	}
	return strings.TrimSpace(said.String()), nil
}

// buildBox builds the driver, and an image with what works in the boxes.
func (s *settings) buildBox(ctx context.Context) error {
	s.driver = filepath.Join(s.dir, "skep-driver")
	program := filepath.Join(s.dir, "boxagent")
	for file, of := range map[string]string{s.driver: "cmd/skep-driver", program: "internal/crash/boxagent"} {
		build := exec.CommandContext(ctx, "go", "build", "-o", file, "github.com/skep-dev/skep/"+of)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", of, err, said)
		}
	}
	if err := os.Chmod(s.dir, 0o755); err != nil { // the engine may be another user's
		return err
	}
	if said, err := exec.CommandContext(ctx, s.program, "image", "build", boxBase).CombinedOutput(); err != nil {
		return fmt.Errorf("make an image: %w: %s", err, said)
	}
	box, err := docker(ctx, "create", boxBase, boxProgram)
	if err != nil {
		return err
	}
	_, _ = docker(ctx, "rmi", boxImage) // of before, where there is one and nobody uses it
	_, err = docker(ctx, "cp", program, box+":"+boxProgram)
	if err == nil {
		_, err = docker(ctx, "commit", box, boxImage)
	}
	_, bad := docker(context.WithoutCancel(ctx), "rm", "-f", box)
	return errors.Join(err, bad)
}

// ownerOf returns whose a sandbox's container is.
func ownerOf(ctx context.Context, id agent.SandboxID) (string, error) {
	return docker(ctx, "ps", "-a", "--filter", "label="+boxLabel+"="+string(id), "--format", `{{.Label "`+ownerLabel+`"}}`)
}

// container is one of the server's.
type container struct {
	id      string
	sandbox agent.SandboxID
	state   string // created, running, exited, ...
}

func containers(ctx context.Context, owner string) (out []container, err error) {
	said, err := docker(ctx, "ps", "-a", "--no-trunc", "--filter", "label="+ownerLabel+"="+owner, "--format", `{{.ID}} {{.Label "`+boxLabel+`"}} {{.State}}`)
	for _, line := range strings.Split(said, "\n") {
		if f := strings.Fields(line); len(f) == 3 {
			out = append(out, container{f[0], agent.SandboxID(f[1]), f[2]})
		}
	}
	return out, err
}

// volumes are the names of what is kept of pets.
func volumes(ctx context.Context, owner string) ([]string, error) {
	said, err := docker(ctx, "volume", "ls", "-q", "--filter", "label="+ownerLabel+"="+owner)
	return strings.Fields(said), err
}

// removeAll removes what there is of an owner.
func removeAll(ctx context.Context, owner string) error {
	list, err := containers(ctx, owner)
	for _, c := range list {
		_, bad := docker(ctx, "rm", "-f", c.id)
		err = errors.Join(err, bad)
	}
	names, bad := volumes(ctx, owner)
	err = errors.Join(err, bad)
	for _, name := range names {
		_, bad := docker(ctx, "volume", "rm", name)
		err = errors.Join(err, bad)
	}
	return err
}

// strikes kills servers, containers and drivers, as often as a round does: one of each first, however late it is then.
func (r *boxRound) strikes(ctx context.Context) error {
	draw := []int{0, 3, 6}
	r.rng.Shuffle(len(draw), func(i, j int) { draw[i], draw[j] = draw[j], draw[i] })
	for i := 0; i < r.lives && (i < len(draw) || time.Now().Before(r.deadline)); i++ {
		if err := r.someTime(ctx); err != nil {
			return err
		}
		n := r.rng.IntN(10)
		if i < len(draw) {
			n = draw[i]
		}
		var err error
		switch {
		case n < 3:
			err = r.strikeOne(ctx, "containers", r.killContainer)
		case n < 6:
			err = r.strikeOne(ctx, "drivers", killDriver)
		default:
			err = r.endServer(ctx, n == 9)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// someTime lets a run come some way, and sometimes hardly any.
func (r *boxRound) someTime(ctx context.Context) error {
	if r.rng.IntN(5) == 0 {
		return r.sometimeSoon(ctx)
	}
	return sleep(ctx, time.Duration(500+r.rng.IntN(3500))*time.Millisecond)
}

// endServer kills the server, or stops it, and starts it again. Sometimes a box dies meanwhile.
func (r *boxRound) endServer(ctx context.Context, stop bool) error {
	r.mu.Lock()
	r.up = make(chan struct{})
	r.mu.Unlock()
	if stop {
		r.note("stops")
		if err := r.server.stop(); err != nil {
			return err
		}
	} else {
		if r.server.kill() {
			return fmt.Errorf("the server ended by itself: %.2000s", r.server.stderr.Bytes())
		}
		r.note("kills")
		r.note("kills of servers")
	}
	if r.rng.IntN(4) == 0 {
		if _, err := r.strike(ctx, "containers while there is no server", r.killContainer); err != nil {
			return err
		}
	}
	return r.start(ctx)
}

// strikeOne strikes as soon as there is a container to strike. The clients of a round start one after the other.
func (r *boxRound) strikeOne(ctx context.Context, what string, kill func(context.Context, container) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if done, err := r.strike(ctx, what, kill); done || err != nil {
			return err
		}
		if err := sleep(ctx, glance); err != nil {
			return fmt.Errorf("wait for one of the %s to kill: %w", what, err)
		}
	}
}

// strike kills what is in some container that runs, and tells whether there was one.
func (r *boxRound) strike(ctx context.Context, what string, kill func(context.Context, container) error) (bool, error) {
	list, err := containers(ctx, r.owner)
	if err != nil {
		return false, err
	}
	list = slices.DeleteFunc(list, func(c container) bool { return c.state != "running" })
	if len(list) == 0 {
		return false, nil
	}
	c, now := list[r.rng.IntN(len(list))], time.Now()
	if err := kill(ctx, c); err != nil {
		if r.ends(ctx, c) {
			return false, nil
		}
		return false, err
	}
	r.mu.Lock()
	r.struck[c.sandbox] = append(r.struck[c.sandbox], now)
	r.mu.Unlock()
	r.note("kills")
	r.note("kills of " + what)
	return true, nil
}

// ends tells whether a container that could not be killed has ended, or is just being removed.
func (r *boxRound) ends(ctx context.Context, c container) bool {
	for late := time.Now().Add(10 * time.Second); time.Now().Before(late); {
		list, err := containers(ctx, r.owner)
		if err == nil && !slices.ContainsFunc(list, func(o container) bool { return o.id == c.id && o.state == "running" }) {
			return true
		}
		if sleep(ctx, glance) != nil {
			return false
		}
	}
	return false
}

// killContainer kills a container, or has the engine remove it as it runs.
func (r *boxRound) killContainer(ctx context.Context, c container) error {
	args := []string{"kill", c.id}
	if r.rng.IntN(3) == 0 {
		args = []string{"rm", "-f", c.id}
	}
	_, err := docker(ctx, args...)
	return err
}

// killDriver kills the driver in a container from outside: the child of the container's first process.
func killDriver(ctx context.Context, c container) error {
	said, err := docker(ctx, "inspect", "-f", "{{.State.Pid}}", c.id)
	if err != nil {
		return err
	}
	first, err := strconv.Atoi(said)
	if err != nil || first == 0 {
		return fmt.Errorf("container %s has no process: %s", c.id, said)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", first, first))
	if err != nil {
		return err
	}
	f := strings.Fields(string(children))
	if len(f) == 0 {
		return fmt.Errorf("container %s has no driver", c.id)
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}
