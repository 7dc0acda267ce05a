package script

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

func TestToolsAreFound(t *testing.T) {
	a := load(t, source(toolUser))
	var asked []string
	box := &toolbox{more: func(_ context.Context, name string, in []byte) ([]byte, error) {
		asked = append(asked, name+" "+string(in))
		if name == abi.CallToolDescribe {
			return json.Marshal(abi.ToolText{Text: "declare"})
		}
		return json.Marshal(abi.Tools{Tools: []abi.ToolInfo{{Name: "github.create_issue", Path: "tools.github.create_issue", Effect: "modify"}}, More: 4})
	}}
	want := `[[{"name":"github.create_issue","path":"tools.github.create_issue","effect":"modify"}],4,1,"declare","tools.search: limit is a whole number from 1 up"]`
	if got := result(t, a, box.call("find", "")); got != want {
		t.Errorf("got %s", got)
	}
	if d := cmp.Diff([]string{
		`tool.search {"query":"create issue","server":"github","effect":"modify","limit":3}`, "tool.list {}", `tool.describe {"names":["fs.*"],"level":"full"}`,
	}, asked); d != "" {
		t.Error(d)
	}
}

// shelf keeps files as the host does, in pieces of three bytes.
type shelf map[string][]byte

func (s shelf) calls(_ context.Context, name string, in []byte) ([]byte, error) {
	switch name {
	case abi.CallFileRead:
		var r abi.FileRead
		if err := json.Unmarshal(in, &r); err != nil {
			return nil, err
		}
		b, is := s[r.Path]
		if !is {
			return nil, agent.Errorf(agent.NotFound, "there is no file %s", r.Path)
		}
		n := int64(3)
		if r.Length > 0 {
			n = min(n, r.Length)
		}
		from := min(r.Offset, int64(len(b)))
		return json.Marshal(abi.FilePart{Body: b[from:min(from+n, int64(len(b)))], FileInfo: abi.FileInfo{Path: r.Path, Type: "x/y", Size: int64(len(b))}})
	case abi.CallFilePut:
		var p abi.FilePut
		if err := json.Unmarshal(in, &p); err != nil {
			return nil, err
		}
		s[p.Path] = p.Body
		return json.Marshal(abi.FileInfo{Path: p.Path, Type: p.Type, Size: int64(len(p.Body))})
	case abi.CallFileList:
		var l abi.FileList
		if err := json.Unmarshal(in, &l); err != nil {
			return nil, err
		}
		if l.After == "" {
			return []byte(`{"files":[{"path":"a1"}],"after":"a1"}`), nil
		}
		return []byte(`{"files":[{"path":"a2"}]}`), nil
	case abi.CallInstructions:
		return json.Marshal(abi.Instructions{Text: string(in), Files: []abi.InstructionFile{{Path: "AGENTS.md", From: "session", Size: 1}}})
	case abi.CallSkillList:
		return json.Marshal(abi.Skills{Skills: []abi.SkillInfo{{Name: "pdf", Description: "reads"}}})
	case abi.CallSkillLoad:
		return json.Marshal(abi.SkillText{Text: string(in), Files: []string{"SKILL.md"}})
	}
	return nil, agent.Errorf(agent.Denied, "%s is not there", name)
}

func TestFilesAndSkills(t *testing.T) {
	a := load(t, source(toolUser))
	s := shelf{"long.txt": []byte("0123456789é"), "a.json": []byte(`{"x":[1,2]}`), "a.png": {0, 1, 2, 255}}
	box := &toolbox{more: s.calls}
	want := `["0123456789é",{"x":[1,2]},"234",[0,1,2,255],true,"","not_found",{"path":"t.txt","type":"text/plain; charset=utf-8","size":6},{"path":"b.bin","type":"image/png","size":4},` +
		`{"path":"j.json","type":"application/json","size":9},["a1","a2"],[{"name":"pdf","description":"reads"}],{"text":"{\"name\":\"pdf\",\"path\":\"more.md\"}","files":["SKILL.md"]},{"text":"{\"path\":\"src\"}","files":[{"path":"AGENTS.md","from":"session","size":1}]}]`
	if got := result(t, a, box.call("file", "")); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if string(s["t.txt"]) != "héllo" || string(s["j.json"]) != `{"a":[1]}` || string(s["b.bin"]) != "\x00\x01\x02\xff" {
		t.Errorf("written: %q", s)
	}
}
