//go:build !wasip1

package skep

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
)

// FakeTool answers calls of a tool. args is an object. An error reaches the caller as a ToolError: a CallError with its kind, any other of
// kind "failed".
type FakeTool func(args json.RawMessage) (any, error)

// FakeFile is a file of the session.
type FakeFile struct {
	Type string
	Body []byte
}

// tool answers the calls of tools, files and skills.
func (f *Fake) tool(name string, in []byte) (abi.Status, []byte) {
	switch name {
	case abi.CallTool:
		return answerOf(called(in, f.callTool))
	case abi.CallToolChange:
		return answerOf(called(in, func(c abi.ToolChange) (struct{}, error) {
			if f.Approve != nil && !f.Approve(c) {
				return struct{}{}, refusedTools()
			}
			f.Changes = append(f.Changes, c)
			f.approved = append(f.approved, c.Calls...)
			return struct{}{}, nil
		}))
	case abi.CallToolList, abi.CallToolSearch:
		return answerOf(called(in, f.findTools))
	case abi.CallToolDescribe:
		return answerOf(called(in, func(q abi.ToolQuery) (abi.ToolText, error) {
			return abi.ToolText{Text: strings.Join(q.Names, "\n")}, nil
		}))
	case abi.CallFileRead:
		return answerOf(called(in, f.readFile))
	case abi.CallFilePut:
		return answerOf(called(in, func(p abi.FilePut) (abi.FileInfo, error) {
			f.Files = with(f.Files, p.Path, FakeFile{p.Type, p.Body})
			return abi.FileInfo{Path: p.Path, Type: p.Type, Size: int64(len(p.Body))}, nil
		}))
	case abi.CallFileList:
		return answerOf(called(in, f.listFiles))
	case abi.CallInstructions:
		return answerOf(called(in, f.instructions))
	case abi.CallSkillList:
		var list abi.Skills
		for _, name := range slices.Sorted(maps.Keys(f.Skills)) {
			list.Skills = append(list.Skills, abi.SkillInfo{Name: name})
		}
		return answerOf(list, nil)
	case abi.CallSkillLoad:
		return answerOf(called(in, f.loadSkill))
	}
	return refuse("invalid", "the fake host has no call "+name)
}

func refusedTools() error {
	return &CallError{Kind: "denied", Message: "the question was answered with no"}
}

func (f *Fake) callTool(c abi.ToolCall) (abi.ToolResult, error) {
	if c.Args == nil {
		c.Args = abi.Raw("{}")
	}
	tool := f.Tools[c.Tool]
	if tool == nil {
		return abi.ToolResult{}, &CallError{Kind: "denied", Message: "tool " + c.Tool + " was not granted: give it to Fake.Tools"}
	}
	same := func(a abi.ToolCall) bool {
		return a.Tool == c.Tool && a.Undo == c.Undo && string(cmp.Or(string(a.Args), "{}")) == string(c.Args)
	}
	if i := slices.IndexFunc(f.approved, same); i >= 0 {
		f.approved = slices.Delete(slices.Clone(f.approved), i, i+1)
	} else if f.Approve != nil && !f.Approve(abi.ToolChange{Calls: []abi.ToolCall{c}}) {
		return abi.ToolResult{}, refusedTools()
	}
	f.ToolCalls = append(f.ToolCalls, c)
	v, err := tool(json.RawMessage(c.Args))
	if err != nil {
		var told *CallError
		if !errors.As(err, &told) {
			err = &CallError{Kind: "failed", Message: err.Error()}
		}
		return abi.ToolResult{}, err
	}
	b, err := json.Marshal(v)
	return abi.ToolResult{Value: b}, err
}

func (f *Fake) findTools(q abi.ToolQuery) (abi.Tools, error) {
	var found abi.Tools
	for _, name := range slices.Sorted(maps.Keys(f.Tools)) {
		of := q.Server == "" || strings.HasPrefix(name, q.Server+".")
		wanted := q.Query == ""
		for word := range strings.FieldsSeq(strings.ToLower(q.Query)) {
			wanted = wanted || strings.Contains(strings.ToLower(name), word)
		}
		switch {
		case !of || !wanted:
		case q.Limit > 0 && len(found.Tools) >= q.Limit:
			found.More++
		default:
			found.Tools = append(found.Tools, abi.ToolInfo{Name: name, Path: "tools." + name, Effect: "unclassified"})
		}
	}
	return found, nil
}

func (f *Fake) readFile(r abi.FileRead) (abi.FilePart, error) {
	file, is := f.Files[r.Path]
	if !is {
		return abi.FilePart{}, &CallError{Kind: "not_found", Message: "there is no file " + r.Path}
	}
	size := int64(len(file.Body))
	from := min(max(r.Offset, 0), size)
	to := size
	if r.Length > 0 {
		to = min(from+r.Length, size)
	}
	return abi.FilePart{Body: file.Body[from:to], FileInfo: abi.FileInfo{Path: r.Path, Type: file.Type, Size: size}}, nil
}

func (f *Fake) listFiles(l abi.FileList) (abi.Files, error) {
	var list abi.Files
	for _, path := range slices.Sorted(maps.Keys(f.Files)) {
		if strings.HasPrefix(path, l.Prefix) && path > l.After {
			list.Files = append(list.Files, abi.FileInfo{Path: path, Type: f.Files[path].Type, Size: int64(len(f.Files[path].Body))})
		}
	}
	return list, nil
}

// instructions are those of the session's files alone: a fake has no package.
func (f *Fake) instructions(q abi.InstructionsOf) (abi.Instructions, error) {
	var all abi.Instructions
	dir := ""
	for _, part := range append([]string{""}, strings.Split(strings.Trim(q.Path, "/"), "/")...) {
		if part != "" {
			dir += part + "/"
		} else if dir != "" || len(all.Files) > 0 {
			continue
		}
		path := dir + "AGENTS.md"
		if file, is := f.Files[path]; is {
			all.Files = append(all.Files, abi.InstructionFile{Path: path, From: "session", Size: int64(len(file.Body))})
			all.Text += "<instructions from=\"session\" file=\"" + path + "\">\n" + strings.TrimSpace(string(file.Body)) + "\n</instructions>\n"
		}
	}
	return all, nil
}

func (f *Fake) loadSkill(l abi.SkillLoad) (abi.SkillText, error) {
	skill, is := f.Skills[l.Name]
	text, has := skill[cmp.Or(l.Path, "SKILL.md")]
	if !is || !has {
		return abi.SkillText{}, &CallError{Kind: "not_found", Message: "there is no skill " + l.Name + " with that file"}
	}
	return abi.SkillText{Text: text, Files: slices.Sorted(maps.Keys(skill))}, nil
}
