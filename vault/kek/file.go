package kek

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
)

const (
	keySize  = 32
	maxFile  = 64 << 10
	mode0600 = 0o600
)

func (o *Opener) openFile(source, path string, mode Mode) (*Key, error) {
	made := false
	b, err := o.readFile(path)
	if errors.Is(err, fs.ErrNotExist) && mode == Make {
		if err := makeFile(path); err != nil {
			return nil, err
		}
		b, err = o.readFile(path)
		made = true
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	key := make([]byte, base64.StdEncoding.DecodedLen(len(b)))
	n, err := base64.StdEncoding.Decode(key, bytes.TrimSpace(b))
	clear(b)
	if err != nil || n != keySize {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "vault key: " + path + " does not hold a key",
			Hint: "it must be 32 random bytes in base64, as openssl rand -base64 32 prints them; Skep makes the file when there is none",
		}
	}
	defer clear(key)
	k, err := local("file", source, key[:n])
	if err == nil {
		k.Made = made
	}
	return k, err
}

func unreadable(path string, err error) error {
	e := agent.AsError(err)
	switch {
	case e.Kind != agent.Internal:
		return err
	case errors.Is(err, fs.ErrNotExist):
		return &agent.Error{
			Kind: agent.NotFound, Msg: "vault key: there is no file " + path,
			Hint: "put the key back from where it was kept, or name another place with --vault-key",
		}
	}
	return &agent.Error{Kind: agent.Invalid, Msg: "vault key: " + path + " cannot be read", Err: err, Hint: "name another with --vault-key"}
}

// readFile reads a file that holds a key: outside the data directory, and for its owner and group alone.
func (o *Opener) readFile(path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "vault key: the path " + path + " is not absolute", Hint: "write file:/PATH or age:/PATH"}
	}
	if err := o.outside(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular() || st.Size() > maxFile:
		return nil, agent.Errorf(agent.Invalid, "vault key: %s is not a file that holds a key", path)
	case st.Mode().Perm()&0o007 != 0:
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "vault key: everybody on this machine may read or write " + path, Hint: "chmod 600 " + path,
		}
	}
	b := make([]byte, st.Size())
	n, err := f.ReadAt(b, 0)
	if n < len(b) {
		return nil, err
	}
	return b, nil
}

// outside refuses a path in the data directory, by whatever links: whoever copies the directory must not get the key.
func (o *Opener) outside(path string) error {
	if o.Dir == "" {
		return nil
	}
	dir, file := resolve(o.Dir), resolve(path)
	if rel, err := filepath.Rel(dir, file); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return &agent.Error{
			Kind: agent.Invalid, Msg: "vault key: " + path + " is in the data directory " + o.Dir,
			Hint: "whoever gets a copy of that directory would have the key to its secrets: keep the key elsewhere, by --vault-key file:/PATH",
		}
	}
	return nil
}

// resolve follows the links of a path as far as it exists.
func resolve(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for rest := ""; ; {
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			return filepath.Join(real, rest)
		}
		up := filepath.Dir(abs)
		if up == abs {
			return filepath.Join(abs, rest)
		}
		abs, rest = up, filepath.Join(filepath.Base(abs), rest)
	}
}

// makeFile makes a key that is on disk, whole, before anything can be put under it. It never replaces a file.
func makeFile(path string) (err error) {
	defer func() {
		if err != nil {
			err = &agent.Error{
				Kind: agent.Invalid, Msg: "vault key: " + path + " cannot be made", Err: err,
				Hint: "name a place that can be written with --vault-key file:/PATH",
			}
		}
	}()
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".vault-key-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	clear(key)
	if err = errors.Join(err, f.Chmod(mode0600), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) { // another server may have been first
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
