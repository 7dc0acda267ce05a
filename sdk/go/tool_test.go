//go:build !wasip1

package skep

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
)

func box() *Fake {
	disk := map[string]string{"a": "text"}
	type path struct{ Path, Content string }
	of := func(f func(path) (any, error)) FakeTool {
		return func(args json.RawMessage) (any, error) {
			var p path
			if err := json.Unmarshal(args, &p); err != nil {
				return nil, err
			}
			return f(p)
		}
	}
	return &Fake{Tools: map[string]FakeTool{
		"fs.read": of(func(p path) (any, error) {
			if _, is := disk[p.Path]; !is {
				return nil, fmt.Errorf("no file %s", p.Path)
			}
			return map[string]string{"content": disk[p.Path]}, nil
		}),
		"fs.write":  of(func(p path) (any, error) { disk[p.Path] = p.Content; return nil, nil }),
		"fs.delete": of(func(p path) (any, error) { delete(disk, p.Path); return true, nil }),
		"mail.send": func(json.RawMessage) (any, error) { return nil, &CallError{Kind: "denied", Message: "policy says no"} },
	}}
}

type args map[string]any

// in runs f as a function of an agent.
func in(t *testing.T, host *Fake, f func() error) error {
	t.Helper()
	return host.Call(func() int32 {
		return Do(func(struct{}) (struct{}, error) { return struct{}{}, f() })
	}, nil, nil)
}

func TestCallTool(t *testing.T) {
	host := box()
	err := in(t, host, func() error {
		var out struct{ Content string }
		if err := CallTool("fs.read", args{"path": "a"}, &out); err != nil || out.Content != "text" {
			t.Errorf("%+v, %v", out, err)
		}
		for tool, kind := range map[string]string{"fs.read": "failed", "mail.send": "denied", "a.b": "denied"} {
			var e *ToolError
			var under *CallError
			if err := CallTool(tool, nil, nil); !errors.As(err, &e) || e.Tool != tool || e.Err.Kind != kind || !errors.As(err, &under) {
				t.Errorf("%s: %v", tool, err)
			}
		}
		for _, bad := range []error{CallTool("fs.read", []int{1}, nil), CallTool("read", nil, nil), CallTool("fs.read", args{"f": func() {}}, nil)} {
			if bad == nil {
				t.Error("no error")
			}
		}
		a, b := &ToolCall{Tool: "fs.read", Args: args{"path": "a"}, Out: &out}, &ToolCall{Tool: "fs.read", Args: args{"path": "x"}}
		if err := BatchTools(a, b); a.Err != nil || b.Err == nil || err == nil || err.Error() != "fs.read: no file x" {
			t.Errorf("batch: %v, %v, %v", err, a.Err, b.Err)
		}
		list, more, err := ListTools(&ToolFilter{Server: "fs", Limit: 2})
		if err != nil || len(list) != 2 || more != 1 {
			t.Errorf("%v, %d, %v", list, more, err)
		}
		list, _, err = SearchTools("write a file", nil)
		if err != nil || len(list) == 0 {
			t.Error(list, err)
		}
		return nil
	})
	if err != nil || len(host.ToolCalls) != 5 {
		t.Error(err, host.ToolCalls)
	}
}

func TestChangeTools(t *testing.T) {
	host := box()
	var asked []string
	host.Approve = func(c abi.ToolChange) bool {
		asked = append(asked, fmt.Sprintf("%s: %d", c.Title, len(c.Calls)))
		return c.Title != "No"
	}
	change := func(title, last string) error {
		return ChangeTools(title,
			&ToolCall{Tool: "fs.write", Args: args{"path": "1"}, Undo: func() error { return CallTool("fs.delete", args{"path": "1"}, nil) }},
			&ToolCall{Tool: "fs.write", Args: args{"path": "2"}},
			&ToolCall{Tool: "fs.read", Args: args{"path": last}},
		)
	}
	err := in(t, host, func() error {
		if err := change("Works", "a"); err != nil {
			t.Error(err)
		}
		var e *ToolError
		want := "call 3 of 3 failed: no file none; call 2, fs.write, was not undone: it has no undo; call 1, fs.write, was undone"
		if err := change("Fails", "none"); !errors.As(err, &e) || e.Tool != "fs.read" || e.Err.Kind != "failed" || e.Err.Message != want {
			t.Error(err)
		}
		before := len(host.ToolCalls)
		if err := change("No", "a"); !errors.As(err, &e) || e.Tool != "" || e.Err.Kind != "denied" || len(host.ToolCalls) != before {
			t.Error(err)
		}
		return nil
	})
	if want := []string{"Works: 3", "Fails: 3", ": 1", "No: 3"}; err != nil || !slices.Equal(asked, want) || len(host.Changes) != 2 {
		t.Errorf("%v, %q", err, asked)
	}
	if err := host.Replay(func() int32 {
		return Do(func(struct{}) (struct{}, error) {
			_ = change("Works", "a")
			_ = change("Fails", "none")
			_ = change("No", "a")
			return struct{}{}, nil
		})
	}); err != nil {
		t.Error(err)
	}
}

