package plugins

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"path"

	"github.com/skep-dev/skep/agent"
)

// Pack writes files as a package, in the one canonical way: equal files make equal bytes, whichever program packs them.
// Names are in order, times are zero and nothing is compressed, so that no compressor's version shows in the digest.
func Pack(files map[string][]byte) ([]byte, error) {
	if len(files) == 0 {
		return nil, agent.Errorf(agent.Invalid, "there are no files to pack")
	}
	if err := checkTree(files); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range sorted(files) {
		if err := checkPath(name); err != nil {
			return nil, err
		}
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Collect reads the files of a directory that is to be packed. It leaves out .git and whatever skip, which may be nil,
// says; a directory that is skipped is not entered. Links and other special files are refused.
func Collect(fsys fs.FS, skip func(name string, dir bool) bool, l *Limits) (map[string][]byte, error) {
	limits := l.or()
	files := make(map[string][]byte)
	left := min(limits.Upload, limits.Unpacked)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case path.Base(name) == ".git" || skip != nil && skip(name, d.IsDir()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return agent.Errorf(agent.Invalid, "%s is not a regular file", name)
		case len(files) == limits.Files:
			return agent.Exceeded(agent.LimitUpload, "more than %d files", limits.Files)
		}
		if info, err := d.Info(); err != nil {
			return err
		} else if left -= info.Size(); left < 0 {
			return agent.Exceeded(agent.LimitUpload, "the files have more than %d bytes; %s is one too many",
				min(limits.Upload, limits.Unpacked), name)
		}
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		files[name] = b
		return checkPath(name)
	})
	if err != nil {
		return nil, err
	}
	return files, nil
}
