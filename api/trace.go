package api

import (
	"encoding/binary"
	"encoding/hex"
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

// trace is a place in a distributed trace (W3C Trace Context, level 1).
type trace struct {
	id    string // 32 hex digits; "" when the caller sent none
	span  string // 16 hex digits: our own span
	flags string // two hex digits
}

// continueTrace returns a new span of the trace that header names, or the zero trace when it names none that is valid.
func continueTrace(header string) trace {
	const size = 55 // version-traceid-parent-flags
	if len(header) < size || header[2] != '-' || header[35] != '-' || header[52] != '-' {
		return trace{}
	}
	version, id, parent, flags := header[:2], header[3:35], header[36:52], header[53:55]
	if !lowerHex(version) || !lowerHex(id) || !lowerHex(parent) || !lowerHex(flags) || version == "ff" ||
		allZero(id) || allZero(parent) {
		return trace{}
	}
	if len(header) > size && (version == "00" || header[size] != '-') {
		return trace{}
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64()|1) // an all-zero id is not valid
	return trace{id: id, span: hex.EncodeToString(b[:]), flags: flags}
}

func (t trace) String() string {
	if t.id == "" {
		return ""
	}
	return "00-" + t.id + "-" + t.span + "-" + t.flags
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func allZero(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}
