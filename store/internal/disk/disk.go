// Package disk asks how full a disk is, and syncs files.
package disk

import (
	"fmt"

	"github.com/skep-dev/skep/store/kv"
)

// Room returns an error that wraps kv.ErrFull when the disk of dir has less than need bytes left. A negative need asks for
// nothing. It is one statfs(2), about a microsecond.
func Room(dir string, need int64) error {
	if need < 0 {
		return nil
	}
	free, err := Free(dir)
	if err != nil {
		return fmt.Errorf("ask how full the disk is: %w", err)
	}
	if free < need {
		return fmt.Errorf("%w: the disk of %s has %d MiB left, %d MiB are needed", kv.ErrFull, dir, free>>20, need>>20)
	}
	return nil
}
