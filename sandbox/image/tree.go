package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// epoch is the time of every file of an image, so that it is the same file each time it is made.
var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// entry is a file, folder or link of an image.
type entry struct {
	mode     fs.FileMode // type and permissions
	uid, gid int
	link     string // target of a symbolic link
	file     string // of the host, with its content
	size     int64
	data     []byte // content when file is ""
	inode    inode  // of a file of the host that has several names
	implied  bool   // a folder that is there because something is in it
}

// inode tells files of a host apart; the zero inode is none.
type inode struct{ device, number uint64 }

// tree is the files of an image by absolute path. A path is there once: who adds it again replaces it.
type tree struct {
	entries map[string]entry
}

func newTree() *tree { return &tree{entries: map[string]entry{}} }

// put adds an entry and the folders that it is in. Paths are absolute and clean.
func (t *tree) put(name string, e entry) {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := t.entries[dir]; ok {
			break
		}
		t.entries[dir] = entry{mode: fs.ModeDir | 0o755, implied: true}
	}
	t.entries[name] = e
}

func (t *tree) dir(name string, mode fs.FileMode, owner int) {
	t.put(name, entry{mode: fs.ModeDir | mode, uid: owner, gid: owner})
}

func (t *tree) write(name string, mode fs.FileMode, text string) {
	t.put(name, entry{mode: mode, data: []byte(text), size: int64(len(text))})
}

func (t *tree) symlink(name, target string) {
	t.put(name, entry{mode: fs.ModeSymlink | 0o777, link: target})
}

// has reports whether a path, as it is, was added.
func (t *tree) has(name string) bool { _, ok := t.entries[name]; return ok }

// copyFile adds a regular file of the host at a path of the image. Only permissions are kept of it, and of these only who may run it: set-user-ID has no
// place in an image whose processes may gain nothing.
func (t *tree) copyFile(name, file string, info fs.FileInfo) {
	mode := fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	t.put(name, entry{mode: mode, file: file, size: info.Size()})
}

// copyTree adds the folder dir of the host at name. A link that leads out of dir, and what is neither file, folder nor link, is refused: such a tree was
// not made by who packed it in good faith.
func (t *tree) copyTree(name, dir string, skip func(rel string, d fs.DirEntry) bool) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if rel != "." && skip != nil && skip(rel, d) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		to := path.Join(name, filepath.ToSlash(rel))
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch d.Type() {
		case fs.ModeDir:
			t.dir(to, 0o755, 0)
		case 0:
			t.copyFile(to, file, info)
		case fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			if !filepath.IsLocal(filepath.Join(filepath.Dir(rel), target)) || filepath.IsAbs(target) {
				return agent.Errorf(agent.Denied, "%s is a link to %s, out of its package; nothing was made of it", rel, target)
			}
			t.symlink(to, target)
		default:
			return agent.Errorf(agent.Denied, "%s is neither a file, a folder nor a link", rel)
		}
		return nil
	})
}

// copyHost adds a path of the host as the host has it: with the links on the way to it, and what it is in the end when that is a file.
func (t *tree) copyHost(name string) error {
	return walkLinks("", name, func(step, link string) error {
		if link != "" {
			t.symlink(step, link)
			return nil
		}
		info, err := os.Lstat(step)
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		t.copyFile(step, step, info)
		return nil
	})
}

// walkLinks calls step for each link on the way to name below root, with its target, and at last for what is there, with "". It knows no way out of root.
func walkLinks(root, name string, step func(name, link string) error) error {
	rest, at := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/"), "/"
	for links := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(filepath.Join(root, next))
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > 40 {
			return fmt.Errorf("%s: too many links", name)
		}
		target, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			return err
		}
		if err := step(next, target); err != nil {
			return err
		}
		if !path.IsAbs(target) {
			target = path.Join(at, target)
		}
		rest, at = append(strings.Split(strings.Trim(path.Clean(target), "/"), "/"), rest...), "/"
	}
	return step(at, "")
}

// size is the bytes of all files.
func (t *tree) size() (n int64) {
	for _, e := range t.entries {
		n += e.size
	}
	return n
}

// layer writes a tree as a tar.
type layer struct {
	*tree
	leaves bool // without folders that are only implied: for a layer above others, which have them
}

// writeTo writes the tar, sorted by path. moved may be nil; it is called with the bytes of content that were written since it was called last.
func (l layer) writeTo(ctx context.Context, w io.Writer, moved func(int64)) error {
	out := tar.NewWriter(w)
	names := map[inode]string{}
	for _, name := range slices.Sorted(maps.Keys(l.entries)) {
		e := l.entries[name]
		if l.leaves && e.implied {
			continue
		}
		if err := ctx.Err(); err != nil {
			return agent.Wrap(agent.Cancelled, err, "write the image: stopped")
		}
		first := names[e.inode]
		if e.inode != (inode{}) && first == "" {
			names[e.inode] = name
		}
		if err := writeEntry(out, name, first, e, moved); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return out.Close()
}

// writeEntry writes one entry; as another name of the file first, unless that is "".
func writeEntry(out *tar.Writer, name, first string, e entry, moved func(int64)) error {
	h := &tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: int64(e.mode.Perm()), Uid: e.uid, Gid: e.gid, ModTime: epoch, Format: tar.FormatPAX}
	if e.mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case e.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case e.mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
	case first != "":
		h.Typeflag, h.Linkname = tar.TypeLink, strings.TrimPrefix(first, "/")
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.size
	}
	if err := out.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	content := io.Reader(bytes.NewReader(e.data))
	if e.file != "" {
		f, err := os.Open(e.file)
		if err != nil {
			return err
		}
		defer f.Close()
		content = f
	}
	n, err := io.Copy(out, &counted{r: io.LimitReader(content, e.size), moved: moved})
	if err == nil && n < e.size {
		err = errors.New("the file got shorter while it was read")
	}
	return err
}

// counted tells how much was read.
type counted struct {
	r     io.Reader
	moved func(int64)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if c.moved != nil && n > 0 {
		c.moved(int64(n))
	}
	return n, err
}

// digest returns the SHA-256 of the tar, in hex, and how many bytes it has.
func (l layer) digest(ctx context.Context) (sum string, size int64, err error) {
	h := sha256.New()
	c := &sizer{w: h}
	if err := l.writeTo(ctx, c, nil); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), c.n, nil
}

// sizer counts what is written.
type sizer struct {
	w io.Writer
	n int64
}

func (s *sizer) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.n += int64(n)
	return n, err
}
