package blob_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/blob"
)

func open(t *testing.T, path string) *blob.Dir {
	t.Helper()
	d, err := blob.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPutGet(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	for _, b := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("ab"), 1<<20)} {
		digest, err := d.Put(b)
		if err != nil || digest != agent.DigestOf(b) {
			t.Fatal(digest, err)
		}
		got, err := open(t, path).Get(digest)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes became %d, %v", len(b), len(got), err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(path, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

func TestConcurrentPut(t *testing.T) {
	d := open(t, t.TempDir())
	b := bytes.Repeat([]byte("x"), 100_000)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			digest, err := d.Put(b)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := d.Get(digest); err != nil || !bytes.Equal(got, b) {
				t.Error(len(got), err)
			}
		})
	}
	all.Wait()
}

func TestDamage(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	b := []byte("some bytes")
	digest, err := d.Put(b)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(path, digest.Hex()[:2], digest.Hex()[2:])
	for _, bad := range [][]byte{[]byte("some bytez"), b[:5], {}} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Get(digest); !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("a blob that became %q: %v", bad, err)
		}
	}
	// One that was cut is mended by who has the bytes.
	if _, err := d.Put(b); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Get(digest); err != nil || !bytes.Equal(got, b) {
		t.Errorf("after mending: %q, %v", got, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(digest); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a blob that is gone: %v", err)
	}
}

// What a Put that was cut short left behind goes away.
func TestLeftovers(t *testing.T) {
	path := t.TempDir()
	open(t, path)
	left := filepath.Join(path, "tmp", "put-123")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover is still there: %v", err)
	}
}

// A directory that was taken away is missed once, and made again.
func TestDirectoryTakenAway(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	b := []byte("some bytes")
	digest, err := d.Put(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(path, digest.Hex()[:2])); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Put(b); !errors.Is(err, fs.ErrNotExist) || d.Has(digest) {
		t.Errorf("into no directory: %v", err)
	}
	if _, err := d.Put(b); err != nil {
		t.Error(err)
	}
	if got, err := d.Get(digest); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%q, %v", got, err)
	}
}

type failing struct{ r io.Reader }

var errFailing = errors.New("failing")

func (f failing) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err == io.EOF {
		err = errFailing
	}
	return n, err
}

func TestPutFromOpen(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	for _, b := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("ab"), 1<<20)} {
		for range 2 {
			digest, size, err := d.PutFrom(bytes.NewReader(b))
			if err != nil || digest != agent.DigestOf(b) || size != int64(len(b)) {
				t.Fatal(digest, size, err)
			}
			f, err := d.Open(digest)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(f)
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("%d bytes became %d, %v", len(b), len(got), err)
			}
			f.Close()
		}
	}
	if _, _, err := d.PutFrom(failing{bytes.NewReader([]byte("half"))}); !errors.Is(err, errFailing) {
		t.Errorf("a reader that fails: %v", err)
	}
	if d.Has(agent.DigestOf([]byte("half"))) {
		t.Error("what was cut short is kept")
	}
	if left, err := os.ReadDir(filepath.Join(path, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

// A file that was written since it was found to be whole is read again.
func TestOpenDamaged(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	digest, _, err := d.PutFrom(bytes.NewReader([]byte("some bytes")))
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Open(digest)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	file := filepath.Join(path, digest.Hex()[:2], digest.Hex()[2:])
	for _, bad := range []string{"some bytez", "some"} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Open(digest); !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(digest); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is gone: %v", err)
	}
	if _, err := d.Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no digest: %v", err)
	}
}
