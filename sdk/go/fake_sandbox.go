//go:build !wasip1

package skep

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/abi"
)

// FakeSandbox is the sandbox of an agent under test: files in memory, and programs that are a function of the test. A Repo is what Files has then.
type FakeSandbox struct {
	Files map[string][]byte // by path. It is replaced when a file is written or deleted
	// Exec answers programs, and may change Files; nil refuses them. An error reaches the caller as a CallError of kind "failed", or as it is when it is one.
	Exec func(SandboxExec) (SandboxExit, error)
	Ran  []SandboxExec // that were

	processes []SandboxProcess
	base      map[string][]byte
	kept      int // files of the session that were made
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
		return answerOf(called(in, f.execute))
	case abi.CallSandboxProcesses:
		return answerOf(abi.SandboxProcesses{Processes: s.processes}, nil)
	case abi.CallSandboxSignal:
		return answerOf(called(in, s.signal))
	case abi.CallSandboxPreview:
		return answerOf(called(in, f.preview))
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
	case abi.CallSandboxAttach:
		return answerOf(called(in, f.attach))
	case abi.CallSandboxSave:
		return answerOf(called(in, f.save))
	case abi.CallSandboxRestore:
		return answerOf(called(in, f.restore))
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

// execute runs a program. One in the background runs until it is sent a signal.
func (f *Fake) execute(e SandboxExec) (SandboxExit, error) {
	s := f.Sandbox
	s.Ran = append(s.Ran, e)
	if s.Exec == nil {
		return SandboxExit{}, &CallError{Kind: "denied", Message: "no program can be run: give it to FakeSandbox.Exec"}
	}
	exit, err := s.Exec(e)
	if _, told := err.(*CallError); err != nil && !told {
		err = &CallError{Kind: "failed", Message: err.Error()}
	}
	if err != nil {
		return SandboxExit{}, err
	}
	exit.ID = cmp.Or(exit.ID, fmt.Sprintf("exec-%d", len(s.Ran)))
	s.processes = append(s.processes, SandboxProcess{
		ID: exit.ID, PID: exit.PID, Command: e.Command, Started: f.Now.UnixMilli(), Ended: !e.Background, Code: exit.Code,
	})
	return exit, nil
}

func (s *FakeSandbox) signal(q abi.SandboxSignal) (struct{}, error) {
	for i := range s.processes {
		if p := &s.processes[i]; p.ID == q.ID && !p.Ended {
			p.Ended, p.Code = true, -1
			return struct{}{}, nil
		}
	}
	return struct{}{}, &CallError{Kind: "not_found", Message: "no process " + q.ID + " runs"}
}

// preview makes a link that leads nowhere.
func (f *Fake) preview(q abi.SandboxPort) (abi.SandboxPreview, error) {
	lasts := cmp.Or(time.Duration(q.Lasts)*time.Millisecond, time.Hour)
	switch {
	case q.Port < 1 || q.Port > 65535:
		return abi.SandboxPreview{}, &CallError{Kind: "invalid", Message: fmt.Sprintf("%d is no port: a port is a number from 1 to 65535", q.Port)}
	case lasts < time.Second || lasts > 24*time.Hour:
		return abi.SandboxPreview{}, &CallError{Kind: "invalid", Message: fmt.Sprintf("a link lasts from 1s to 24h, not %s", lasts)}
	}
	return abi.SandboxPreview{URL: fmt.Sprintf("http://localhost/preview/%d/", q.Port), Expires: f.Now.Add(lasts).UnixMilli()}, nil
}

const fakeAttachments = ".attachments/"

func (f *Fake) attach(q abi.SandboxAttach) (out SandboxAttached, err error) {
	for _, name := range q.Files {
		file, is := f.Files[name]
		if !is {
			return SandboxAttached{}, &CallError{Kind: "not_found", Message: "the session has no file " + name}
		}
		at := fakeAttachments + name
		f.Sandbox.Files = with(f.Sandbox.Files, at, file.Body)
		if out.Paths = append(out.Paths, at); strings.HasPrefix(file.Type, "image/") {
			out.Images = append(out.Images, at)
		}
	}
	return out, nil
}

// save keeps files as a tar.
func (f *Fake) save(q SandboxSave) (SandboxSaved, error) {
	s := f.Sandbox
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var out SandboxSaved
	for _, path := range slices.Sorted(maps.Keys(s.Files)) {
		within := func(p string) bool { return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/") }
		if len(q.Paths) > 0 && !slices.ContainsFunc(q.Paths, within) {
			continue
		}
		body := s.Files[path]
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(body))}); err != nil {
			return out, err
		}
		if _, err := w.Write(body); err != nil {
			return out, err
		}
		out.Files++
		out.Bytes += int64(len(body))
	}
	if err := w.Close(); err != nil {
		return out, err
	}
	if out.File = q.File; out.File == "" {
		s.kept++
		out.File = fmt.Sprintf("artifacts/test/%d.tar", s.kept)
	}
	out.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(b.Bytes()))
	f.Files = with(f.Files, out.File, FakeFile{"application/x-tar", b.Bytes()})
	return out, nil
}

func (f *Fake) restore(q abi.SandboxRestore) (SandboxSaved, error) {
	kept, is := f.Files[q.File]
	if !is {
		return SandboxSaved{}, &CallError{Kind: "not_found", Message: "there is no checkpoint " + q.File}
	}
	out := SandboxSaved{File: q.File, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(kept.Body))}
	for r := tar.NewReader(bytes.NewReader(kept.Body)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, &CallError{Kind: "invalid", Message: "it is no tar: " + err.Error()}
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return out, &CallError{Kind: "invalid", Message: "it is no tar: " + err.Error()}
		}
		f.Sandbox.Files = with(f.Sandbox.Files, path.Join(q.Dir, h.Name), body)
		out.Files++
		out.Bytes += int64(len(body))
	}
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
		case before && now && bytes.Equal(was, is), strings.HasPrefix(path, fakeAttachments):
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
	s.kept++
	path, kind := fmt.Sprintf("artifacts/test/%d.patch", s.kept), "text/x-diff; charset=utf-8"
	if out.Patch = path; d.Commit != "" {
		path, kind = fmt.Sprintf("artifacts/test/%d.bundle", s.kept), "application/octet-stream"
		out.Patch, out.Bundle, out.Commit = "", path, "commit"
	}
	f.Files = with(f.Files, path, FakeFile{kind, []byte(text.String())})
	list, err := json.Marshal(abi.SandboxList{Base: out.Base, Commit: out.Commit, Files: out.Files, Changed: out.Changed})
	if err != nil {
		return out, err
	}
	out.List = fmt.Sprintf("artifacts/test/%d.json", s.kept)
	f.Files = with(f.Files, out.List, FakeFile{"application/json", list})
	out.Bytes = int64(text.Len())
	return out, nil
}
