package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/blob"
	"github.com/skep-dev/skep/store/engine"
	"github.com/skep-dev/skep/store/internal/disk"
	"github.com/skep-dev/skep/store/kv"
)

// Options sets what its defaults do not fit. nil and zero fields mean the defaults.
type Options struct {
	Engine engine.Kind  // kind of database to make; Unknown means Badger
	Log    *slog.Logger // nil says nothing
}

// batchSize is how many bytes one Apply of a restore carries, about.
const batchSize = 512 << 10

// Restore makes the data directory dir of a backup. dir must be empty or not there. It is made beside its place, verified
// in full, and moved there last, so that it is whole or not there at all.
func Restore(ctx context.Context, r io.Reader, dir string, o *Options) (m Manifest, sum Summary, err error) {
	if o == nil {
		o = &Options{}
	}
	dir = filepath.Clean(dir)
	if err := mustBeEmpty(dir); err != nil {
		return m, sum, err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return m, sum, agent.Wrap(agent.Unavailable, err, "cannot make directory "+parent)
	}
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".restore-")
	if err != nil {
		return m, sum, agent.Wrap(agent.Unavailable, err, "cannot make a directory in "+parent)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	if m, sum, err = fill(ctx, r, tmp, o); err != nil {
		return m, sum, err
	}
	if err = verify(ctx, tmp, o); err != nil {
		return m, sum, err
	}
	if err = os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, sum, &agent.Error{
			Kind: agent.Unavailable, Msg: "cannot put the data directory in place of " + dir, Err: err,
			Hint: "where a disk is mounted, restore to a directory below",
		}
	}
	if err = os.Rename(tmp, dir); err != nil {
		return m, sum, agent.Wrap(agent.Unavailable, err, "cannot put the data directory in place")
	}
	return m, sum, syncDir(parent)
}

func mustBeEmpty(dir string) error {
	files, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return agent.Wrap(agent.Invalid, err, "cannot restore to "+dir)
	case len(files) > 0:
		return &agent.Error{
			Kind: agent.Exists, Msg: fmt.Sprintf("%s is not empty: there is %s", dir, files[0].Name()),
			Hint: "name a new directory with --data, or move this one away",
		}
	}
	return nil
}

// fill puts the content of a backup into the empty directory dir.
func fill(ctx context.Context, r io.Reader, dir string, o *Options) (m Manifest, sum Summary, err error) {
	db, err := engine.Open(dir, o.Engine, &engine.Options{Log: o.Log})
	if err != nil {
		return m, sum, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return m, sum, agent.Wrap(agent.Unavailable, err, "cannot make a directory for blobs in "+dir)
	}
	in := &filling{ctx: ctx, db: db, dir: dir}
	m, sum, err = read(ctx, r, sink{record: in.record, blob: func(_ agent.Digest, b []byte) error {
		if err := in.room(); err != nil {
			return err
		}
		_, err := blobs.Put(b)
		return err
	}})
	if err == nil {
		err = in.flush()
	}
	return m, sum, err
}

type filling struct {
	ctx   context.Context // of the one Restore that this serves
	db    kv.DB
	dir   string
	batch []kv.Change
	bytes int
}

func (in *filling) record(key, value []byte) error {
	in.batch = append(in.batch, kv.Change{Key: bytes.Clone(key), Value: bytes.Clone(value)})
	in.bytes += len(key) + len(value)
	if in.bytes < batchSize && len(in.batch) < 1000 {
		return nil
	}
	return in.flush()
}

// room refuses to go on when the disk is nearly full, which databases deal badly with.
func (in *filling) room() error {
	if err := disk.Room(in.dir, 256<<20); err != nil {
		return agent.Wrap(agent.Unavailable, err, "the disk is nearly full; nothing was restored")
	}
	return nil
}

func (in *filling) flush() error {
	if err := in.room(); err != nil {
		return err
	}
	if err := in.db.Apply(in.ctx, in.batch); err != nil {
		return agent.Wrap(agent.Unavailable, err, "the restored records could not be written")
	}
	in.batch, in.bytes = nil, 0
	return nil
}

// verify opens what was restored as a server would, reads all of it and closes it.
func verify(ctx context.Context, dir string, o *Options) (err error) {
	db, err := engine.Open(dir, engine.Unknown, &engine.Options{Log: o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st, err := store.Open(ctx, db, dir, &store.Options{Log: o.Log, Check: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return st.Verify(ctx)
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