// TestUndoBy makes a call that takes another back without a further question.
func TestUndoBy(t *testing.T) {
	host, asked := box(), 0
	host.Approve = func(c abi.ToolChange) bool {
		asked++
		return true
	}
	err := in(t, host, func() error {
		err := ChangeTools("Fails", &ToolCall{Tool: "fs.write", Args: args{"path": "1"}, UndoBy: &ToolCall{Tool: "fs.delete", Args: args{"path": "1"}}},
			&ToolCall{Tool: "fs.read", Args: args{"path": "none"}})
		if err == nil || !strings.HasSuffix(err.Error(), "call 1, fs.write, was undone") {
			t.Error(err)
		}
		return CallTool("fs.delete", args{"path": "1"}, nil) // is another matter
	})
	if err != nil || asked != 2 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	var got []string
	for _, c := range append(host.Changes[0].Calls, host.ToolCalls...) {
		got = append(got, fmt.Sprintf("%s%s %v", c.Tool, c.Args, c.Undo))
	}
	write, undo, read := `fs.write{"path":"1"} false`, `fs.delete{"path":"1"} true`, `fs.read{"path":"none"} false`
	if want := []string{write, undo, read, write, read, undo, `fs.delete{"path":"1"} false`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestChangeSendsWhatWasApproved has a call change what the arguments of others are made of.
func TestChangeSendsWhatWasApproved(t *testing.T) {
	host, path := box(), args{"path": "1"}
	host.Tools["fs.move"] = func(json.RawMessage) (any, error) {
		path["path"] = "2"
		return nil, nil
	}
	asked := 0
	host.Approve = func(abi.ToolChange) bool {
		asked++
		return true
	}
	if err := in(t, host, func() error {
		err := ChangeTools("Fails", &ToolCall{Tool: "fs.move", UndoBy: &ToolCall{Tool: "fs.delete", Args: path}}, &ToolCall{Tool: "fs.write", Args: path},
			&ToolCall{Tool: "fs.read", Args: args{"path": "none"}})
		if err == nil || !strings.HasSuffix(err.Error(), "call 1, fs.move, was undone") {
			t.Error(err)
		}
		return nil
	}); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

func TestInstructions(t *testing.T) {
	host := &Fake{Files: map[string]FakeFile{"AGENTS.md": {"text/markdown", []byte("Be brief.")}, "src/AGENTS.md": {"text/markdown", []byte("Use tabs.")}, "docs/AGENTS.md": {}}}
	if err := in(t, host, func() error {
		for path, want := range map[string]int{"": 1, "src": 2, "src/a/b.go": 2, "lib/c.go": 1} {
			got, err := ReadInstructions(path)
			if err != nil || len(got.Files) != want || got.Files[0].Path != "AGENTS.md" || !strings.HasPrefix(got.Text, "<instructions from=\"session\" file=\"AGENTS.md\">\nBe brief.") {
				t.Errorf("%q: %+v, %v", path, got, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestFilesAndSkills(t *testing.T) {
	host := &Fake{Files: map[string]FakeFile{"artifacts/r/1.txt": {"text/plain", []byte("long")}}, Skills: map[string]map[string]string{"pdf": {"SKILL.md": "use it", "b.md": "b"}}}
	err := in(t, host, func() error {
		var a Artifact
		if err := json.Unmarshal([]byte(`{"artifact":"artifacts/r/1.txt","type":"text/plain","size":4}`), &a); err != nil {
			return err
		}
		b, err := ReadFile(a.Path)
		if err != nil || string(b) != "long" {
			t.Errorf("%q, %v", b, err)
		}
		part, info, err := ReadFilePart(a.Path, 1, 2)
		if err != nil || string(part) != "on" || info.Size != 4 {
			t.Errorf("%q, %+v, %v", part, info, err)
		}
		if _, err := ReadFile("none"); err == nil {
			t.Error("no error")
		}
		if err := WriteFile("b.png", "image/png", []byte{1}); err != nil {
			return err
		}
		files, err := ListFiles("")
		if err != nil || len(files) != 2 {
			t.Error(files, err)
		}
		skills, err := ListSkills()
		if err != nil || len(skills) != 1 {
			t.Error(skills, err)
		}
		text, names, err := LoadSkill("pdf", "")
		if err != nil || text != "use it" || strings.Join(names, " ") != "SKILL.md b.md" {
			t.Error(text, names, err)
		}
		return nil
	})
	if err != nil || host.Files["b.png"].Type != "image/png" {
		t.Error(err, host.Files)
	}
}
