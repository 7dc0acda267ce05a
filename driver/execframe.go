package driver

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/skep-dev/skep/agent"
)

// ExecFrame is the kind of a frame of an exec's Stream. A frame is its kind, then its length as 4 bytes, big-endian, at most MaxFrame, then the bytes.
type ExecFrame byte

const (
	FrameInput  ExecFrame = 'i' // to the box: standard input; empty means its end
	FrameSignal ExecFrame = 's' // to the box: the name of a signal
	FrameOut    ExecFrame = 'o' // from the box: standard output
	FrameErr    ExecFrame = 'e' // from the box: standard error
	FrameExit   ExecFrame = 'x' // from the box, last: an ExecResult as JSON
)

// AppendExecFrame appends a frame to b.
func AppendExecFrame(b []byte, kind ExecFrame, data []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, byte(kind)), uint32(len(data)))
	return append(b, data...)
}

// ReadExecFrame reads a frame, which came from the other end and may be anything. At the end of the stream it is io.EOF, and within a frame ErrCut.
func ReadExecFrame(r io.Reader) (kind ExecFrame, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrCut
		}
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, agent.Errorf(agent.Invalid, "a frame of %d bytes is above %d", n, MaxFrame)
	}
	data = make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, ErrCut
	}
	return ExecFrame(head[0]), data, nil
}
