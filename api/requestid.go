package api

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// requestIDs makes ids that are unique among the requests of this process and, but for chance, of all others.
type requestIDs struct {
	prefix string
	n      atomic.Uint64
}

func newRequestIDs() *requestIDs {
	return &requestIDs{prefix: strconv.FormatUint(rand.Uint64(), 36) + "-"}
}

func (r *requestIDs) next() string { return r.prefix + strconv.FormatUint(r.n.Add(1), 36) }
