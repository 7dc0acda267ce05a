package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// recordVersion is the first byte of every stored value.
const recordVersion = 1

const recordHeader = 1 + crc32.Size

// CorruptError says that stored data is not what was written. It is the cause of an Internal agent.Error.
type CorruptError struct {
	What string // the key, or the file
	Why  string
}

func (e *CorruptError) Error() string { return "damaged data at " + e.What + ": " + e.Why }

func corrupt(what key, format string, args ...any) error {
	return damaged(string(what), format, args...)
}

func damaged(what, format string, args ...any) error {
	return &agent.Error{
		Kind: agent.Internal, Msg: "stored data is damaged",
		Err:  &CorruptError{What: what, Why: fmt.Sprintf(format, args...)},
		Hint: "stop Skep and restore its data directory from a backup; its log names what is damaged",
	}
}

// Is makes it instance.ErrCorrupt to who knows an instance.Store only.
func (e *CorruptError) Is(target error) bool { return target == instance.ErrCorrupt }

// castagnoli is the CRC-32C polynomial (RFC 3720), which processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(k, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(k, castagnoli), castagnoli, payload)
}

func seal(k key, payload []byte) []byte { return sealAt([]byte(k), payload) }

// sealAt returns the value stored at k: version, CRC-32C of key and payload (little endian), payload.
func sealAt(k, payload []byte) []byte {
	return appendSealed(make([]byte, 0, recordHeader+len(payload)), k, payload)
}

func appendSealed(v, k, payload []byte) []byte {
	v = binary.LittleEndian.AppendUint32(append(v, recordVersion), checksum(k, payload))
	return append(v, payload...)
}

func unseal(k key, value []byte) ([]byte, error) { return unsealAt([]byte(k), value) }

// unsealAt returns the payload, which is part of value.
func unsealAt(k, value []byte) ([]byte, error) {
	if len(value) < recordHeader {
		return nil, corrupt(key(k), "%d bytes are too few for a record", len(value))
	}
	payload := value[recordHeader:]
	if want, got := binary.LittleEndian.Uint32(value[1:]), checksum(k, payload); got != want {
		return nil, corrupt(key(k), "checksum is %08x, the record says %08x", got, want)
	}
	if value[0] != recordVersion {
		return nil, corrupt(key(k), "record version %d is not known", value[0])
	}
	return payload, nil
}
