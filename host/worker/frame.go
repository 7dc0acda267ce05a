package worker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// kind says what a frame holds. Those of the control plane to a worker come first.
type kind byte

const (
	unknownFrame kind = iota

	frameHello   // what the process is to be; JSON, once
	frameCall    // id of the call
	frameFetch   // id of the call
	frameEval    // id of the call
	framePrepare // id of the call
	frameBundle  // id of the call
	frameCancel  // id of the call; empty
	frameNudge   // id of the call; empty
	frameAnswer  // id of the host call
	frameSource  // id of the load

	frameReady    // what became of the process; JSON, once
	frameResult   // id of the call
	frameProgress // id of the call
	frameLine     // id of the call; console output, which nobody answers
	frameAsk      // id of the call; a host call
	frameDrop     // id of the call; a host call whose answer is no longer wanted
	frameLoad     // id of the load
	frameLoaded   // code was loaded, and what that has cost

	frameProbe // tests only
	frameKinds
)

const (
	headerSize = 4 + 1 + 8 // length of the body, kind, id
	maxFrame   = 160 << 20 // a package of the largest size, with its names
	bodyStep   = 1 << 20   // what is read of a body before more memory is taken for it
)

type frame struct {
	kind kind
	id   uint64
	body []byte
}

// readFrame reads one frame. Its body is the caller's. A length that was only claimed costs no memory.
func readFrame(r *bufio.Reader) (frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	f := frame{kind: kind(head[4]), id: binary.LittleEndian.Uint64(head[5:])}
	if n > maxFrame || f.kind == unknownFrame || f.kind >= frameKinds {
		return frame{}, fmt.Errorf("frame of kind %d and %d bytes: %w", f.kind, n, errNonsense)
	}
	if n <= bodyStep {
		f.body = make([]byte, n)
		_, err := io.ReadFull(r, f.body)
		return f, err
	}
	for len(f.body) < n {
		step := min(max(bodyStep, len(f.body)), n-len(f.body))
		at := len(f.body)
		f.body = append(f.body, make([]byte, step)...)
		if _, err := io.ReadFull(r, f.body[at:]); err != nil {
			return frame{}, err
		}
	}
	return f, nil
}

// appendFrame appends a frame whose body fn writes.
func appendFrame(b []byte, k kind, id uint64, fn func(*encoder)) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(k))
	b = binary.LittleEndian.AppendUint64(b, id)
	if fn != nil {
		fn((*encoder)(&b))
	}
	n := len(b) - start - headerSize
	if n > maxFrame {
		return b[:start]
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(n))
	return b
}
