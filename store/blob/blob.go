// Package blob keeps bytes in files named by their SHA-256: blobs/ab/cdef... . A blob is written once and never changed;
// what comes back is what was put, or an error.
package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skep-dev/skep/agent"
)

// ErrCorrupt is in the error of a Get whose file is there and does not hold what its name says.
var ErrCorrupt = errors.New("blob: damaged")

// Dir is a directory of blobs. It is safe for concurrent use.
type Dir struct{ path string }

// Open returns the blobs under path, which it makes when it is not there. Files left by a Put that was cut short are
// removed, so no other process may be using path.
func Open(path string) (*Dir, error) {
	tmp := filepath.Join(path, "tmp")
	if err := os.RemoveAll(tmp); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := syncDir(path); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	return &Dir{path}, syncDir(filepath.Dir(path))
}

func (d *Dir) file(h string) (dir, path string) {
	dir = filepath.Join(d.path, h[:2])
	return dir, filepath.Join(dir, h[2:])
}

// Put stores b and returns its digest. Once it has returned, b survives a crash of the machine. Putting what is there
// already writes nothing, unless the file's length is wrong: then it is written anew.
func (d *Dir) Put(b []byte) (agent.Digest, error) {
	digest := agent.DigestOf(b)
	dir, path := d.file(digest.Hex())
	if st, err := os.Stat(path); err == nil && st.Size() == int64(len(b)) {
		// Another Put may have renamed it and not yet synced the directory.
		return digest, syncDir(dir)
	}
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil, errors.Is(err, fs.ErrExist):
		if err := syncDir(d.path); err != nil {
			return "", fmt.Errorf("put blob: %w", err)
		}
	default:
		return "", fmt.Errorf("put blob: %w", err)
	}
	if err := d.write(path, b); err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	return digest, nil
}

func (d *Dir) write(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Join(d.path, "tmp"), "put-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it was renamed
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Get returns the blob. It is fs.ErrNotExist when it is not there and ErrCorrupt when its bytes do not match its name.
func (d *Dir) Get(digest agent.Digest) ([]byte, error) {
	h := digest.Hex()
	if h == "" {
		return nil, fmt.Errorf("blob: %q is not a digest: %w", digest, fs.ErrNotExist)
	}
	_, path := d.file(h)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("get blob: %w", err)
	}
	if got := agent.DigestOf(b); got != digest {
		return nil, fmt.Errorf("%w: file %s holds %d bytes with digest %s", ErrCorrupt, path, len(b), got)
	}
	return b, nil
}

// Has reports whether the blob is there. It does not look whether it is whole.
func (d *Dir) Has(digest agent.Digest) bool {
	h := digest.Hex()
	if h == "" {
		return false
	}
	_, path := d.file(h)
	_, err := os.Stat(path)
	return err == nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Each calls fn for every blob that is there, in no order, without reading any. Files that are no blobs are passed over.
func (d *Dir) Each(fn func(digest agent.Digest, size int64) error) error {
	return filepath.WalkDir(d.path, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		digest := agent.Digest("sha256:" + filepath.Base(filepath.Dir(path)) + e.Name())
		if !e.Type().IsRegular() || digest.Hex() == "" {
			return nil
		}
		st, err := e.Info()
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		return fn(digest, st.Size())
	})
}
