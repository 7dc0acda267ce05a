package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
)

// fail says what could not be done, in the vocabulary. What the engine says is shown: it has nothing secret, for a box is made with nothing secret.
func (p *Provider) fail(what string, err error) error {
	e := &agent.Error{Kind: kindOf(err), Err: err}
	switch {
	case errors.Is(err, context.Canceled):
		e.Msg = fmt.Sprintf("%s: cannot %s: cancelled", p.name, what)
	case client.IsErrConnectionFailed(err):
		e.Msg = fmt.Sprintf("%s: cannot %s: nothing answers at %s", p.name, what, p.host)
		e.Hint = "is it running, and may this user open its socket? systemctl start docker, or for Podman: systemctl start podman.socket"
	default:
		e.Msg, e.Err = fmt.Sprintf("%s: cannot %s", p.name, what), errors.New(engineWords(err))
	}
	return e
}

// engineWords is what the engine says, without what each of its errors begins with.
func engineWords(err error) string {
	return strings.TrimPrefix(err.Error(), "Error response from daemon: ")
}

func kindOf(err error) agent.Kind {
	switch {
	case errors.Is(err, context.Canceled):
		return agent.Cancelled
	case client.IsErrConnectionFailed(err), errors.Is(err, context.DeadlineExceeded):
		return agent.Unavailable
	case errdefs.IsNotFound(err):
		return agent.NotFound
	case errdefs.IsInvalidArgument(err), errdefs.IsNotImplemented(err):
		return agent.Invalid
	case errdefs.IsConflict(err), strings.Contains(err.Error(), "container state improper"): // of Podman, with the status of a fault
		return agent.Conflict
	case errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		return agent.Denied
	}
	return agent.Unavailable // a fault of the engine, or of the machine: it may pass
}
