package skill_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/skill"
)

const good = "---\nname: pdf-forms\ndescription: Fill in PDF forms. Use it when somebody has a form.\n---\n# PDF forms\n\nDo this.\n"

// md is a SKILL.md with that front matter.
func md(front string) []byte { return []byte("---\n" + front + "---\ntext\n") }

func TestFront(t *testing.T) {
	base := skill.Front{Name: "x", Description: "d"}
	for name, c := range map[string]struct {
		text string
		want skill.Front
	}{
		"least":       {"name: x\ndescription: d\n", base},
		"CRLF":        {"name: x\r\ndescription: d\r\n", base},
		"quoted":      {"name: \"x\"\ndescription: 'a: b # c'\n", skill.Front{Name: "x", Description: "a: b # c"}},
		"folded":      {"name: x\ndescription: >\n  one\n  two\nlicense: MIT\n", skill.Front{Name: "x", Description: "one two", License: "MIT"}},
		"literal":     {"name: x\ndescription: |\n  one\n  two\n", skill.Front{Name: "x", Description: "one\ntwo"}},
		"number":      {"name: x\ndescription: 1.0\n", skill.Front{Name: "x", Description: "1.0"}},
		"unknown":     {"name: x\ndescription: d\nmodel: big\nhooks: [a, {b: c}]\n", base},
		"empty":       {"name: x\ndescription: d\nlicense:\nmetadata:\nallowed-tools:\n", base},
		"comment":     {"# a skill\nname: x # its name\ndescription: d\n", base},
		"nulls":       {"name: x\ndescription: d\nmetadata: ~\n", base},
		"tools":       {"name: x\ndescription: d\nallowed-tools: Bash(git log *) Read, Write\n", skill.Front{Name: "x", Description: "d", Allowed: []string{"Bash(git log *)", "Read", "Write"}}},
		"tool list":   {"name: x\ndescription: d\nallowed-tools:\n  - a.b\n  - c.*\n", skill.Front{Name: "x", Description: "d", Allowed: []string{"a.b", "c.*"}}},
		"compatible":  {"name: x\ndescription: d\ncompatibility: Needs git\n", skill.Front{Name: "x", Description: "d", Compatibility: "Needs git"}},
		"metadata":    {"name: x\ndescription: d\nmetadata:\n  author: me\n  version: 1.0\n  tags: [a, b]\n", skill.Front{Name: "x", Description: "d", Metadata: map[string]string{"author": "me", "version": "1.0", "tags": "[a, b]"}}},
		"flow":        {"{name: x, description: d}\n", base},
		"long enough": {"name: " + strings.Repeat("a", 64) + "\ndescription: " + strings.Repeat("é", 1024) + "\n", skill.Front{Name: strings.Repeat("a", 64), Description: strings.Repeat("é", 1024)}},
	} {
		got, rest, err := skill.ParseFront(md(c.text))
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" || string(rest) != "text\n" {
			t.Errorf("%s: %q, %v\n%s", name, rest, err, diff)
		}
	}
	if _, _, err := skill.ParseFront([]byte("\ufeff" + good)); err != nil {
		t.Errorf("with a byte order mark: %v", err)
	}
}

func TestFrontErrors(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for text, want := range map[string]string{
		"":                                      "1: the file does not begin with a line of ---",
		"# no front\n":                          "1: the file does not begin with a line of ---",
		"---\nname: x\n":                        "1: the front matter has no end",
		"---\n---\n":                            "2: the front matter is empty",
		"---\n# nothing\n\n---\n":               "2: the front matter is empty",
		"---\n- a\n---\n":                       "2: the front matter is no list of KEY: VALUE lines",
		"---\njust text\n---\n":                 "2: the front matter is no list of KEY: VALUE lines",
		"---\nname: x\n---\n":                   "1: the front matter has no description",
		"---\ndescription: d\n---\n":            "1: the front matter has no name",
		"---\nname: X\ndescription: d\n---\n":   `2: "X" is no name of a skill`,
		"---\ndescription: d\nname: a_b\n---\n": `3: "a_b" is no name of a skill`,
		"---\nname: " + long[:65] + "\ndescription: d\n---\n":                    "2: \"" + long[:65] + "\" is no name",
		"---\nname: x\ndescription: " + long + "\n---\n":                         "3: the description has 1025 characters: 1024 are allowed",
		"---\nname: x\ndescription: d\ncompatibility: " + long[:501] + "\n---\n": "4: compatibility has 501 characters: 500 are allowed",
		"---\nname: [x]\ndescription: d\n---\n":                                  "2: name is no text",
		"---\nname: x\ndescription: d\nmetadata: 7\n---\n":                       "4: metadata is no list",
		"---\nname: x\ndescription: d\nallowed-tools: {a: b}\n---\n":             "4: allowed-tools is neither",
		"---\nname: x\ndescription: d\nallowed-tools:\n- a\n- [b]\n---\n":        "6: an entry of allowed-tools is no text",
		"---\nname: &a x\ndescription: *a\n---\n":                                "3: description is no text",
		"---\nname: x\ndescription: use it: always\n---\n":                       "3: the front matter is not valid YAML",
		"---\nname: x\nname: y\ndescription: d\n---\n":                           `3: "name" stands there twice`,
		"---\nname: \"x\ndescription: d\n---\n":                                  "the front matter is not valid YAML",
		"---\nname: x\ndescription: d\xff\n---\n":                                "1: the file is not UTF-8 text",
		"---\n#" + strings.Repeat("x", 16<<10) + "\n---\n":                       "1: the front matter has more than 16384 bytes",
	} {
		_, _, err := skill.ParseFront([]byte(text))
		e, ok := errors.AsType[*agent.Error](err)
		if !ok || e.Kind != agent.Invalid || e.Pos.File != skill.Main || !strings.Contains(fmt.Sprintf("%d: %s", e.Pos.Line, e.Msg), want) {
			t.Errorf("%.80q: %+v, want %s", text, err, want)
		}
	}
}

