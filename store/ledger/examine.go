package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Found is what Examine saw.
type Found struct {
	Segments int
	Events   int64
	Open     int     // calls of models that were begun and have no end: the next start writes them down
	Torn     string  // what a crash left at the end, in words; "" when nothing
	Missing  []int64 // segments that are not there, though older and newer ones are
	Damaged  []error // each names a file
}

// Examine reads every segment of a data directory whose ledger nobody has open. st is the store of the directory.
func Examine(ctx context.Context, st *store.Store, dir string) (found Found, err error) {
	dir = filepath.Join(dir, "usage")
	mark, err := st.UsageMark(ctx)
	if err != nil {
		return found, err
	}
	list, err := segments(dir)
	if err != nil {
		return found, err
	}
	open := map[string]bool{}
	defer func() { found.Open = len(open) }()
	for i, n := range list {
		if i > 0 {
			for m := list[i-1] + 1; m < n; m++ {
				found.Missing = append(found.Missing, m)
			}
		}
		folded := int64(0)
		if n == mark.Segment {
			folded = mark.Offset
		}
		err := found.segment(ctx, segmentPath(dir, n), n, i == len(list)-1, folded, open)
		if _, bad := errors.AsType[*store.CorruptError](err); bad {
			found.Damaged = append(found.Damaged, err)
		} else if err != nil {
			return found, err
		}
		found.Segments++
	}
	return found, nil
}

func (found *Found) segment(ctx context.Context, path string, n int64, newest bool, folded int64, open map[string]bool) error {
	f, err := os.Open(path)
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "cannot read "+path)
	}
	defer f.Close()
	size, err := fileSize(f)
	if err != nil {
		return err
	}
	if newest && size < headerSize && folded == 0 {
		found.Torn = path + " has no beginning yet"
		return nil
	}
	if _, err := readHeader(f, n); err != nil {
		return err
	}
	var events int64
	ended := false
	at, err := scan(f, n, headerSize, size, func(_ int64, r record) error {
		switch r.kind {
		case recordBegin:
			if r.event.Model != nil {
				open[r.event.Model.Call] = true
			}
		case recordEvent:
			if events++; r.event.Model != nil {
				delete(open, r.event.Model.Call)
			}
		case recordEnd:
			if ended = true; r.end.events != events {
				return damaged(path, "it has %d events; its end tells of %d", events, r.end.events)
			}
		}
		return ctx.Err()
	})
	found.Events += events
	if errors.Is(err, errTorn) && newest && at >= folded {
		found.Torn = fmt.Sprintf("%s ends in %d bytes of a record that was not written in full", path, size-at)
		err = nil
	}
	switch {
	case errors.Is(err, errTorn):
		return damaged(path, "there is no record at %d", at)
	case err != nil:
		return err
	case at < folded:
		return damaged(path, "it ends at %d; it was rolled up to %d", at, folded)
	case !newest && !ended:
		return damaged(path, "its end is missing")
	}
	return nil
}
