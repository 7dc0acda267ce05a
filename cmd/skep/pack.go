package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// packFolder packs a folder into a tar archive, which is gone once it is closed. Of a git repository go its history and what git knows or would take, so not
// what it ignores; of a worktree of one the same without history; of another folder all files. The file is at its beginning.
func packFolder(dir string) (f *os.File, err error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "cannot read " + dir, Err: err, Hint: "name a folder, or the URL of a git repository"}
	}
	if !st.IsDir() {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: dir + " is no folder", Hint: "name a folder, or the URL of a git repository"}
	}
	paths, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	if f, err = os.CreateTemp("", "skep-*.tar"); err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) // its name goes at once, its bytes when it is closed
	w := tar.NewWriter(f)
	for _, p := range paths {
		if err = packFile(w, dir, p); err != nil {
			break
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// filesOf lists what is packed, as paths within dir.
func filesOf(dir string) ([]string, error) {
	repo, err := os.Stat(filepath.Join(dir, ".git"))
	if err != nil {
		return walked(dir, "")
	}
	out, err := exec.Command("git", "-C", dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "git cannot list the files of " + dir, Err: err, Hint: "git -C " + dir + " status tells more"}
	}
	var paths []string
	if repo.IsDir() { // else it is a worktree's, and names a folder that is elsewhere
		paths, err = walked(dir, ".git")
	}
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if len(name) > 0 {
			paths = append(paths, string(name))
		}
	}
	return paths, err
}

// walked lists all that is below a folder of dir.
func walked(dir, below string) (paths []string, err error) {
	err = filepath.WalkDir(filepath.Join(dir, below), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err == nil && rel != "." {
			paths = append(paths, rel)
		}
		return err
	})
	return paths, err
}

// packFile adds one file. What has gone since it was listed, or is neither file, folder nor link, is left out.
func packFile(w *tar.Writer, dir, rel string) error {
	full := filepath.Join(dir, rel)
	st, err := os.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	target := ""
	switch m := st.Mode(); {
	case m&fs.ModeSymlink != 0:
		if target, err = os.Readlink(full); err != nil {
			return err
		}
	case !m.IsRegular() && !m.IsDir():
		return nil
	}
	h, err := tar.FileInfoHeader(st, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = filepath.ToSlash(rel), 0, 0, "", ""
	if st.IsDir() {
		h.Name += "/"
	}
	if err := w.WriteHeader(h); err != nil || !st.Mode().IsRegular() {
		return err
	}
	in, err := os.Open(full)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.CopyN(w, in, h.Size); err != nil {
		return &agent.Error{Kind: agent.Conflict, Msg: full + " has changed while it was read", Err: err, Hint: "try again when nobody writes there"}
	}
	return nil
}
