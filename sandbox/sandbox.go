// Package sandbox is the seam behind which containers, or whatever else a command-line agent can live in, are made, found and deleted. A Provider makes
// boxes; what a box is for, and how long it is there, is for package keeper to say.
//
// A box runs one program, the driver of package driver, which is given its boot payload once and dials out by a Unix socket that is mounted into the box.
// A box has no other way out.
package sandbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Paths within a box.
const (
	SocketDir = "/run/skep"        // Request.Sockets is mounted here, and can only be read
	Socket    = "skep.sock"        // in SocketDir: the control plane of this box, an HTTP server
	Workspace = "/workspace"       // where the work is
	Memory    = "memory"           // in it: what a pet has learnt, which outlives its volume
	Sessions  = "sessions"         // in it: a folder for each session, named by its id, which do so too
	Home      = "/home/agent"      // of the user that all runs as
	Driver    = "/opt/skep/driver" // the driver, a static program: Request.Driver is mounted here, and can only be read
	UserID    = 1000               // and group
)

// Labels of what a provider makes, by which List and ListVolumes find it.
const (
	OwnerLabel      = "dev.skep.owner"      // Request.Owner
	BoxLabel        = "dev.skep.sandbox"    // Request.ID
	GenerationLabel = "dev.skep.generation" // Request.Generation
	VolumeLabel     = "dev.skep.volume"     // Request.Volume
)

// Request is what a box is to be. A provider that gets the same ID and Generation again returns the box that it has made.
type Request struct {
	Owner      string // of all boxes of one server, so that two servers can share a provider
	ID         agent.SandboxID
	Generation int64
	Image      string
	Packages   []string // that the image has to have, as agent.ParseSandboxPackage reads them; of a provider that has ImageContent
	Runtime    string
	Variables  map[string]string // of the driver; there is nothing secret among them
	Size       agent.SandboxSize // no field is zero
	Sockets    string            // folder of the host, mounted at SocketDir
	Driver     string            // file of the host, mounted at Driver; the driver is run with Args
	Args       []string
	Volume     string // the name of what is kept of a pet: its workspace and its home; "" for none
}

// Handle names a box to its provider.
type Handle string

// Handle is what a provider that chooses the names of its boxes calls that of r. It is the same each time, so that a box whose making was cut short is found
// again.
func (r *Request) Handle() Handle {
	owner := sha256.Sum256([]byte(r.Owner))
	return Handle(fmt.Sprintf("skep-%x-%s-%d", owner[:6], strings.ToLower(string(r.ID)), r.Generation))
}

// Labels are those of the box of r.
func (r *Request) Labels() map[string]string {
	return map[string]string{OwnerLabel: r.Owner, BoxLabel: string(r.ID), GenerationLabel: fmt.Sprint(r.Generation)}
}

// CheckFiles refuses a request whose files of the host, which are to be mounted, this process does not see. The hint is the provider's.
func (r *Request) CheckFiles(provider, hint string) error {
	for _, path := range []string{r.Sockets, r.Driver} {
		if _, err := os.Stat(path); err != nil {
			return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%s: %s, which is to be mounted into the box, is not there", provider, path), Err: err, Hint: hint}
		}
	}
	return nil
}

// State is what a provider sees of a box.
type State struct {
	Phase  Phase
	Code   int    // exit status, when Exited
	OOM    bool   // something in it was ended for want of memory, as far as the provider knows
	Reason string // in the provider's words
	Since  time.Time
}

// Phase is where a box stands. Absent is no error.
type Phase uint8

const (
	Absent Phase = iota
	Created
	Running
	Paused
	Exited
)

// Observed is a box that a provider has, of whatever generation.
type Observed struct {
	Handle     Handle
	ID         agent.SandboxID
	Generation int64
	State      State
	Created    time.Time
}

// Provider makes boxes. It is safe for concurrent use. A failure that may pass is agent.Unavailable; one that will not, such as an image that is not
// there, is agent.Invalid or agent.NotFound, and says what to do.
type Provider interface {
	// Name is docker, podman or kubernetes.
	Name() string
	// Probe finds out what this installation has. It says Ready false, and why, rather than return an error.
	Probe(ctx context.Context) agent.SandboxProvider
	// Create makes a box and does not start it.
	Create(ctx context.Context, r *Request) (Handle, error)
	// Start starts a box and gives its driver what boot holds, once, on its standard input, which is then at its end. A box is started once: one that runs, unless
	// Warmer has it wait, or has exited is a Conflict, and is left alone. One that could not be given all of boot is stopped.
	Start(ctx context.Context, h Handle, boot io.Reader) error
	Inspect(ctx context.Context, h Handle) (State, error)
	// Stop ends what runs in it: politely, and after grace by force. One that does not run, or is not there, is stopped.
	Stop(ctx context.Context, h Handle, grace time.Duration) error
	// Delete deletes it, running or not. One that is not there is deleted.
	Delete(ctx context.Context, h Handle) error
	// List lists the boxes of an owner, whatever their state. It may know no more of a State than its Phase and Reason.
	List(ctx context.Context, owner string) ([]Observed, error)
	Close() error
}

// Abilities that a Provider may have besides. It has a capability of each that it has.
type (
	// Execer runs a program in a running box, beside the driver, for who looks into what is wrong. Output is written as it comes.
	Execer interface {
		Exec(ctx context.Context, h Handle, command []string, out, errOut io.Writer) (code int, err error)
	}
	// Pauser stops all processes of a box where they are, and lets them go on.
	Pauser interface {
		Pause(ctx context.Context, h Handle) error
		Resume(ctx context.Context, h Handle) error
	}
	// Snapshotter makes an image of the files of a box, without its workspace, home and /tmp.
	Snapshotter interface {
		Snapshot(ctx context.Context, h Handle, image string) error
	}
	// Warmer starts a box before there is anything to boot it with: its driver waits, and Start has only to give it the payload. What was warmed ends when the
	// provider is closed, or dies. Once more it changes nothing; a box that runs by anyone else, or has ended, is a Conflict, of Start too.
	Warmer interface {
		Warm(ctx context.Context, h Handle) error
	}
	// Logger returns the end of what the driver has written to its standard error.
	Logger interface {
		Log(ctx context.Context, h Handle, most int64) ([]byte, error)
	}
	// Volumes deletes what was kept of pets. One that is not there is deleted.
	Volumes interface {
		DeleteVolume(ctx context.Context, name string) error
		ListVolumes(ctx context.Context, owner string) ([]string, error)
	}
)
