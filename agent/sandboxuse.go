package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ACP is the CLI of a SandboxUse whose Command speaks the Agent Client Protocol.
const ACP = "acp"

// CLIs lists the names of the command-line agents that can work in a sandbox, sorted. Each of them asks to be allowed what it does, or is made to.
func CLIs() []string { return []string{ACP, "claude", "codex", "gemini", "opencode", "pi"} }

// Bounds of a SandboxUse.
const (
	maxCommand     = 64       // words
	maxCommandText = 16 << 10 // bytes of them
	maxModelName   = 256
)

// Check returns an Invalid error that says what is wrong with u.
func (u *SandboxUse) Check() error {
	if u == nil {
		return nil
	}
	if _, _, err := SplitEnvironment(u.Environment); err != nil {
		return err
	}
	if u.CLI != "" && !slices.Contains(CLIs(), u.CLI) {
		return Errorf(Invalid, "sandbox.cli: %.80q is none of %s", u.CLI, strings.Join(CLIs(), ", "))
	}
	switch {
	case len(u.Command) > 0 && u.CLI != ACP:
		return Errorf(Invalid, "sandbox.command is the program of the cli acp, and no other has one")
	case len(u.Command) == 0 && u.CLI == ACP:
		return &Error{Kind: Invalid, Msg: "sandbox.command is missing: the cli acp is any program that speaks ACP", Hint: `such as ["my-agent", "--acp"]`}
	case len(u.Command) > maxCommand || len(strings.Join(u.Command, "")) > maxCommandText:
		return Errorf(Invalid, "sandbox.command has up to %d words and %d bytes", maxCommand, maxCommandText)
	case slices.Contains(u.Command, ""):
		return Errorf(Invalid, "sandbox.command has a word that is empty")
	case len(u.Model) > maxModelName:
		return Errorf(Invalid, "sandbox.model has more than %d bytes", maxModelName)
	case u.Model != "" && u.CLI == "":
		return Errorf(Invalid, "sandbox.model is what a cli asks, and sandbox.cli is missing")
	}
	return nil
}

// SplitEnvironment reads NAME or NAME@REVISION. The revision is 0 when there is none. An error is Invalid.
func SplitEnvironment(ref string) (name string, revision int64, err error) {
	name, rev, pinned := strings.Cut(ref, "@")
	if err := CheckName("environment", name); err != nil {
		return "", 0, err
	}
	if !pinned {
		return name, 0, nil
	}
	if revision, err = strconv.ParseInt(rev, 10, 64); err != nil || revision < 1 || strconv.FormatInt(revision, 10) != rev {
		return "", 0, &Error{Kind: Invalid, Msg: fmt.Sprintf("%.80q is no revision of environment %q", rev, name), Hint: "write NAME, or NAME@NUMBER with a number from 1"}
	}
	return name, revision, nil
}

// Ref names the revision: NAME@REVISION.
func (e Environment) Ref() string { return e.Name + "@" + strconv.FormatInt(e.Revision, 10) }
