package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
)

// Engine is a container engine that keeps images: Docker, or Podman by the same calls.
type Engine struct {
	api  *client.Client
	host string
}

// Dial returns the engine at an address, such as unix:///run/docker.sock. For "" it is that of DOCKER_HOST, or whichever of Docker's and Podman's usual
// sockets is there. Nothing is sent yet.
func Dial(host string) (*Engine, error) {
	if host == "" {
		host = os.Getenv("DOCKER_HOST")
	}
	if host == "" {
		host = usualSocket()
	}
	if host == "" {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "no container engine was found on this machine",
			Hint: "install Docker or Podman and start it, or name one with --engine unix:///PATH"}
	}
	api, err := client.New(client.WithTLSClientConfigFromEnv(), client.WithHost(host), client.WithAPIVersionFromEnv())
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%s is no address of a container engine", host), Err: err,
			Hint: "it looks like unix:///var/run/docker.sock"}
	}
	return &Engine{api: api, host: host}, nil
}

func usualSocket() string {
	for _, file := range []string{"/var/run/docker.sock", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "podman/podman.sock"), "/run/podman/podman.sock"} {
		if info, err := os.Stat(file); err == nil && info.Mode()&os.ModeSocket != 0 {
			return "unix://" + file
		}
	}
	return ""
}

// Ping returns nil when the engine answers.
func (e *Engine) Ping(ctx context.Context) error {
	_, err := e.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return e.failed(err, "ask the container engine")
	}
	return nil
}

// Close closes the connections to the engine.
func (e *Engine) Close() error { return e.api.Close() }

// processor is that of the engine, by Go's name.
func (e *Engine) processor(ctx context.Context) (string, error) {
	info, err := e.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", e.failed(err, "ask the container engine")
	}
	if info.Os != "linux" {
		return "", agent.Errorf(agent.Invalid, "the container engine at %s runs containers of %s, and not of linux", e.host, info.Os)
	}
	switch info.Arch {
	case "x86_64":
		return "amd64", nil
	case "aarch64":
		return "arm64", nil
	}
	return info.Arch, nil
}

// load makes an image of a root, which is a tar, and returns its id.
func (e *Engine) load(ctx context.Context, root io.Reader, name string, changes []string) (string, error) {
	answer, err := e.api.ImageImport(ctx, client.ImageImportSource{Source: root, SourceName: "-"}, name, client.ImageImportOptions{Changes: changes})
	if err != nil {
		return "", e.failed(err, "make the image")
	}
	defer answer.Close()
	return e.progress(answer, "make the image")
}

// build makes an image of a build context, which is a tar with a Dockerfile, and returns its id. It is the first builder that every engine has.
func (e *Engine) build(ctx context.Context, files io.Reader, name string) (string, error) {
	options := client.ImageBuildOptions{Tags: []string{name}, Version: build.BuilderV1, NoCache: true, Remove: true, ForceRemove: true, NetworkMode: "none"}
	answer, err := e.api.ImageBuild(ctx, files, options)
	if err != nil {
		return "", e.failed(err, "make the image")
	}
	defer answer.Body.Close()
	return e.progress(answer.Body, "make the image")
}

// message is a line of the answer to what takes the engine long.
type message struct {
	Status string `json:"status"`
	Stream string `json:"stream"`
	Error  string `json:"error"`
	Aux    struct {
		ID string `json:"ID"`
	} `json:"aux"`
}

// progress reads such an answer to its end and returns the id of the image that it is about.
func (e *Engine) progress(answer io.Reader, doing string) (id string, err error) {
	lines := json.NewDecoder(answer)
	for {
		var m message
		switch err := lines.Decode(&m); {
		case errors.Is(err, io.EOF) && id == "":
			return "", agent.Errorf(agent.Unavailable, "%s: the engine ended without an image", doing)
		case errors.Is(err, io.EOF):
			return id, nil
		case err != nil:
			return "", e.failed(err, doing)
		case m.Error != "":
			return "", e.failed(errors.New(m.Error), doing)
		}
		for _, s := range []string{m.Aux.ID, m.Status} {
			if strings.HasPrefix(s, "sha256:") {
				id = s
			}
		}
	}
}

// failed makes an error of the engine one to show.
func (e *Engine) failed(err error, doing string) error {
	full := strings.Contains(err.Error(), "no space left on device")
	var kind agent.Kind
	var hint string
	switch {
	case agent.KindOf(err) != agent.Internal:
		return err
	case errors.Is(err, context.Canceled):
		kind = agent.Cancelled
	case full:
		kind, doing, hint = agent.Exhausted, doing+": the engine's disk is full", "docker system df shows what is on it; skep image delete NAME makes room"
	case client.IsErrConnectionFailed(err) && strings.Contains(err.Error(), "permission denied"):
		kind, doing = agent.Denied, fmt.Sprintf("%s: this user may not use the container engine at %s", doing, e.host)
		hint = "add the user to the group of the socket, or use an engine of the user's own (rootless Docker or Podman) with --engine"
	case client.IsErrConnectionFailed(err):
		kind, doing = agent.Unavailable, fmt.Sprintf("%s: the container engine at %s does not answer", doing, e.host)
		hint = "start Docker or Podman, or name another with --engine"
	case errdefs.IsNotFound(err):
		kind = agent.NotFound
	case errdefs.IsConflict(err):
		kind = agent.Conflict
	case errdefs.IsInvalidArgument(err):
		kind = agent.Invalid
	default:
		kind = agent.Unavailable
	}
	return &agent.Error{Kind: kind, Msg: doing, Err: err, Hint: hint}
}
