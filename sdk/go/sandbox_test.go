//go:build !wasip1

package skep

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

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
