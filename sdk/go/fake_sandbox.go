//go:build !wasip1

package skep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
)

// FakeSandbox is the sandbox of an agent under test: files in memory, and programs that are a function of the test. A Repo is what Files has then.
type FakeSandbox struct {
	Files map[string][]byte // by path. It is replaced when a file is written or deleted
	// Exec answers programs, and may change Files; nil refuses them. An error reaches the caller as a CallError of kind "failed", or as it is when it is one.
	Exec func(SandboxExec) (SandboxExit, error)
	Ran  []SandboxExec // that were

	base  map[string][]byte
	diffs int
}

// sandbox answers the calls of the agent's sandbox.
func (f *Fake) sandbox(name string, in []byte) (abi.Status, []byte) {
	s := f.Sandbox
	if s == nil {
		return refuse("denied", "the agent has no sandbox: give it to Fake.Sandbox")
	}
	switch name {
	case abi.CallSandboxOpen:
		return answerOf(abi.Sandbox{ID: "sandbox", Environment: "test@1", Provider: "test", Keep: "cattle", Generation: 1, Workspace: "/workspace"}, nil)
	case abi.CallSandboxExec:
		return answerOf(called(in, s.exec))
	case abi.CallSandboxRead:
		return answerOf(called(in, s.read))
	case abi.CallSandboxWrite:
		return answerOf(called(in, func(w abi.SandboxWrite) (SandboxFile, error) {
			s.Files = with(s.Files, w.Path, w.Body)
			return s.file(w.Path), nil
		}))
	case abi.CallSandboxList:
		return answerOf(called(in, s.list))
	case abi.CallSandboxDelete:
		return answerOf(called(in, func(p abi.SandboxPath) (struct{}, error) {
			s.Files = maps.Clone(s.Files)
			maps.DeleteFunc(s.Files, func(path string, _ []byte) bool {
				return path == p.Path || p.Recursive && strings.HasPrefix(path, p.Path+"/")
			})
			return struct{}{}, nil
		}))
	case abi.CallSandboxRepo:
		return answerOf(called(in, func(abi.SandboxRepo) (SandboxBase, error) {
			s.base = maps.Clone(s.Files)
			return SandboxBase{Commit: "base", Files: len(s.Files)}, nil
		}))
	case abi.CallSandboxDiff:
		return answerOf(called(in, f.diff))
	}
	return refuse("invalid", "the fake host has no call "+name)
}

func (s *FakeSandbox) exec(e SandboxExec) (SandboxExit, error) {
	s.Ran = append(s.Ran, e)
	if s.Exec == nil {
		return SandboxExit{}, &CallError{Kind: "denied", Message: "no program can be run: give it to FakeSandbox.Exec"}
	}
	exit, err := s.Exec(e)
	if _, told := err.(*CallError); err != nil && !told {
		err = &CallError{Kind: "failed", Message: err.Error()}
	}
	return exit, err
}

func (s *FakeSandbox) file(path string) SandboxFile {
	return SandboxFile{Path: path, Type: "file", Size: int64(len(s.Files[path])), Mode: 0o644}
}

func (s *FakeSandbox) read(r abi.SandboxRead) (abi.SandboxPart, error) {
	body, is := s.Files[r.Path]
	if !is {
		return abi.SandboxPart{}, &CallError{Kind: "not_found", Message: "there is no file " + r.Path}
	}
	body = body[min(max(r.Offset, 0), int64(len(body))):]
	if r.Length > 0 && r.Length < int64(len(body)) {
		return abi.SandboxPart{Body: body[:r.Length], More: true}, nil
	}
	return abi.SandboxPart{Body: body}, nil
}

func (s *FakeSandbox) list(p abi.SandboxPath) (abi.SandboxFiles, error) {
	var out abi.SandboxFiles
	for _, path := range slices.Sorted(maps.Keys(s.Files)) {
		rest, in := path, true
		if p.Path != "" {
			rest, in = strings.CutPrefix(path, strings.TrimSuffix(p.Path, "/")+"/")
		}
		if in && (p.Recursive || !strings.Contains(rest, "/")) {
			out.Files = append(out.Files, s.file(path))
		}
	}
	return out, nil
}

// diff says what is other than at the last Repo. The patch is a file of the session with a line for each.
func (f *Fake) diff(d SandboxDiff) (SandboxChanges, error) {
	s := f.Sandbox
	out := SandboxChanges{Base: "base"}
	all := maps.Clone(s.base)
	if all == nil {
		all = map[string][]byte{}
	}
	maps.Copy(all, s.Files)
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(all)) {
		was, before := s.base[path]
		is, now := s.Files[path]
		op := "change"
		switch {
		case before && now && bytes.Equal(was, is):
			continue
		case !before:
			op = "add"
		case !now:
			op = "delete"
		}
		out.Changed = append(out.Changed, abi.SandboxChange{Path: path, Op: op, Added: -1, Removed: -1})
		fmt.Fprintf(&text, "%s %s\n", op, path)
	}
	if out.Files = len(out.Changed); out.Files == 0 {
		return out, nil
	}
	s.diffs++
	path, kind := fmt.Sprintf("artifacts/test/%d.patch", s.diffs), "text/x-diff; charset=utf-8"
	if out.Patch = path; d.Commit != "" {
		path, kind = fmt.Sprintf("artifacts/test/%d.bundle", s.diffs), "application/octet-stream"
		out.Patch, out.Bundle, out.Commit = "", path, "commit"
	}
	f.Files = with(f.Files, path, FakeFile{kind, []byte(text.String())})
	list, err := json.Marshal(abi.SandboxList{Base: out.Base, Commit: out.Commit, Files: out.Files, Changed: out.Changed})
	if err != nil {
		return out, err
	}
	out.List = fmt.Sprintf("artifacts/test/%d.json", s.diffs)
	f.Files = with(f.Files, out.List, FakeFile{"application/json", list})
	out.Bytes = int64(text.Len())
	return out, nil
}
