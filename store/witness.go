package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/skep-dev/skep/agent"
)

// witness is a small file beside the database that remembers how far the database had come, and whether the store was
// closed. A database that has lost its newest commits without noticing (Badger cuts its log at the first bad bit) knows
// of no gap; the witness does. It is written after each commit and not synced: it survives the process, and after a power
// cut it may be behind, but it is never ahead of what was durable.
type witness struct {
	f      *os.File
	commit int64
}

// A witness file is 24 bytes: number of the newest commit (big endian), 1 when closed, seven zeros, four zeros, and
// CRC-32C of what stands before it.
const witnessSize = 24

// openWitness reads the witness at path and opens it for writing. commit is the database's own newest commit.
func openWitness(path string, commit int64) (w *witness, clean bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, agent.Wrap(agent.Unavailable, err, "cannot open "+path)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, false, agent.Wrap(agent.Unavailable, err, "cannot read "+path)
	}
	switch {
	case len(b) == 0: // new, or a power cut came before its first bytes reached the disk
		clean = commit == 0
	case len(b) != witnessSize || binary.BigEndian.Uint32(b[20:]) != crc32.Checksum(b[:20], castagnoli):
		return nil, false, damaged("file "+path, "checksum does not match")
	default:
		seen := int64(binary.BigEndian.Uint64(b))
		if seen > commit {
			return nil, false, damaged("the database", "its newest commit is number %d, but commit %d had been answered", commit, seen)
		}
		clean = b[8] == 1
	}
	w = &witness{f: f, commit: commit}
	return w, clean, w.write(false)
}

// saw notes that commit is durable. It is called by one goroutine at a time. A failure to note is no failure to commit.
func (w *witness) saw(commit int64) {
	w.commit = commit
	_ = w.write(false)
}

func (w *witness) write(clean bool) error {
	var b [witnessSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(w.commit))
	if clean {
		b[8] = 1
	}
	binary.BigEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
	_, err := w.f.WriteAt(b[:], 0)
	return err
}

func (w *witness) close(clean bool) error {
	var err error
	if clean {
		err = errors.Join(w.write(true), w.f.Sync())
	}
	return errors.Join(err, w.f.Close())
}

// abandon closes the file as a crash would.
func (w *witness) abandon() { w.f.Close() }
