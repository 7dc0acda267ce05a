//go:build !wasip1

package skep

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestSandboxProcesses(t *testing.T) {
	f := &Fake{Sandbox: &FakeSandbox{Exec: func(e SandboxExec) (SandboxExit, error) { return SandboxExit{PID: 7}, nil }}}
	err := in(t, f, func() error {
		s, err := OpenSandbox()
		if err != nil {
			return err
		}
		if _, err := s.Exec("true"); err != nil {
			return err
		}
		begun, err := s.Run(SandboxExec{Command: []string{"server"}, Background: true})
		if err != nil {
			return err
		}
		running := func() (ids []string) {
			list, err := s.Processes()
			if err != nil || len(list) != 2 || list[1].PID != 7 || list[1].Started != Now().UnixMilli() {
				t.Errorf("%+v, %v", list, err)
			}
			for _, p := range list {
				if !p.Ended {
					ids = append(ids, p.ID)
				}
			}
			return ids
		}
		if got := running(); !slices.Equal(got, []string{begun.ID}) {
			t.Errorf("%q run", got)
		}
		link, err := s.Preview(8000, 0)
		if err != nil || link.URL != "http://localhost/preview/8000/" || !link.Expires.Equal(Now().Add(time.Hour)) {
			t.Errorf("%+v, %v", link, err)
		}
		if link, err := s.Preview(1, time.Minute); err != nil || !link.Expires.Equal(Now().Add(time.Minute)) {
			t.Errorf("%+v, %v", link, err)
		}
		var told *CallError
		if _, err := s.Preview(0, 0); !errors.As(err, &told) || told.Kind != "invalid" {
			t.Errorf("%v", err)
		}
		if _, err := s.Preview(1, 25*time.Hour); !errors.As(err, &told) || told.Kind != "invalid" {
			t.Errorf("%v", err)
		}
		if err := s.Signal(begun.ID, ""); err != nil {
			t.Error(err)
		}
		if got := running(); got != nil {
			t.Errorf("%q run", got)
		}
		if err := s.Signal(begun.ID, "KILL"); !errors.As(err, &told) || told.Kind != "not_found" {
			t.Errorf("%v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSandboxCheckpoint(t *testing.T) {
	f := &Fake{
		Files:   map[string]FakeFile{"in/a.png": {"image/png", []byte("png")}, "in/b.txt": {"text/plain", []byte("b")}},
		Sandbox: &FakeSandbox{Files: map[string][]byte{"d/x": []byte("1"), "d/y": []byte("22"), "other": []byte("o")}},
	}
	err := in(t, f, func() error {
		s, err := OpenSandbox()
		if err != nil {
			return err
		}
		if _, err := s.Repo(SandboxRepo{}); err != nil {
			return err
		}
		at, err := s.Attach("in/b.txt", "in/a.png")
		if err != nil || !slices.Equal(at.Paths, []string{".attachments/in/b.txt", ".attachments/in/a.png"}) || !slices.Equal(at.Images, at.Paths[1:]) {
			t.Errorf("%+v, %v", at, err)
		}
		if b, err := s.ReadFile(at.Paths[0]); err != nil || string(b) != "b" {
			t.Errorf("%q, %v", b, err)
		}
		var told *CallError
		if _, err := s.Attach("gone"); !errors.As(err, &told) || told.Kind != "not_found" {
			t.Errorf("%v", err)
		}
		if d, err := s.Diff(SandboxDiff{}); err != nil || d.Files != 0 {
			t.Errorf("a diff has attachments: %+v, %v", d, err)
		}
		saved, err := s.Checkpoint(SandboxSave{Paths: []string{"d"}})
		if err != nil || saved.Files != 2 || saved.Bytes != 3 || saved.File == "" {
			t.Errorf("%+v, %v", saved, err)
		}
		if err := s.Remove("d", true); err != nil {
			t.Error(err)
		}
		if again, err := s.Restore(saved.File, ""); err != nil || again != saved {
			t.Errorf("%+v, %v, where %+v was kept", again, err, saved)
		}
		if b, err := s.ReadFile("d/y"); err != nil || string(b) != "22" {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := s.Restore(saved.File, "copy"); err != nil {
			t.Error(err)
		}
		if b, err := s.ReadFile("copy/d/x"); err != nil || string(b) != "1" {
			t.Errorf("%q, %v", b, err)
		}
		if named, err := s.Checkpoint(SandboxSave{File: "all.tar"}); err != nil || named.File != "all.tar" || named.Files != 7 {
			t.Errorf("%+v, %v", named, err)
		}
		if _, err := s.Restore("gone", ""); !errors.As(err, &told) || told.Kind != "not_found" {
			t.Errorf("%v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSandbox(t *testing.T) {
	f := &Fake{Sandbox: &FakeSandbox{Files: map[string][]byte{"a.txt": []byte("hello\n"), "deep/b.txt": []byte("b")}}}
	f.Sandbox.Exec = func(e SandboxExec) (SandboxExit, error) {
		if e.Command[0] == "false" {
			return SandboxExit{Code: 1, Stderr: "no"}, nil
		}
		if e.Command[0] == "lost" {
			return SandboxExit{}, errors.New("the box is gone")
		}
		f.Sandbox.Files["a.txt"] = e.Stdin
		return SandboxExit{Stdout: "done\n"}, nil
	}
	err := in(t, f, func() error {
		s, err := OpenSandbox()
		if err != nil {
			return err
		}
		if base, err := s.Repo(SandboxRepo{URL: "https://example.com/a.git"}); err != nil || base.Files != 2 {
			t.Errorf("%+v, %v", base, err)
		}
		if none, err := s.Diff(SandboxDiff{}); err != nil || none.Files != 0 || none.Patch != "" {
			t.Errorf("nothing was changed: %+v, %v", none, err)
		}
		if exit, err := s.Exec("false"); err != nil || exit.Code != 1 || exit.Stderr != "no" {
			t.Errorf("%+v, %v", exit, err)
		}
		var told *CallError
		if _, err := s.Exec("lost"); !errors.As(err, &told) || told.Kind != "failed" {
			t.Errorf("%v", err)
		}
		if exit, err := s.Run(SandboxExec{Command: []string{"sh", "-c", "cat > a.txt"}, Stdin: []byte("bye\n")}); err != nil || exit.Stdout != "done\n" {
			t.Errorf("%+v, %v", exit, err)
		}
		if b, err := s.ReadFile("a.txt"); err != nil || string(b) != "bye\n" {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := s.ReadFile("none"); !errors.As(err, &told) || told.Kind != "not_found" {
			t.Errorf("%v", err)
		}
		if err := s.WriteFile("new.sh", []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Error(err)
		}
		if err := s.Remove("deep", true); err != nil {
			t.Error(err)
		}
		files, more, err := s.ListFiles("", false)
		if err != nil || more || len(files) != 2 || files[0].Path != "a.txt" || files[1].Size != 10 {
			t.Errorf("%+v, %v, %v", files, more, err)
		}
		changes, err := s.Diff(SandboxDiff{})
		if err != nil || fmt.Sprint(changes.Changed) != "[{a.txt change  -1 -1} {deep/b.txt delete  -1 -1} {new.sh add  -1 -1}]" {
			t.Errorf("%+v, %v", changes, err)
		}
		if patch, err := ReadFile(changes.Patch); err != nil || string(patch) != "change a.txt\ndelete deep/b.txt\nadd new.sh\n" {
			t.Errorf("%q, %v", patch, err)
		}
		if kept, err := s.Diff(SandboxDiff{Commit: "All of it"}); err != nil || kept.Patch != "" || kept.Bundle == "" || kept.Commit == "" {
			t.Errorf("%+v, %v", kept, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Sandbox.Ran) != 3 || !slices.Equal(f.Sandbox.Ran[1].Command, []string{"lost"}) {
		t.Errorf("it ran %+v", f.Sandbox.Ran)
	}
	err = in(t, &Fake{}, func() error { _, err := OpenSandbox(); return err })
	if err == nil {
		t.Error("an agent without a sandbox has one")
	}
}
