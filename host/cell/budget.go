package cell

import (
	"errors"
	"sync/atomic"
)

// budget is what all cells of an engine may have of memory.
type budget struct {
	most int64
	used atomic.Int64
}

var errBudget = errors.New("the cells of this process have all the memory that they may have together")

// take reports false, and takes nothing, when n more bytes are too many.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.most && n > 0 {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// tight reports whether so much is taken that nothing should be kept for later.
func (b *budget) tight() bool { return b.used.Load() > b.most/2 }
