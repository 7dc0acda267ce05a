// Package backup writes a whole store into one file and makes a store of such a file again.
//
// A backup is a tar archive under Zstandard. It holds, in this order:
//
//	skep-backup.json   Manifest
//	records/N          chunks of records, N from 0: uvarint length and bytes of a key, then of its value, and so on
//	blobs/HEX          each blob that a record names, under its SHA-256
//	end.json           counts, and the SHA-256 of all the chunks and then all the names of blobs
//
// The records are those of one snapshot and do not depend on the kind of database, so a backup of one restores into
// another. What an archive says of itself is checked whenever it is read; that the records make a sound store, Restore
// checks with store.Verify.
package backup

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Version is the number of the archive's form. A newer one is refused.
const Version = 1

const (
	manifestName = "skep-backup.json"
	recordsDir   = "records/"
	blobsDir     = "blobs/"
	endName      = "end.json"

	chunkSize = 4 << 20   // a chunk is written when it is that big
	maxChunk  = 16 << 20  // and none is bigger
	maxBlob   = 1 << 30   // bytes
	maxText   = 64 << 10  // of the manifest and of the end
	maxWindow = 128 << 20 // of Zstandard
)

// Manifest is the beginning of a backup.
type Manifest struct {
	Version int       `json:"version"`
	Skep    string    `json:"skep,omitempty"` // version of the Skep that wrote it
	Created time.Time `json:"created"`
}

// Summary is the end of a backup: what it holds.
type Summary struct {
	Records int64  `json:"records"`
	Blobs   int64  `json:"blobs"`
	SHA256  string `json:"sha256"`
}

func appendPair(b, key, value []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// eachPair calls fn for the records of a chunk, which are parts of it.
func eachPair(chunk []byte, fn func(key, value []byte) error) error {
	for len(chunk) > 0 {
		var part [2][]byte
		for i := range part {
			n, k := binary.Uvarint(chunk)
			if k <= 0 || n > uint64(len(chunk)-k) {
				return broken("a chunk of records ends within a record")
			}
			part[i], chunk = chunk[k:k+int(n)], chunk[k+int(n):]
		}
		if len(part[0]) == 0 {
			return broken("a record has no key")
		}
		if err := fn(part[0], part[1]); err != nil {
			return err
		}
	}
	return nil
}

// broken is the error of an archive that is not as it was written.
func broken(format string, args ...any) error {
	return &agent.Error{
		Kind: agent.Invalid, Msg: "the backup is damaged: " + fmt.Sprintf(format, args...),
		Hint: "use another copy of it, or an older backup",
	}
}
