package abi

import (
	"encoding/binary"
	"errors"
	"math"
)

// A batch runs many calls at once. Its input is a sequence of Request frames, its output the Reply frames in the same
// order. Numbers are little-endian:
//
//	request: name length u16 | name | input length u32 | input
//	reply:   status u8 | output length u32 | output
const (
	MaxName  = 128     // bytes of a call's name
	MaxBatch = 1 << 10 // calls of a batch
)

// Request is one call of a batch.
type Request struct {
	Name  string
	Input []byte
}

// Reply is one answer of a batch: the output, or an ErrorBody as JSON when Status is not OK.
type Reply struct {
	Status Status
	Output []byte
}

var (
	errShort = errors.New("abi: batch ends within a frame")
	errName  = errors.New("abi: call name is empty or too long")
	errMany  = errors.New("abi: too many calls in a batch")
)

// AppendRequest appends a frame to b. It fails on a name that is empty or longer than MaxName.
func AppendRequest(b []byte, r Request) ([]byte, error) {
	if len(r.Name) == 0 || len(r.Name) > MaxName || len(r.Input) > math.MaxUint32 {
		return nil, errName
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Name)))
	b = append(b, r.Name...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Input)))
	return append(b, r.Input...), nil
}

// DecodeRequests reads the input of a batch. The inputs share b.
func DecodeRequests(b []byte) ([]Request, error) {
	var rs []Request
	for len(b) > 0 {
		if len(rs) == MaxBatch {
			return nil, errMany
		}
		if len(b) < 2 {
			return nil, errShort
		}
		n := int(binary.LittleEndian.Uint16(b))
		if n == 0 || n > MaxName {
			return nil, errName
		}
		b = b[2:]
		if len(b) < n+4 {
			return nil, errShort
		}
		name := string(b[:n])
		in, rest, err := sized(b[n:])
		if err != nil {
			return nil, err
		}
		rs, b = append(rs, Request{Name: name, Input: in}), rest
	}
	return rs, nil
}

// AppendReply appends a frame to b.
func AppendReply(b []byte, r Reply) []byte {
	b = append(b, byte(r.Status))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Output)))
	return append(b, r.Output...)
}

// DecodeReplies reads the output of a batch. The outputs share b.
func DecodeReplies(b []byte) ([]Reply, error) {
	var rs []Reply
	for len(b) > 0 {
		if len(rs) == MaxBatch {
			return nil, errMany
		}
		status := Status(b[0])
		out, rest, err := sized(b[1:])
		if err != nil {
			return nil, err
		}
		rs, b = append(rs, Reply{Status: status, Output: out}), rest
	}
	return rs, nil
}

func sized(b []byte) (value, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errShort
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(n) > uint64(len(b)) {
		return nil, nil, errShort
	}
	return b[:n:n], b[n:], nil
}
