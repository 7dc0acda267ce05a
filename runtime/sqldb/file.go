package sqldb

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/skep-dev/skep/agent"
)

// dbName is the one file of a database's file system.
const dbName = "db"

// system is a file system with one file. It refuses all others, so that the library never gets to a disk.
type system struct{ file *file }

func (s system) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if flags&vfs.OPEN_MAIN_DB == 0 || name != dbName || s.file.open {
		return nil, flags, sqlite3.CANTOPEN
	}
	s.file.open = true
	return s.file, flags | vfs.OPEN_MEMORY, nil
}

func (system) Delete(string, bool) error                   { return sqlite3.IOERR_DELETE_NOENT }
func (system) Access(string, vfs.AccessFlag) (bool, error) { return false, nil }
func (system) FullPathname(name string) (string, error)    { return name, nil }

// file is a database as the library sees it. What the library writes stays here until flush, so a turn writes each page once, and what
// a connection that broke had written of a commit can be taken back.
type file struct {
	pages Pages
	limit int             // changed pages that are kept
	ctx   context.Context // of the call that is in the library, whose callbacks have none
	open  bool            // by the connection

	loaded  bool
	size    int64            // in pages, as the library sees it
	stored  int64            // in pages, as Pages has it
	changed map[int64][]byte // a page's bytes are never changed, only replaced
	err     error            // of Pages: the library tells only that something failed

	// The call's first steps back: what changed held, nil when it held nothing.
	before     map[int64][]byte
	sizeBefore int64
}

var errBadPage = errors.New("page of a database is damaged")

// load learns the size from the head of the first page (https://sqlite.org/fileformat2.html, section 1.3).
func (f *file) load(ctx context.Context) error {
	if f.loaded {
		return nil
	}
	head, err := f.pages.Read(ctx, 0)
	if err != nil {
		return err
	}
	if f.size, err = headSize(head); err != nil {
		return err
	}
	f.stored, f.loaded = f.size, true
	return nil
}

// headSize returns how many pages the database has that begins with page head.
func headSize(head []byte) (int64, error) {
	switch {
	case head == nil:
		return 0, nil
	case len(head) != PageSize, string(head[:16]) != "SQLite format 3\x00", binary.BigEndian.Uint16(head[16:]) != PageSize:
		return 0, damaged(errBadPage)
	}
	return int64(binary.BigEndian.Uint32(head[28:])), nil
}

func damaged(err error) error {
	return agent.Wrap(agent.Internal, err, "the SQL database of the instance is damaged")
}

// forget drops what was not flushed.
func (f *file) forget() {
	f.loaded, f.size, f.stored, f.changed, f.err = false, 0, 0, nil, nil
	f.done()
}

// begin says that a call begins, done that it has ended, back that all that it wrote is taken back.
func (f *file) begin(ctx context.Context) {
	f.ctx, f.err, f.before, f.sizeBefore = ctx, nil, nil, f.size
}

func (f *file) done() { f.ctx, f.err, f.before = nil, nil, nil }

func (f *file) back() {
	for n, page := range f.before {
		if page == nil {
			delete(f.changed, n)
		} else {
			f.changed[n] = page
		}
	}
	f.before, f.size = nil, f.sizeBefore
}

func (f *file) dirty() bool { return len(f.changed) > 0 || f.size != f.stored }

// flush writes what changed to Pages. When that fails they may be torn, and the turn has to be undone.
func (f *file) flush(ctx context.Context) (wrote bool, err error) {
	if !f.dirty() {
		return false, nil
	}
	if a, ok := f.pages.(Applier); ok {
		err = a.Apply(ctx, f.size, f.changed)
	} else {
		err = f.write(ctx)
	}
	if err != nil {
		return true, err
	}
	f.changed, f.stored = nil, f.size
	return true, nil
}

func (f *file) write(ctx context.Context) error {
	if f.size < f.stored {
		if err := f.pages.Truncate(ctx, f.size); err != nil {
			return err
		}
	}
	for _, n := range slices.Sorted(maps.Keys(f.changed)) {
		if err := f.pages.Write(ctx, n, f.changed[n]); err != nil {
			return err
		}
	}
	return nil
}

// page returns a page within the size, nil when it was never written.
func (f *file) page(n int64) ([]byte, error) {
	if page, ok := f.changed[n]; ok {
		return page, nil
	}
	if n >= f.stored {
		return nil, nil
	}
	page, err := f.pages.Read(f.ctx, n)
	if err == nil && page != nil && len(page) != PageSize {
		err = damaged(errBadPage)
	}
	return page, err
}

func (f *file) ReadAt(b []byte, off int64) (int, error) {
	n, at := off/PageSize, off%PageSize
	if n >= f.size {
		return 0, io.EOF
	}
	page, err := f.page(n)
	switch {
	case err != nil:
		f.err = err
		return 0, sqlite3.IOERR_READ
	case at+int64(len(b)) > PageSize:
		return 0, sqlite3.IOERR_READ
	case page == nil:
		clear(b)
		return len(b), nil
	}
	return copy(b, page[at:]), nil
}

func (f *file) WriteAt(b []byte, off int64) (int, error) {
	n := off / PageSize
	if off%PageSize != 0 || len(b) != PageSize {
		return 0, sqlite3.IOERR_WRITE
	}
	old, ok := f.changed[n]
	if !ok && len(f.changed) >= f.limit {
		return 0, sqlite3.FULL
	}
	f.remember(n, old)
	if f.changed == nil {
		f.changed = map[int64][]byte{}
	}
	f.changed[n] = slices.Clone(b)
	f.size = max(f.size, n+1)
	return len(b), nil
}

func (f *file) remember(n int64, old []byte) {
	if f.before == nil {
		f.before = map[int64][]byte{}
	}
	if _, ok := f.before[n]; !ok {
		f.before[n] = old
	}
}

func (f *file) Truncate(size int64) error {
	pages := (size + PageSize - 1) / PageSize
	for n, page := range f.changed {
		if n >= pages {
			f.remember(n, page)
			delete(f.changed, n)
		}
	}
	f.size = pages
	return nil
}

func (f *file) Size() (int64, error) { return f.size * PageSize, nil }
func (f *file) Close() error         { return nil }

// Nobody else has the file, so locks always succeed, and whoever commits the pages sees to what is durable.

func (f *file) Sync(vfs.SyncFlag) error          { return nil }
func (f *file) Lock(vfs.LockLevel) error         { return nil }
func (f *file) Unlock(vfs.LockLevel) error       { return nil }
func (f *file) CheckReservedLock() (bool, error) { return false, nil }
func (f *file) SectorSize() int                  { return PageSize }
func (f *file) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return vfs.IOCAP_POWERSAFE_OVERWRITE
}