func TestFromFiles(t *testing.T) {
	files := map[string][]byte{"SKILL.md": []byte(good), "scripts/fill.py": []byte("print(1)"), ".DS_Store": nil, "__MACOSX/SKILL.md": nil, "a.bin": {0, 1, 2}}
	b, err := skill.FromFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range b.Skill.Files {
		got = append(got, fmt.Sprintf("%s %s %d", f.Path, f.Type, f.Size))
	}
	want := []string{"SKILL.md text/markdown 111", "a.bin application/octet-stream 3", "scripts/fill.py text/x-python 8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// In a folder of its own, from disk, or in a zip that was packed otherwise, it is the same.
	in := map[string][]byte{}
	dir := t.TempDir()
	for name, body := range files {
		in["pdf-forms/"+name] = body
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, body, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	delete(in, "pdf-forms/__MACOSX/SKILL.md")
	folder, err1 := skill.FromZip(pack(t, in))
	disk, err2 := skill.FromDir(os.DirFS(dir))
	if err1 != nil || err2 != nil || folder.Skill.Digest != b.Skill.Digest || disk.Skill.Digest != b.Skill.Digest {
		t.Errorf("%v %v: digests %s, %s and %s", err1, err2, b.Skill.Digest, folder.Skill.Digest, disk.Skill.Digest)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := skill.FromDir(os.DirFS(dir)); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a link: %v", err)
	}
}

func pack(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for name, body := range files {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write(body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestBounds(t *testing.T) {
	with := func(more map[string][]byte) []byte {
		more["SKILL.md"] = []byte(good)
		return pack(t, more)
	}
	many := map[string][]byte{}
	for i := range skill.MaxFiles - 1 {
		many[fmt.Sprint(i)] = nil
	}
	if _, err := skill.FromZip(with(many)); err != nil {
		t.Errorf("%d files: %v", skill.MaxFiles, err)
	}
	many["more"] = nil
	bomb := map[string][]byte{}
	for i := range 40 {
		bomb[fmt.Sprint(i)] = make([]byte, skill.MaxFile)
	}
	if _, err := skill.FromZip(with(map[string][]byte{"x": make([]byte, skill.MaxFile)})); err != nil {
		t.Errorf("a file of %d bytes: %v", skill.MaxFile, err)
	}
	link := &zip.FileHeader{Name: "link"}
	link.SetMode(fs.ModeSymlink | 0o777)
	var linked bytes.Buffer
	w := zip.NewWriter(&linked)
	f, err := w.CreateHeader(link)
	if err == nil {
		_, err = f.Write([]byte("/etc/passwd"))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		zip  []byte
		kind agent.Kind
	}{
		"too many files": {with(many), agent.Exhausted},
		"a large file":   {with(map[string][]byte{"x": make([]byte, skill.MaxFile+1)}), agent.Exhausted},
		"a bomb":         {with(bomb), agent.Exhausted},
		"one large bomb": {with(map[string][]byte{"x": make([]byte, skill.MaxBytes+1)}), agent.Exhausted},
		"a large zip":    {make([]byte, skill.MaxBytes+1), agent.Exhausted},
		"a way out":      {with(map[string][]byte{"../x": nil}), agent.Invalid},
		"an absolute":    {with(map[string][]byte{"/x": nil}), agent.Invalid},
		"a backslash":    {with(map[string][]byte{`a\..\x`: nil}), agent.Invalid},
		"a link":         {linked.Bytes(), agent.Invalid},
		"no zip":         {[]byte("x"), agent.Invalid},
		"nothing":        {nil, agent.Invalid},
		"an empty zip":   {pack(t, nil), agent.Invalid},
		"no SKILL.md":    {pack(t, map[string][]byte{"skill.md": []byte(good)}), agent.Invalid},
		"two folders":    {pack(t, map[string][]byte{"a/SKILL.md": []byte(good), "b/x": nil}), agent.Invalid},
	} {
		if _, err := skill.FromZip(c.zip); err == nil || agent.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := skill.FromDir(fstest.MapFS{"x": {}}); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a folder that is no skill: %v", err)
	}
}

func FuzzFront(f *testing.F) {
	for _, s := range []string{good, "---\nname: x\ndescription: >-\n  d\nmetadata: {a: &x [*x]}\nallowed-tools: [a, b]\n---\n", "---\n? [a]\n: b\n---", "---\n[[[[[[{{{{\n---\n", "---\n!!binary x: y\n---\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		front, _, err := skill.ParseFront(b)
		if err != nil {
			if agent.KindOf(err) != agent.Invalid {
				t.Error(err)
			}
			return
		}
		if skill.CheckName(front.Name) != nil || front.Description == "" || len([]rune(front.Description)) > skill.MaxDescription {
			t.Errorf("%+v", front)
		}
	})
}

func FuzzZip(f *testing.F) {
	b, err := skill.FromFiles(map[string][]byte{"SKILL.md": []byte(good), "a/b": []byte("x")})
	if err != nil {
		f.Fatal(err)
	}
	z, err := b.Zip()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(z)
	f.Fuzz(func(t *testing.T, z []byte) {
		b, err := skill.FromZip(z)
		if err != nil {
			return
		}
		if len(b.Files) > skill.MaxFiles || len(b.Skill.Files) != len(b.Files) {
			t.Errorf("%d files", len(b.Files))
		}
	})
}
