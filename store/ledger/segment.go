package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// A segment is a file named by its number, which begins with its header:
//
//	header = "SKEPUSE1", uint64 number, int64 time of making in nanoseconds, uint32 CRC-32C of what stands before, uint32 0
//
// and goes on with records. The last one of every segment but the newest is its end.
const (
	headerSize = 32
	magic      = "SKEPUSE1"
	suffix     = ".usage"
	endSize    = recordHead + 1 + 24
)

// errTorn says that a segment ends in something that is no whole record, and that this was never synced.
var errTorn = errors.New("ledger: torn record")

func segmentPath(dir string, n int64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", n, suffix))
}

// segments lists the numbers of the segments in dir, in order.
func segments(dir string) (list []int64, err error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, agent.Wrap(agent.Unavailable, err, "cannot read "+dir)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		if n, err := strconv.ParseInt(name, 10, 64); ok && err == nil && n > 0 && len(name) == 16 {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

func header(n int64, born time.Time) []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = binary.LittleEndian.AppendUint64(b, uint64(born.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, 0, 0, 0, 0)
}

// readHeader returns when segment n was made.
func readHeader(f *os.File, n int64) (time.Time, error) {
	b := make([]byte, headerSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return time.Time{}, damaged(f.Name(), "it has no header")
	}
	born := time.Unix(0, int64(binary.LittleEndian.Uint64(b[16:])))
	if string(b) != string(header(n, born)) {
		return time.Time{}, damaged(f.Name(), "its header is not that of segment %d", n)
	}
	return born, nil
}

// readEnd returns the end of a segment, and whether it has one.
func readEnd(f *os.File, n int64) (ending, bool) {
	size, err := fileSize(f)
	if err != nil || size < headerSize+endSize {
		return ending{}, false
	}
	b := make([]byte, endSize)
	if _, err := f.ReadAt(b, size-endSize); err != nil {
		return ending{}, false
	}
	body, ok := cut(b, n, size-endSize)
	if !ok || len(body) != endSize-recordHead {
		return ending{}, false
	}
	r, err := decode(body)
	return r.end, err == nil && r.kind == recordEnd
}

// scan calls fn for each record of segment n that stands from from to to, and returns where it stopped. Its error is errTorn
// when the rest is a part of a record that was never synced, a *store.CorruptError when the rest is damaged, or fn's.
func scan(f *os.File, n, from, to int64, fn func(next int64, r record) error) (at int64, err error) {
	const chunk = 256 << 10
	buf := make([]byte, 0, chunk)
	at = from
	for read := from; ; {
		if len(buf) < recordHead+maxBody && read < to {
			more := min(int64(cap(buf)-len(buf)), to-read)
			k, err := f.ReadAt(buf[len(buf):len(buf)+int(more)], read)
			if k == 0 || err != nil && !errors.Is(err, io.EOF) {
				return at, agent.Wrap(agent.Unavailable, err, "cannot read "+f.Name())
			}
			buf, read = buf[:len(buf)+k], read+int64(k)
			continue
		}
		if len(buf) == 0 {
			return at, nil
		}
		body, ok := cut(buf, n, at)
		if !ok {
			return at, torn(f, n, at)
		}
		r, err := decode(body)
		if err != nil {
			return at, damaged(f.Name(), "the record at %d cannot be read", at)
		}
		size := int64(recordHead + len(body))
		if err := fn(at+size, r); err != nil {
			return at, err
		}
		at += size
		buf = buf[size:]
		if cap(buf) < recordHead+maxBody {
			buf = append(make([]byte, 0, chunk), buf...)
		}
	}
}

// torn judges a segment that has no whole record at at. What was synced does not tear: that is damage.
func torn(f *os.File, n, at int64) error {
	size, err := fileSize(f)
	if err != nil {
		return err
	}
	rest := make([]byte, size-at)
	if _, err := f.ReadAt(rest, at); err != nil && !errors.Is(err, io.EOF) {
		return agent.Wrap(agent.Unavailable, err, "cannot read "+f.Name())
	}
	for i := int64(1); i < int64(len(rest)); i++ {
		if len(rest[i:]) < recordHead || binary.LittleEndian.Uint32(rest[i:]) > 64 {
			continue
		}
		body, ok := cut(rest[i:], n, at+i)
		if !ok {
			continue
		}
		if r, err := decode(body); err == nil && (r.kind == recordSync && r.sync > at || r.kind == recordEnd) {
			return damaged(f.Name(), "there is no record at %d, and what follows was on disk", at)
		}
	}
	return errTorn
}

func fileSize(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, agent.Wrap(agent.Unavailable, err, "cannot read "+f.Name())
	}
	return info.Size(), nil
}

func damaged(path, format string, args ...any) error {
	return &agent.Error{
		Kind: agent.Internal, Msg: "the usage ledger is damaged",
		Err:  &store.CorruptError{What: "file " + path, Why: fmt.Sprintf(format, args...)},
		Hint: "stop Skep and run skep doctor; the daily figures up to the last roll-up are in the database, and are whole",
	}
}

// agentError gives an error of the file system a kind.
func agentError(err error, msg string) error {
	if err == nil {
		return nil
	}
	return agent.Wrap(agent.Unavailable, err, msg)
}
