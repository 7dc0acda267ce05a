package badgerkv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skep-dev/skep/store/internal/disk"
)

// journal is the newest file in which Badger writes down what its memory table takes. Badger can sync it only together with the value log, in
// which this package never has anything: that would be a second flush of the disk for each batch. Badger writes through a memory map, and
// syncing the file syncs what was written so. A batch lies in one file, the newest that there is when it was written; a file that is
// left behind was synced with its last batch. nil is where the system promises no such thing of memory maps, and Badger syncs.
type journal struct {
	dir    string
	number int
	file   *os.File
}

func openJournal(dir string) (*journal, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return nil, err
	}
	j := &journal{dir: dir, number: -1}
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(name), "%d.mem", &n); err == nil {
			j.number = max(j.number, n)
		}
	}
	if j.number < 0 {
		return nil, fmt.Errorf("badger: there is no journal in %s", dir)
	}
	j.file, err = os.Open(j.path(j.number))
	return j, err
}

func (j *journal) path(n int) string { return filepath.Join(j.dir, fmt.Sprintf("%05d.mem", n)) }

// sync makes durable what Badger has written. It is called right after each batch.
func (j *journal) sync() error {
	if j == nil {
		return nil
	}
	next, err := os.Open(j.path(j.number + 1))
	for ; err == nil; next, err = os.Open(j.path(j.number + 1)) {
		if err := j.file.Close(); err != nil {
			return errors.Join(err, next.Close())
		}
		j.number, j.file = j.number+1, next
		if err := syncDir(j.dir); err != nil {
			return err
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.SyncData(j.file)
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return j.file.Close()
}
