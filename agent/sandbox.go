package agent

import (
	"strconv"
	"time"
)

// SandboxUse is what the record of an agent says of the sandbox that it works in. An agent that has none of these has no sandbox; an agent with a CLI and
// without a plugin is one that a vendor's command-line agent runs.
type SandboxUse struct {
	Environment string      `json:"environment"`       // NAME, or NAME@REVISION to stay with one
	CLI         string      `json:"cli,omitempty"`     // who does the work: claude, codex, opencode, gemini, pi or acp; "" when the agent's code does
	Command     []string    `json:"command,omitempty"` // acp: the program that speaks ACP, and its arguments
	Model       string      `json:"model,omitempty"`   // that the CLI asks, at the gateway: @ROUTE or PROVIDER/MODEL; @main unless given
	Keep        SandboxKeep `json:"keep,omitempty"`
	Permissions Permissions `json:"permissions,omitempty"`
}

// SandboxKeep says how long a sandbox is the same one.
type SandboxKeep uint8

const (
	Cattle SandboxKeep = iota // each run has a fresh one, which is deleted when the run has ended
	Pet                       // the agent has one, which is kept from run to run
)

var sandboxKeepNames = [...]string{"cattle", "pet"}

func (k SandboxKeep) String() string               { return nameOf(sandboxKeepNames[:], k) }
func (k SandboxKeep) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *SandboxKeep) UnmarshalText(b []byte) error {
	return parseName(sandboxKeepNames[:], b, k, "way to keep a sandbox")
}

// Permissions says who decides about what a CLI asks to be allowed.
type Permissions uint8

const (
	ByPolicy Permissions = iota // the policy of the app, and a person where it says so; a CLI that cannot ask is refused
	AllowAll                    // nobody: the CLI may do in its sandbox what it likes
)

var permissionNames = [...]string{"policy", "all"}

func (p Permissions) String() string               { return nameOf(permissionNames[:], p) }
func (p Permissions) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
func (p *Permissions) UnmarshalText(b []byte) error {
	return parseName(permissionNames[:], b, p, "kind of permissions")
}

// Environment is a template of sandboxes. A revision never changes; a session stays with the one that it has begun with.
type Environment struct {
	Name        string            `json:"name"`
	App         App               `json:"app"`
	Revision    int64             `json:"revision"` // from 1
	Description string            `json:"description,omitempty"`
	Image       string            `json:"image"`               // as the provider knows it, such as skep/agents:latest
	Provider    string            `json:"provider,omitempty"`  // docker, podman, kubernetes; the server's first unless given
	Runtime     string            `json:"runtime,omitempty"`   // of the provider's, such as runsc; the provider's own unless given
	Packages    []string          `json:"packages,omitempty"`  // that the image has to have: deb:NAME, npm:NAME@VERSION, or npm:NAME for any version; one that lacks them is refused
	Setup       string            `json:"setup,omitempty"`     // a script for sh, run in the workspace before any work, as the user who does the work
	Variables   map[string]string `json:"variables,omitempty"` // of what runs in it; plain, never secrets
	Network     []Target          `json:"network,omitempty"`   // what sandboxes may reach besides models, of what the agent is granted; nothing unless given
	Requires    []string          `json:"requires,omitempty"`  // capabilities that have to be enforced, by their names in package sandbox
	Size        SandboxSize       `json:"size,omitzero"`
	Idle        time.Duration     `json:"idle,omitempty"` // a sandbox that nobody has used for so long is stopped (pet) or deleted; 30 minutes unless given; nanoseconds in JSON
	Life        time.Duration     `json:"life,omitempty"` // the longest that it is there; 24 hours unless given, and for a pet no end
	Created     time.Time         `json:"created"`
}

// SandboxSize bounds a sandbox. A zero field means the default.
type SandboxSize struct {
	Memory int64   `json:"memory,omitempty"` // bytes; 2 GiB unless given
	CPUs   float64 `json:"cpus,omitempty"`   // 2 unless given
	Pids   int64   `json:"pids,omitempty"`   // processes and threads; 512 unless given
	Disk   int64   `json:"disk,omitempty"`   // bytes of the workspace, the home and /tmp together; 1 GiB unless given
}

// The defaults of environments.
const (
	DefaultSandboxMemory = 2 << 30
	DefaultSandboxCPUs   = 2
	DefaultSandboxPids   = 512
	DefaultSandboxDisk   = 1 << 30
	DefaultSandboxIdle   = 30 * time.Minute
	DefaultSandboxLife   = 24 * time.Hour
)

// SandboxID is a ULID made by the server.
type SandboxID string

// NewSandboxID returns a new one.
func NewSandboxID(now time.Time) SandboxID { return SandboxID(newULID(now)) }

