package inside

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

func (b *box) doArchive(ctx context.Context, a *driver.ArchiveArgs) (any, error) {
	dir := b.path(a.Dir)
	paths := a.Paths
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, p := range paths {
		if !filepath.IsLocal(p) {
			return nil, agent.Errorf(agent.Invalid, "%s is not within %s", p, dir)
		}
		if _, err := os.Lstat(filepath.Join(dir, p)); err != nil {
			return nil, fileError(p, err)
		}
	}
	return nil, b.give(ctx, a.Stream, func(to io.Writer) error { return pack(to, dir, paths) })
}

// pack writes a tar of paths within dir. Links are kept as they are; sockets, pipes and devices are left out; owners are not kept.
func pack(to io.Writer, dir string, paths []string) error {
	w := tar.NewWriter(to)
	for _, p := range paths {
		err := filepath.WalkDir(filepath.Join(dir, p), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, name)
			if err != nil || rel == "." {
				return err
			}
			return packOne(w, rel, name, d)
		})
		if err != nil {
			return fileError(p, err)
		}
	}
	return w.Close()
}

func packOne(w *tar.Writer, rel, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just gone
	}
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(rel), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return w.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(name); err != nil {
			return err
		}
		return w.WriteHeader(h)
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size { // it became shorter meanwhile: the rest is zeros
		_, err = io.CopyN(w, zeros{}, h.Size-n)
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (b *box) doUnpack(ctx context.Context, a *driver.ArchiveArgs) (any, error) {
	if len(a.Paths) > 0 {
		return nil, agent.Errorf(agent.Invalid, "an archive is unpacked whole: paths cannot be given")
	}
	st, err := b.open(ctx, a.Stream)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	_, err = unpack(st, b.path(a.Dir))
	return nil, err
}

// unpack unpacks a tar below dir, which is made, and returns how many files there were. Nothing outside of dir is written: a name that leads there, by
// itself or by a link, is refused, and what was unpacked before it stays.
func unpack(from io.Reader, dir string) (files int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fileError(dir, err)
	}
	root, err := os.OpenRoot(dir) // follows no link out of dir, whenever that was made
	if err != nil {
		return 0, fileError(dir, err)
	}
	defer root.Close()
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return files, tarError(err)
		}
		if err := unpackOne(root, h, r); err != nil {
			return files, err
		}
		files++
	}
	if _, err := io.Copy(io.Discard, from); err != nil { // padding, and whether it was cut
		return files, tarError(err)
	}
	return files, nil
}

func tarError(err error) error {
	if errors.Is(err, driver.ErrCut) {
		return agent.Wrap(agent.Unavailable, err, "the archive was cut on its way")
	}
	return agent.Wrap(agent.Invalid, err, "the archive is no tar")
}

func unpackOne(root *os.Root, h *tar.Header, content io.Reader) error {
	name := path.Clean(strings.TrimSuffix(h.Name, "/"))
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return agent.Errorf(agent.Invalid, "the archive has the name %q, which leads out of its folder", h.Name)
	}
	mode := fs.FileMode(h.Mode).Perm() // not more: no set-user-id
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return rootError(h.Name, err)
		}
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		if err = root.MkdirAll(name, 0o755); err == nil {
			err = root.Chmod(name, mode|0o700)
		}
	case tar.TypeReg:
		err = unpackFile(root, name, mode, h, content)
	case tar.TypeSymlink:
		_ = root.Remove(name) // the link may lead anywhere, as that of a Python environment does; root writes nothing through it
		err = root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if !filepath.IsLocal(path.Clean(h.Linkname)) {
			return agent.Errorf(agent.Invalid, "the archive has a link %q to %q, which leads out of its folder", h.Name, h.Linkname)
		}
		_ = root.Remove(name)
		err = root.Link(path.Clean(h.Linkname), name)
	case tar.TypeXGlobalHeader:
	default:
		return agent.Errorf(agent.Invalid, "the archive has %q of the kind %q: only files, folders and links can be unpacked", h.Name, h.Typeflag)
	}
	if err != nil {
		return rootError(h.Name, err)
	}
	return nil
}

func unpackFile(root *os.Root, name string, mode fs.FileMode, h *tar.Header, content io.Reader) error {
	if info, err := root.Lstat(name); err == nil && !info.IsDir() {
		if err := root.Remove(name); err != nil { // it may be a link, or read-only
			return err
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if bad := f.Close(); err == nil {
		err = bad
	}
	if err == nil && !h.ModTime.IsZero() {
		_ = root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}

func rootError(name string, err error) error {
	if errors.Is(err, driver.ErrCut) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return tarError(err)
	}
	if strings.Contains(err.Error(), "path escapes") { // os.Root has no exported error for it
		return agent.Wrap(agent.Invalid, err, fmt.Sprintf("the archive has the name %q, which leads out of its folder by a link", name))
	}
	return fileError(name, err)
}
