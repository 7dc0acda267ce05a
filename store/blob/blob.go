// Package blob keeps bytes in files named by their SHA-256: blobs/ab/cdef... . A blob is written once and never changed;
// what comes back is what was put, or an error.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// ErrCorrupt is in the error of a Get whose file is there and does not hold what its name says.
var ErrCorrupt = errors.New("blob: damaged")

// Dir is a directory of blobs. It is safe for concurrent use.
type Dir struct {
	path string

	mu    sync.Mutex
	whole map[agent.Digest]stamp    // of blobs that Open has read: see there
	dirs  map[string]struct{}       // that are there durably
	names map[agent.Digest]struct{} // of blobs that are in their directories durably
}

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
	return &Dir{
		path: path, whole: map[agent.Digest]stamp{}, dirs: map[string]struct{}{}, names: map[agent.Digest]struct{}{},
	}, syncDir(filepath.Dir(path))
}

func (d *Dir) file(h string) (dir, path string) {
	dir = filepath.Join(d.path, h[:2])
	return dir, filepath.Join(dir, h[2:])
}

// Put stores b and returns its digest. Once it has returned, b survives a crash of the machine. Putting what is there
// already writes nothing, unless the file's length is wrong: then it is written anew.
func (d *Dir) Put(b []byte) (agent.Digest, error) {
	digest := agent.DigestOf(b)
	if there, err := d.there(digest, int64(len(b))); there || err != nil {
		return digest, err
	}
	f, err := os.CreateTemp(filepath.Join(d.path, "tmp"), "put-")
	if err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	defer os.Remove(f.Name()) // fails once it was renamed
	if _, err = f.Write(b); err != nil {
		f.Close()
		return "", fmt.Errorf("put blob: %w", err)
	}
	return digest, d.keep(f, digest)
}

// PutFrom stores what r has, without holding it in memory, and returns its digest and size. An error of r is returned as it is.
func (d *Dir) PutFrom(r io.Reader) (agent.Digest, int64, error) {
	f, err := os.CreateTemp(filepath.Join(d.path, "tmp"), "put-")
	if err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	defer os.Remove(f.Name()) // fails once it was renamed
	h := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, h), r)
	if err != nil {
		f.Close()
		return "", 0, err
	}
	digest := digestOf(h)
	if there, err := d.there(digest, size); there || err != nil {
		f.Close()
		return digest, size, err
	}
	return digest, size, d.keep(f, digest)
}

func digestOf(h hash.Hash) agent.Digest {
	return agent.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// there reports whether a blob of that size is there, durably. Its directory is, when there is no error.
func (d *Dir) there(digest agent.Digest, size int64) (bool, error) {
	dir, path := d.file(digest.Hex())
	if st, err := os.Stat(path); err == nil && st.Size() == size {
		if known(d, d.names, digest) {
			return true, nil
		}
		// Another Put may have renamed it and not yet synced the directory.
		if err := syncDir(dir); err != nil {
			return true, err
		}
		note(d, d.names, digest, struct{}{})
		return true, nil
	}
	if known(d, d.dirs, dir) {
		return false, nil
	}
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil, errors.Is(err, fs.ErrExist):
		if err := syncDir(d.path); err != nil {
			return false, fmt.Errorf("put blob: %w", err)
		}
		note(d, d.dirs, dir, struct{}{})
	default:
		return false, fmt.Errorf("put blob: %w", err)
	}
	return false, nil
}

// keep makes the file f, which it closes, the blob of that digest.
func (d *Dir) keep(f *os.File, digest agent.Digest) error {
	err := f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	dir, path := d.file(digest.Hex())
	if err == nil {
		if err = os.Rename(f.Name(), path); errors.Is(err, fs.ErrNotExist) { // the directory was taken away: the next Put makes it
			d.mu.Lock()
			delete(d.dirs, dir)
			d.mu.Unlock()
		}
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("put blob: %w", err)
	}
	note(d, d.names, digest, struct{}{})
	return nil
}

// known reports whether set, which is of d, has k.
func known[K comparable](d *Dir, set map[K]struct{}, k K) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := set[k]
	return ok
}

// note sets k in all, which is of d and bounded.
func note[K comparable, V any](d *Dir, all map[K]V, k K, v V) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for old := range all {
		if len(all) < maxKnown {
			break
		}
		delete(all, old)
	}
	all[k] = v
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

// stamp tells whether a file was written since it was looked at.
type stamp struct {
	size  int64
	mtime time.Time
}

// maxKnown bounds how many blobs are known to be whole, and how many to be there durably.
const maxKnown = 4096

// Open opens the blob for reading, with the errors of Get. It reads all of it first, to see that it is whole, unless it did so before and
// the file was not written since: a file that is read in pieces is not read as often.
func (d *Dir) Open(digest agent.Digest) (*os.File, error) {
	h := digest.Hex()
	if h == "" {
		return nil, fmt.Errorf("blob: %q is not a digest: %w", digest, fs.ErrNotExist)
	}
	_, path := d.file(h)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	if err := d.check(f, digest); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d *Dir) check(f *os.File, digest agent.Digest) error {
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open blob: %w", err)
	}
	now := stamp{st.Size(), st.ModTime()}
	d.mu.Lock()
	known := d.whole[digest] == now
	d.mu.Unlock()
	if known {
		return nil
	}
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("open blob: %w", err)
	}
	if got := digestOf(h); got != digest {
		return fmt.Errorf("%w: file %s holds %d bytes with digest %s", ErrCorrupt, f.Name(), size, got)
	}
	note(d, d.whole, digest, now)
	return nil
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