// Sandbox is what is kept of a sandbox, from when one was asked for until nothing of it is left.
type Sandbox struct {
	ID          SandboxID    `json:"id"`
	App         App          `json:"app"`
	Agent       string       `json:"agent"`
	For         string       `json:"for,omitempty"` // whose it is: run/ID, or agent/ID for a pet; "" while it waits in a pool
	Session     SessionID    `json:"session,omitempty"`
	Run         RunID        `json:"run,omitempty"` // that uses it
	Environment string       `json:"environment"`   // NAME@REVISION
	Provider    string       `json:"provider"`
	Keep        SandboxKeep  `json:"keep,omitempty"`
	Generation  int64        `json:"generation"` // counts what was made for it, from 1: what is of an older one is deleted
	State       SandboxState `json:"state"`
	Kept        int64        `json:"kept,omitempty"`  // of a pet: the generation with which what is kept of it began
	Error       *RunError    `json:"error,omitempty"` // why it failed or was lost
	Created     time.Time    `json:"created"`
	Started     time.Time    `json:"started,omitzero"` // said hello
	Used        time.Time    `json:"used,omitzero"`
	Expires     time.Time    `json:"expires,omitzero"`

	Checkpoint SandboxCheckpoint `json:"checkpoint,omitzero"` // the newest, of a pet
}

// Source names a sandbox of one generation as the source of its events, to who stores each of them once.
func (s *Sandbox) Source() string { return string(s.ID) + "." + strconv.FormatInt(s.Generation, 10) }

// SandboxCheckpoint is what was taken out of a pet before its box and all that was kept of it were given up: a tar of the folders that outlive them.
type SandboxCheckpoint struct {
	Digest      Digest    `json:"digest"`            // of the tar, a blob
	Manifest    Digest    `json:"manifest"`          // of a manifest in JSON, a blob, which has a name, a size and a digest of each file
	Bytes       int64     `json:"bytes"`             // of the tar
	Files       int       `json:"files"`             // with folders and links
	Environment string    `json:"environment"`       // NAME@REVISION that it was made with
	Created     time.Time `json:"created"`           // when it was taken
	Pending     bool      `json:"pending,omitempty"` // what is kept is not there, or is being put back
}

// Blobs are those that c names.
func (c *SandboxCheckpoint) Blobs() []Digest {
	if c.Digest == "" {
		return nil
	}
	return []Digest{c.Digest, c.Manifest}
}

// SandboxRecord is a sandbox with what only its keeper minds.
type SandboxRecord struct {
	Sandbox
	Pool   bool          `json:"pool,omitempty"`   // it is made ahead of who will have it, and then For is empty
	Trace  string        `json:"trace,omitempty"`  // traceparent of what asked for it
	Handle string        `json:"handle,omitempty"` // the provider's, of the box of its generation, once it is made
	Volume string        `json:"volume,omitempty"` // the provider's, of a pet
	Idle   time.Duration `json:"idle,omitempty"`   // when nobody has used it for so long it is stopped, or deleted
}

// SandboxState is where a sandbox stands.
type SandboxState uint8

const (
	UnknownSandbox  SandboxState = iota
	SandboxWanted                // nothing is made yet, or is being made
	SandboxStarting              // it was started, and its driver has not said hello
	SandboxReady
	SandboxStopped  // it has no processes; what is kept of a pet is kept
	SandboxDeleting // for good; it can be used no more
	SandboxLost     // it went away by itself
	SandboxFailed   // it could not be made, or its setup failed
)

var sandboxStateNames = [...]string{"unknown", "wanted", "starting", "ready", "stopped", "deleting", "lost", "failed"}

func (s SandboxState) String() string               { return nameOf(sandboxStateNames[:], s) }
func (s SandboxState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *SandboxState) UnmarshalText(b []byte) error {
	return parseName(sandboxStateNames[:], b, s, "state of a sandbox")
}

// CapabilityLevel is how far a provider has a capability.
type CapabilityLevel uint8

const (
	CapabilityNone     CapabilityLevel = iota
	CapabilityPartial                  // with a reason
	CapabilityEnforced                 // or simply there, for what is nothing to enforce
)

var capabilityLevelNames = [...]string{"none", "partial", "enforced"}

func (l CapabilityLevel) String() string               { return nameOf(capabilityLevelNames[:], l) }
func (l CapabilityLevel) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
func (l *CapabilityLevel) UnmarshalText(b []byte) error {
	return parseName(capabilityLevelNames[:], b, l, "level of a capability")
}

// Capability is one that a provider of sandboxes has, or has not.
type Capability struct {
	Name   string          `json:"name"`
	Level  CapabilityLevel `json:"level"`
	Reason string          `json:"reason,omitempty"` // why it is not more
}

// SandboxUnavailable begins the message of the error of a capability that is missing. Such an error is Invalid: to try again is of no use.
const SandboxUnavailable = "sandbox_capability_unavailable"

// SandboxProvider is what a server knows of a provider of sandboxes.
type SandboxProvider struct {
	Name         string       `json:"name"`
	Version      string       `json:"version,omitempty"`
	Ready        bool         `json:"ready"`
	Error        string       `json:"error,omitempty"` // why it is not
	Isolation    string       `json:"isolation"`       // container, user-namespace, user-kernel, vm
	Runtimes     []string     `json:"runtimes,omitempty"`
	Capabilities []Capability `json:"capabilities"`
}
