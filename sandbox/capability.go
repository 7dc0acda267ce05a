package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Names of capabilities; Meaning tells them in words. The page docs/design/sandbox-capabilities.md is made of them.
const (
	NoNetwork    = "network.none"
	SocketMount  = "socket.mount"
	ReadOnlyRoot = "rootfs.readonly"
	NoPrivileges = "privileges.none"
	Seccomp      = "seccomp"
	LimitMemory  = "limit.memory"
	LimitCPU     = "limit.cpu"
	LimitPids    = "limit.pids"
	LimitDisk    = "limit.disk"
	LimitVolume  = "limit.volume"
	Persistent   = "storage.persistent"
	ImageContent = "image.packages"
	CanPause     = "pause"    // Pauser
	CanSnapshot  = "snapshot" // Snapshotter
	CanExec      = "exec"     // Execer
	CanLog       = "logs"     // Logger
	CanWarm      = "warm"     // Warmer
)

var capabilities = []struct{ name, means string }{
	{NoNetwork, "a box has a loopback interface, and no other"},
	{SocketMount, "a box reaches the control plane by a Unix socket in a folder of the host, which it cannot write"},
	{ReadOnlyRoot, "nothing but the workspace, the home, /tmp and shared memory can be written"},
	{NoPrivileges, "what runs is not root, has no capabilities of the kernel, and gains none"},
	{Seccomp, "system calls are filtered"},
	{LimitMemory, "a box has `memory` of RAM, no swap, and what it needs more ends a process in it"},
	{LimitCPU, "a box has the time of `cpus` processors"},
	{LimitPids, "a box has at most `pids` processes and threads"},
	{LimitDisk, "what a box writes is at most `disk`: half of it in the workspace, a quarter in the home and a quarter in /tmp"},
	{LimitVolume, "what a pet keeps in its workspace and home is bounded as well"},
	{Persistent, "the workspace and the home of a pet outlive its box"},
	{ImageContent, "a box is made of an image only if that has the `packages` which its environment asks for"},
	{CanPause, "all processes of a box can be held, and let go on"},
	{CanSnapshot, "an image can be made of the files of a box"},
	{CanExec, "a program can be run in a box beside its driver"},
	{CanLog, "the end of what a driver wrote to its standard error can be read"},
	{CanWarm, "a box of a pool has its driver running, and waits for who will have it"},
}

// Capabilities lists the names of all capabilities, in the order in which they are shown.
func Capabilities() []string {
	var names []string
	for _, c := range capabilities {
		names = append(names, c.name)
	}
	return names
}

// Meaning says what a box has by the capability of that name, without a full stop; "" when there is none.
func Meaning(name string) string {
	for _, c := range capabilities {
		if c.name == name {
			return c.means
		}
	}
	return ""
}

// ErrUnavailable is in the chain of an error about a capability that is missing.
var ErrUnavailable = errors.New("a capability is missing")

// NoRuntime is the error of a provider that has other runtimes than the one that is asked for. The hint says where they are named.
func NoRuntime(provider, runtime string, has []string, hint string) error {
	return &agent.Error{
		Kind: agent.Invalid, Err: ErrUnavailable, Hint: hint,
		Msg: fmt.Sprintf("%s: %s has no runtime %q; it has %s", agent.SandboxUnavailable, provider, runtime, cmp.Or(strings.Join(has, ", "), "its own alone")),
	}
}

// Admit returns nil when p has all of needs, else an Invalid error that wraps ErrUnavailable and names each that is missing, and why.
func Admit(p agent.SandboxProvider, needs []string) error {
	var missing string
	for _, name := range needs {
		have := agent.Capability{Name: name, Reason: "the provider does not know it"}
		for _, c := range p.Capabilities {
			if c.Name == name {
				have = c
			}
		}
		if have.Level == agent.CapabilityEnforced {
			continue
		}
		missing += fmt.Sprintf("; %s is %s", name, have.Level)
		if have.Reason != "" {
			missing += " (" + have.Reason + ")"
		}
	}
	if missing == "" {
		return nil
	}
	return &agent.Error{
		Kind: agent.Invalid, Msg: fmt.Sprintf("%s: %s cannot give what is required%s", agent.SandboxUnavailable, p.Name, missing), Err: ErrUnavailable,
		Hint: "skep sandbox providers shows what each provider has; an environment names its own, and what it requires",
	}
}
