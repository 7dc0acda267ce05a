// Package skill reads skills, which are folders of instructions with a SKILL.md (https://agentskills.io/specification), and keeps them
// in the store. A skill's scripts are files like any other: nothing here runs them.
package skill

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/store"
)

// Main is the file that every skill has.
const Main = "SKILL.md"

// The bounds of a skill.
const (
	MaxName        = 64
	MaxDescription = 1024 // characters
	MaxFiles       = 200
	MaxFile        = 1 << 20  // bytes of one file
	MaxBytes       = 32 << 20 // of all files, and of a zip archive of them

	maxWords = 500 // characters of compatibility and of license
)

var limits = &plugins.Limits{Upload: MaxBytes, Unpacked: MaxBytes, Files: 4 * MaxFiles} // directories and what is left out count as well

// CheckName returns an Invalid error unless name can be that of a skill.
func CheckName(name string) error {
	good := name != "" && len(name) <= MaxName && name[0] != '-' && name[len(name)-1] != '-' && !strings.Contains(name, "--")
	for i := range len(name) {
		c := name[i]
		good = good && (c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z')
	}
	if good {
		return nil
	}
	return &agent.Error{
		Kind: agent.Invalid, Msg: fmt.Sprintf("%.80q is no name of a skill", name),
		Hint: "a name is 1 to 64 of a-z, 0-9 and -, with no - at either end and no two in a row",
	}
}

// Bundle is a skill that was read, with the bytes of its files by path.
type Bundle struct {
	Skill agent.Skill // without app, revision and times
	Files map[string][]byte
}

// FromDir reads a folder. Links and special files are refused; .git and what the system leaves in folders is passed over.
func FromDir(dir fs.FS) (Bundle, error) {
	files, err := plugins.Collect(dir, func(name string, _ bool) bool { return isLitter(name) }, limits)
	if err != nil {
		return Bundle{}, err
	}
	return FromFiles(files)
}

// FromZip reads a zip archive whose files are those of a skill, or are all in one folder that is the skill.
func FromZip(body []byte) (Bundle, error) {
	files, err := plugins.Unpack(body, limits)
	if err != nil {
		return Bundle{}, err
	}
	return FromFiles(files)
}

// Zip packs the files, equal ones in equal bytes.
func (b Bundle) Zip() ([]byte, error) { return plugins.Pack(b.Files) }

// isLitter tells of files that archivers and desktops add.
func isLitter(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	base := path.Base(name)
	return first == "__MACOSX" || base == ".DS_Store" || base == "Thumbs.db"
}

// FromFiles reads a skill of files by slash-separated path.
func FromFiles(all map[string][]byte) (Bundle, error) {
	files := make(map[string][]byte, len(all))
	for name, b := range all {
		if !isLitter(name) {
			files[name] = b
		}
	}
	files = withoutFolder(files)
	text, ok := files[Main]
	if !ok {
		return Bundle{}, noMain(files)
	}
	if len(files) > MaxFiles {
		return Bundle{}, agent.Exceeded(agent.LimitUpload, "the skill has %d files: %d are allowed", len(files), MaxFiles)
	}
	var list []agent.SkillFile
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := agent.CheckPath(name); err != nil {
			return Bundle{}, err
		}
		body := files[name]
		if len(body) > MaxFile {
			return Bundle{}, agent.Exceeded(agent.LimitUpload, "file %q of the skill has %d bytes: %d are allowed", name, len(body), MaxFile)
		}
		list = append(list, agent.SkillFile{Path: name, Type: store.FileType(name, body), Size: int64(len(body)), Digest: agent.DigestOf(body)})
	}
	front, _, err := ParseFront(text)
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{Files: files, Skill: agent.Skill{
		Name: front.Name, Description: front.Description, License: front.License, Compatibility: front.Compatibility,
		Metadata: front.Metadata, Allowed: front.Allowed, Files: list,
	}}
	packed, err := b.Zip()
	if err != nil {
		return Bundle{}, err
	}
	b.Skill.Digest = agent.DigestOf(packed)
	return b, nil
}

// withoutFolder takes off the folder that holds all files, if one does and the skill is there.
func withoutFolder(files map[string][]byte) map[string][]byte {
	var folder string
	for name := range files {
		first, _, ok := strings.Cut(name, "/")
		if !ok || folder != "" && folder != first {
			return files
		}
		folder = first
	}
	if _, ok := files[folder+"/"+Main]; !ok {
		return files
	}
	out := make(map[string][]byte, len(files))
	for name, b := range files {
		out[name[len(folder)+1:]] = b
	}
	return out
}

func noMain(files map[string][]byte) error {
	e := &agent.Error{Kind: agent.Invalid, Msg: "there is no " + Main, Hint: "a skill is a folder with a file " + Main + " in it"}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case strings.EqualFold(name, Main):
			e.Hint = fmt.Sprintf("rename %s to %s", name, Main)
			return e
		case path.Base(name) == Main:
			e.Hint = fmt.Sprintf("%s is in a folder below: add that folder by itself", name)
		}
	}
	return e
}
