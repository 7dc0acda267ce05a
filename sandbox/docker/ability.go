package docker

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/sandbox"
)

// Exec runs a program as the user of the box. The engine has no way to end it: one whose ctx ends runs on, unwatched, until the box stops.
func (p *Provider) Exec(ctx context.Context, h sandbox.Handle, command []string, out, errOut io.Writer) (int, error) {
	made, err := p.api.ExecCreate(ctx, string(h), client.ExecCreateOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return 0, p.fail("run a program in the box", err)
	}
	io3, err := p.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return 0, p.fail("run a program in the box", err)
	}
	defer io3.Close()
	defer context.AfterFunc(ctx, io3.Close)()
	if _, err := stdcopy.StdCopy(out, errOut, io3.Reader); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return 0, p.fail("read what the program in the box writes", err)
	}
	for { // its output ends a moment before the engine knows that it has ended
		got, err := p.api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
		if err != nil {
			return 0, p.fail("ask how the program in the box ended", err)
		}
		if !got.Running {
			return got.ExitCode, nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return 0, p.fail("ask how the program in the box ended", err)
		}
	}
}

// Pause freezes all processes of a box by its cgroup. Memory is kept.
func (p *Provider) Pause(ctx context.Context, h sandbox.Handle) error {
	if _, err := p.api.ContainerPause(ctx, string(h), client.ContainerPauseOptions{}); err != nil {
		return p.fail("pause a box", err)
	}
	return nil
}

// Resume lets them go on.
func (p *Provider) Resume(ctx context.Context, h sandbox.Handle) error {
	if _, err := p.api.ContainerUnpause(ctx, string(h), client.ContainerUnpauseOptions{}); err != nil {
		return p.fail("resume a box", err)
	}
	return nil
}

// Snapshot makes an image of the files of a box. The box holds still meanwhile.
func (p *Provider) Snapshot(ctx context.Context, h sandbox.Handle, image string) error {
	_, err := p.api.ContainerCommit(ctx, string(h), client.ContainerCommitOptions{
		Reference: image, Config: &container.Config{}, // Podman refuses a request without
	})
	if err != nil {
		return p.fail("make the image "+image+" of a box", err)
	}
	return nil
}

// Log returns the last bytes, at most most, of what was written to the standard error of the driver. The engine keeps two megabytes.
func (p *Provider) Log(ctx context.Context, h sandbox.Handle, most int64) ([]byte, error) {
	r, err := p.api.ContainerLogs(ctx, string(h), client.ContainerLogsOptions{ShowStderr: true})
	if err != nil {
		return nil, p.fail("read the log of a box", err)
	}
	defer r.Close()
	end := &tail{most: int(most)}
	if _, err := stdcopy.StdCopy(io.Discard, end, r); err != nil && !errors.Is(err, io.EOF) {
		return nil, p.fail("read the log of a box", err)
	}
	return end.b, nil
}

// tail keeps the last bytes that are written to it.
type tail struct {
	b    []byte
	most int
}

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if n := len(t.b) - t.most; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(b), nil
}
