package inside

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// path returns a path of a command: absolute, or within the workspace. The box and its user are the bounds, since a command can run any program there.
func (b *box) path(p string) string {
	if p == "" {
		return b.o.Boot.Workdir
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(b.o.Boot.Workdir, p)
	}
	return filepath.Clean(p)
}

func (b *box) doList(_ context.Context, a *driver.FileArgs) (any, error) {
	root := b.path(a.Path)
	info, err := os.Lstat(root)
	if err != nil {
		return nil, fileError(a.Path, err)
	}
	out := driver.FileList{Files: []driver.FileInfo{}}
	if info.Mode()&fs.ModeSymlink != 0 { // a link to a folder lists the folder
		if to, err := os.Stat(root); err == nil && to.IsDir() {
			info = to
			root += string(filepath.Separator)
		}
	}
	if !info.IsDir() {
		out.Files = append(out.Files, fileInfo(a.Path, root, info))
		return out, nil
	}
	size := 0
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, name)
		if rel == "." || err != nil && d == nil {
			return err
		}
		info, bad := d.Info()
		if bad != nil {
			return nil // it has just gone
		}
		f := fileInfo(rel, name, info)
		if size += len(f.Path) + len(f.Target) + 200; len(out.Files) == driver.MaxListed || size > driver.MaxMessage/2 {
			out.More = true
			return fs.SkipAll
		}
		out.Files = append(out.Files, f)
		if d.IsDir() && (!a.Recursive || err != nil) {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fileError(a.Path, err)
	}
	return out, nil
}

func fileInfo(shown, name string, info fs.FileInfo) driver.FileInfo {
	f := driver.FileInfo{Path: strings.ToValidUTF8(shown, "\uFFFD"), Size: info.Size(), Mode: uint32(info.Mode().Perm()), Modified: info.ModTime().UTC(), Type: "other"}
	switch {
	case info.Mode().IsRegular():
		f.Type = "file"
	case info.IsDir():
		f.Type, f.Size = "dir", 0
	case info.Mode()&fs.ModeSymlink != 0:
		f.Type = "link"
		f.Target, _ = os.Readlink(name)
	}
	return f
}

func fileError(path string, err error) error {
	e := &agent.Error{Kind: agent.Invalid, Msg: "the file " + path + " cannot be used", Err: err}
	var why syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Msg = agent.NotFound, "there is no file "+path
	case errors.Is(err, syscall.ENOTEMPTY):
		e.Msg, e.Hint = "the folder "+path+" is not empty", "recursive deletes what is in it too"
	case errors.Is(err, fs.ErrExist):
		e.Kind, e.Msg = agent.Exists, "the file "+path+" is there already"
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Msg = agent.Denied, "the user of the box may not use the file "+path
	case errors.Is(err, syscall.EROFS):
		e.Kind, e.Hint = agent.Denied, "only the workspace, the home and /tmp can be written"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Kind, e.Msg, e.Hint = agent.Exhausted, "the box has no room for the file "+path, "give the environment more: size.disk"
	case errors.As(err, &why):
		e.Msg += ": " + why.Error()
	}
	return e
}

func (b *box) doRead(ctx context.Context, a *driver.FileArgs) (any, error) {
	f, err := os.OpenFile(b.path(a.Path), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not hold us up
	if err != nil {
		return nil, fileError(a.Path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, agent.Errorf(agent.Invalid, "%s is no file that can be read: it is a folder, or something else", a.Path)
	}
	if a.Offset < 0 || a.Length < 0 {
		return nil, agent.Errorf(agent.Invalid, "an offset or a length is negative")
	}
	var from io.Reader = f
	if a.Offset > 0 {
		if _, err := f.Seek(a.Offset, io.SeekStart); err != nil {
			return nil, fileError(a.Path, err)
		}
	}
	if a.Length > 0 {
		from = io.LimitReader(f, a.Length)
	}
	return nil, b.give(ctx, a.Stream, func(to io.Writer) error {
		if _, err := io.Copy(to, from); err != nil {
			return fileError(a.Path, err)
		}
		return nil
	})
}

// give writes to a stream, and ends it when all went well: otherwise the other end sees that it was cut.
func (b *box) give(ctx context.Context, s *driver.Stream, write func(to io.Writer) error) error {
	st, err := b.open(ctx, s)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := write(st); err != nil {
		return err
	}
	if err := st.CloseWrite(); err != nil {
		return agent.Wrap(agent.Unavailable, err, "the stream was cut")
	}
	return nil
}

func (b *box) doWrite(ctx context.Context, a *driver.FileArgs) (any, error) {
	name := b.path(a.Path)
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, agent.Errorf(agent.Invalid, "%s is there, and is no file: it is a folder, or something else", a.Path)
	}
	if to, err := filepath.EvalSymlinks(name); err == nil { // what a link points at is written, as any program would
		name = to
	}
	st, err := b.open(ctx, a.Stream)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	def(&a.Mode, 0o644)
	if err := writeWhole(name, fs.FileMode(a.Mode).Perm(), st); err != nil {
		if errors.Is(err, driver.ErrCut) {
			return nil, agent.Wrap(agent.Unavailable, err, "the file was cut on its way and is not written")
		}
		return nil, fileError(a.Path, err)
	}
	info, err := os.Lstat(name)
	if err != nil {
		return nil, fileError(a.Path, err)
	}
	return fileInfo(a.Path, name, info), nil
}

// writeWhole writes a file that is there whole or not at all. Folders that are missing are made.
func writeWhole(name string, mode fs.FileMode, from io.Reader) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".skep-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = io.Copy(f, from); err != nil {
		return err
	}
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func (b *box) doDelete(_ context.Context, a *driver.FileArgs) (any, error) {
	name := b.path(a.Path)
	if name == b.o.Boot.Workdir || name == "/" {
		return nil, agent.Errorf(agent.Invalid, "the workspace itself cannot be deleted")
	}
	if _, err := os.Lstat(name); err != nil {
		return nil, fileError(a.Path, err)
	}
	remove := os.Remove
	if a.Recursive {
		remove = os.RemoveAll
	}
	if err := remove(name); err != nil {
		return nil, fileError(a.Path, err)
	}
	return nil, nil
}

func (b *box) doMakeDir(_ context.Context, a *driver.FileArgs) (any, error) {
	make := os.Mkdir
	if a.Recursive {
		make = os.MkdirAll
	}
	if err := make(b.path(a.Path), 0o755); err != nil {
		return nil, fileError(a.Path, err)
	}
	return nil, nil
}
