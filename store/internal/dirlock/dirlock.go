// Package dirlock lets one process at a time use a directory. The lock is flock(2): it goes with the process, however that
// ends.
package dirlock

import (
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/skep-dev/skep/agent"
)

// Lock is a held lock.
type Lock struct{ f *flock.Flock }

// Acquire makes dir when it is not there, and locks the file name in it. It does not wait: a directory in use is an
// Unavailable error that names it.
func Acquire(dir, name string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "cannot make directory "+dir)
	}
	f := flock.New(filepath.Join(dir, name), flock.SetPermissions(0o600))
	ok, err := f.TryLock()
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "cannot lock directory "+dir)
	}
	if !ok {
		return nil, &agent.Error{
			Kind: agent.Unavailable, Msg: "directory " + dir + " is in use by another Skep",
			Hint: "stop the other one, or give this one a data directory of its own with --data",
		}
	}
	return &Lock{f}, nil
}

// Release gives the lock back. Releasing twice is allowed.
func (l *Lock) Release() error { return l.f.Unlock() }
