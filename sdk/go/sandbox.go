package skep

import (
	"time"

	"github.com/skep-dev/skep/abi"
)

// Sandbox is the sandbox of a run whose agent has an environment: the run's own, or the one that its agent keeps. Its paths are below its Workspace, unless they
// are absolute. A call that begins something begins it once, also when it is made again after a crash.
type Sandbox struct{ abi.Sandbox }

// What goes into the calls of a Sandbox, and comes out of them.
type (
	SandboxExec     = abi.SandboxExec     // a program: Command, of which one word is a line for sh, Dir, Env, Stdin, Timeout in milliseconds
	SandboxExit     = abi.SandboxExit     // how it ended: Code, -1 when by a signal, and the ends of Stdout and Stderr
	SandboxProcess  = abi.SandboxProcess  // a program: ID is SandboxExit.ID, Started milliseconds since 1970
	SandboxFile     = abi.SandboxFile     // a file, folder or link
	SandboxAttached = abi.SandboxAttached // where files of the session are: Paths in the order in which they were named, and those of Images among them
	SandboxRepo     = abi.SandboxRepo     // URL and Ref of a repository of git, or File, a tar among the files of the session
	SandboxBase     = abi.SandboxBase     // what the work begins at
	SandboxDiff     = abi.SandboxDiff     // a patch, or with Commit a bundle of git that has that commit
	SandboxChanges  = abi.SandboxChanges  // what was changed. Patch and Bundle are files of the session, for ReadFile; "" when nothing was
	SandboxSave     = abi.SandboxSave     // Paths within the workspace, all of it when there are none, and the File of the session that they go into, if it matters
	SandboxSaved    = abi.SandboxSaved    // a checkpoint: the File of the session that it is, its Digest, and how many files and bytes it has
)

// SandboxPreview is a link by which a browser sees what listens at a port. Whoever has it can use it.
type SandboxPreview struct {
	URL     string
	Expires time.Time
}

// OpenSandbox returns the sandbox when it is ready. It fails with the kind "denied" when the agent has no environment.
func OpenSandbox() (*Sandbox, error) {
	var s Sandbox
	if err := ask(abi.CallSandboxOpen, nil, &s.Sandbox); err != nil {
		return nil, err
	}
	return &s, nil
}

// Exec runs a program until it ends: its words, or one line for sh. That it ended with another code than 0 is no error.
func (s *Sandbox) Exec(command ...string) (SandboxExit, error) {
	return s.Run(SandboxExec{Command: command})
}

// Run runs a program until it ends, or with Background until it has begun.
func (s *Sandbox) Run(e SandboxExec) (SandboxExit, error) {
	var exit SandboxExit
	err := ask(abi.CallSandboxExec, e, &exit)
	return exit, err
}

// Processes lists what runs, and what was run.
func (s *Sandbox) Processes() ([]SandboxProcess, error) {
	var list abi.SandboxProcesses
	err := ask(abi.CallSandboxProcesses, nil, &list)
	return list.Processes, err
}

// Signal sends a signal to a process, by SandboxExit.ID, and to all that it has started: TERM, and then KILL, when signal is "".
func (s *Sandbox) Signal(id, signal string) error {
	return ask(abi.CallSandboxSignal, abi.SandboxSignal{ID: id, Signal: signal}, nil)
}

// Preview makes a link to a port, from 1 to 65535. It lasts from a second to a day, an hour when lasts is 0, and no longer than the sandbox is there, which is
// until the run ends unless the agent keeps it.
func (s *Sandbox) Preview(port int, lasts time.Duration) (SandboxPreview, error) {
	var p abi.SandboxPreview
	if err := ask(abi.CallSandboxPreview, abi.SandboxPort{Port: port, Lasts: millis(lasts)}, &p); err != nil {
		return SandboxPreview{}, err
	}
	return SandboxPreview{URL: p.URL, Expires: time.UnixMilli(p.Expires).UTC()}, nil
}

// ReadFile reads a file whole.
func (s *Sandbox) ReadFile(path string) ([]byte, error) {
	var all []byte
	for {
		var part abi.SandboxPart
		if err := ask(abi.CallSandboxRead, abi.SandboxRead{Path: path, Offset: int64(len(all))}, &part); err != nil {
			return nil, err
		}
		all = append(all, part.Body...)
		if !part.More || len(part.Body) == 0 {
			return all, nil
		}
	}
}

// WriteFile writes a file whole, of up to 4 MiB, and makes the folders that it is in. It is readable by everybody, and a mode of 0755 makes a program of it.
func (s *Sandbox) WriteFile(path string, body []byte, mode uint32) error {
	return ask(abi.CallSandboxWrite, abi.SandboxWrite{Path: path, Body: body, Mode: mode}, nil)
}

// ListFiles lists what is in a folder, and with recursive what is in those in it; more says that there are too many to list.
func (s *Sandbox) ListFiles(path string, recursive bool) (list []SandboxFile, more bool, err error) {
	var files abi.SandboxFiles
	err = ask(abi.CallSandboxList, abi.SandboxPath{Path: path, Recursive: recursive}, &files)
	return files.Files, files.More, err
}

// Remove deletes a file, and with recursive a folder and all that is in it.
func (s *Sandbox) Remove(path string, recursive bool) error {
	return ask(abi.CallSandboxDelete, abi.SandboxPath{Path: path, Recursive: recursive}, nil)
}

// Attach puts files of the session into the workspace, below .attachments, where they can only be read. No Diff has them.
func (s *Sandbox) Attach(files ...string) (SandboxAttached, error) {
	var at SandboxAttached
	err := ask(abi.CallSandboxAttach, abi.SandboxAttach{Files: files}, &at)
	return at, err
}

// Repo brings what to work on into the workspace, for Diff to compare with.
func (s *Sandbox) Repo(r SandboxRepo) (SandboxBase, error) {
	var base SandboxBase
	err := ask(abi.CallSandboxRepo, r, &base)
	return base, err
}

// Diff says what was changed in the workspace since Repo, and keeps the patch or bundle as a file of the session.
func (s *Sandbox) Diff(d SandboxDiff) (SandboxChanges, error) {
	var changes SandboxChanges
	err := ask(abi.CallSandboxDiff, d, &changes)
	return changes, err
}

// Checkpoint keeps paths of the workspace as a tar among the files of the session, with a manifest beside it that has a digest of each file.
func (s *Sandbox) Checkpoint(what SandboxSave) (SandboxSaved, error) {
	var saved SandboxSaved
	err := ask(abi.CallSandboxSave, what, &saved)
	return saved, err
}

// Restore brings a checkpoint back, by SandboxSaved.File, after all of it was compared with its manifest: into dir, or the workspace when that is "".
func (s *Sandbox) Restore(file, dir string) (SandboxSaved, error) {
	var saved SandboxSaved
	err := ask(abi.CallSandboxRestore, abi.SandboxRestore{File: file, Dir: dir}, &saved)
	return saved, err
}
