package pebblekv

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skep-dev/skep/store/internal/disk"
	"github.com/skep-dev/skep/store/kv"
)

// errDead is what a database that was given up answers.
var errDead = errors.New("pebble has given up; the log says why")

// logger passes on Pebble's errors, and keeps its fatal ones from ending the process.
type logger struct{ db *DB }

func (logger) Infof(string, ...any) {}
func (l logger) Errorf(format string, args ...any) {
	l.db.log.Error("pebble: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Fatalf ends the goroutine that calls it, which must not go on: Pebble counts on that. Nothing is written from now on, so
// that what the other goroutines of Pebble do cannot make matters worse.
func (l logger) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	l.db.stop(fmt.Errorf("pebble: "+format, args...), true)
	runtime.Goexit()
}

// stop refuses what would be written from now on; dead says that Pebble itself cannot go on.
func (db *DB) stop(why error, dead bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.dead = db.dead || dead
	if db.refuse == nil {
		db.refuse = why
	}
}

// guarded runs fn, which writes, where neither a panic nor a fatal error of Pebble is the caller's end.
func (db *DB) guarded(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errDead
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("pebble panicked: %v", p)
				db.stop(err, true)
			}
			done <- err
		}()
		err = fn()
	}()
	err := <-done
	if err == errDead {
		db.mu.Lock()
		defer db.mu.Unlock()
		err = errors.Join(err, db.refuse)
	}
	return err
}

// events hears of damage. Pebble would read on past it, but compact, and stall, no further.
func (db *DB) events() *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			db.log.Error("pebble: damaged data", "file", i.Path, "err", i.Details)
			db.stop(fmt.Errorf("%w: file %s: %v", kv.ErrCorrupt, i.Path, i.Details), false)
		},
		BackgroundError: func(err error) {
			db.log.Error("pebble: background error", "err", err)
			if pebble.IsCorruptionError(err) {
				db.stop(fmt.Errorf("%w: %w", kv.ErrCorrupt, err), false)
			}
		},
	}
}

// fileSystem is the system's, but writes wait while the disk is full, and fail once Pebble has given up.
func (db *DB) fileSystem() vfs.FS {
	return unlocked{errorfs.Wrap(vfs.OnDiskFull(vfs.Default, db.waitForRoom), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileClose || op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		if db.dead {
			return errDead
		}
		return nil
	}))}
}

// unlocked is a file system without locks: dirlock has the directory, and gives it back even when Pebble was given up.
type unlocked struct{ *errorfs.FS }

func (unlocked) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// waitForRoom holds up every write until the disk has room or the database is closed. The store's guard keeps commits away
// from a full disk; this is for a disk that another program fills between the guard's look and the write.
func (db *DB) waitForRoom() {
	db.log.Error("pebble: the disk is full; writes wait", "dir", db.dir)
	tick := time.NewTicker(fullEvery)
	defer tick.Stop()
	for disk.Room(db.dir, needed) != nil {
		select {
		case <-tick.C:
		case <-db.closing:
			return
		}
	}
	db.log.Warn("pebble: the disk has room again", "dir", db.dir)
}
