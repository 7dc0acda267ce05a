package sqldb

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A page of a database is mostly full or mostly empty: SQLite fills it from both ends. So the longest run of zeros is left out:
//
//	byte 0      1, the version
//	bytes 1, 2  where the run begins, big endian
//	bytes 3, 4  how long it is; 0 for none
//	bytes 5...  the page without it
const (
	pageVersion = 1
	pageHead    = 5
)

var errBadRedo = errors.New("redo record of a database is damaged")

func encode(page []byte) []byte {
	at, n := zeros(page)
	b := make([]byte, 0, pageHead+len(page)-n)
	b = append(b, pageVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(at))
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	b = append(b, page[:at]...)
	return append(b, page[at+n:]...)
}

// decode returns the page that b holds.
func decode(b []byte) ([]byte, error) {
	if len(b) < pageHead || b[0] != pageVersion {
		return nil, fmt.Errorf("%w: no page of version %d", errBadPage, pageVersion)
	}
	at, n := int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	b = b[pageHead:]
	if at+n > PageSize || len(b)+n != PageSize {
		return nil, fmt.Errorf("%w: %d bytes and %d zeros at %d", errBadPage, len(b), n, at)
	}
	page := make([]byte, PageSize)
	copy(page, b[:at])
	copy(page[at+n:], b[at:])
	return page, nil
}

// zeros finds the longest run of zeros, in steps of eight bytes.
func zeros(page []byte) (at, n int) {
	begin := -1
	for i := 0; i+8 <= len(page); i += 8 {
		if binary.NativeEndian.Uint64(page[i:]) != 0 {
			begin = -1
			continue
		}
		if begin < 0 {
			begin = i
		}
		if i+8-begin > n {
			at, n = begin, i+8-begin
		}
	}
	return at, n
}
