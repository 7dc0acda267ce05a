package plugins

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

const maxPath = 255 // bytes of a file's path

func openZip(body []byte, limits Limits) (agent.Source, Manifest, error) {
	files, err := unzip(body, limits)
	if err != nil {
		return agent.Source{}, Manifest{}, err
	}
	return source(files)
}

// Unpack reads all files of a zip archive within limits; nil means the default ones. Links, special files and names that lead out of the
// archive are refused.
func Unpack(body []byte, l *Limits) (map[string][]byte, error) {
	limits := l.or()
	if int64(len(body)) > limits.Upload {
		return nil, agent.Exceeded(agent.LimitUpload, "the package has more than %d bytes", limits.Upload)
	}
	return unzip(body, limits)
}

// unzip reads all files of an archive. Each entry of the directory begins with a signature, and archive/zip makes a record
// of several hundred bytes for each, so they are counted before it is asked.
func unzip(body []byte, limits Limits) (map[string][]byte, error) {
	if bytes.Count(body, []byte("PK\x01\x02")) > limits.Files {
		return nil, agent.Exceeded(agent.LimitUpload, "the package has more than %d entries", limits.Files)
	}
	r, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "this is not a whole zip archive", Err: err,
			Hint: "pack it again; it may have been cut off",
		}
	}
	files := make(map[string][]byte, len(r.File))
	left := limits.Unpacked
	for _, f := range r.File {
		name, isDir := strings.CutSuffix(f.Name, "/")
		if err := checkPath(name); err != nil {
			return nil, err
		}
		if isDir {
			continue
		}
		if _, twice := files[name]; twice {
			return nil, agent.Errorf(agent.Invalid, "the package has two files called %q", name)
		}
		b, err := readEntry(f, left)
		if err != nil {
			return nil, err
		}
		if left -= int64(len(b)); left < 0 {
			return nil, agent.Exceeded(agent.LimitUpload, "the package's files have more than %d bytes unpacked", limits.Unpacked)
		}
		files[name] = b
	}
	return files, checkTree(files)
}

// readEntry reads at most limit+1 bytes, whatever size the entry claims.
func readEntry(f *zip.File, limit int64) ([]byte, error) {
	mode := f.Mode()
	switch {
	case mode&fs.ModeSymlink != 0:
		return nil, agent.Errorf(agent.Invalid, "%q is a symbolic link: pack the file itself", f.Name)
	case !mode.IsRegular():
		return nil, agent.Errorf(agent.Invalid, "%q is not a regular file", f.Name)
	case f.Flags&1 != 0:
		return nil, agent.Errorf(agent.Invalid, "%q is encrypted", f.Name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, broken(f, err)
	}
	defer func() { _ = r.Close() }() // it holds no resource but memory
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, broken(f, err)
	}
	return b, nil
}

func broken(f *zip.File, err error) error {
	return agent.Wrap(agent.Invalid, err,
		fmt.Sprintf("%q in the package cannot be unpacked: it is damaged, or packed in a way other than deflate", f.Name))
}

// checkPath wants a relative path with forward slashes that stays inside the package.
func checkPath(name string) error {
	bad := func(why string) error {
		return &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("file name %q %s", clip(name), why),
			Hint: "names are relative paths with forward slashes, inside the package",
		}
	}
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > maxPath:
		return bad(fmt.Sprintf("has %d bytes, more than %d", len(name), maxPath))
	case !utf8.ValidString(name):
		return bad("is not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return bad("has a control character")
	case strings.Contains(name, `\`):
		return bad("has a backslash")
	case name[0] == '/' || len(name) > 1 && name[1] == ':':
		return bad("is absolute")
	case !fs.ValidPath(name) || name == ".":
		return bad(`has an empty part, or one that is "." or ".."`)
	}
	return nil
}

// checkTree refuses a file that is also a directory.
func checkTree(files map[string][]byte) error {
	for name := range files {
		for i := range len(name) {
			if name[i] != '/' {
				continue
			}
			if _, file := files[name[:i]]; file {
				return agent.Errorf(agent.Invalid, "%q is both a file and a directory", name[:i])
			}
		}
	}
	return nil
}

func sorted(files map[string][]byte) []string {
	return slices.Sorted(maps.Keys(files))
}
