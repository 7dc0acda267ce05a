package mcp

import (
	"bytes"
	"errors"
	"io"
)

// frames passes on a stream of events (the HTML standard, server-sent events), in which no event has more bytes than may be.
type frames struct {
	server string
	most   int64
	in     io.Reader
	tap    *tap      // takes the result that goes by; nil for none
	call   *delivery // is cut off when an event is too large; nil for none

	size int64  // of the event so far
	line bool   // the line so far has bytes
	part []byte // the line so far, when it is tapped
	data []byte // the event's data so far, when it is tapped
	err  error
}

func (f *frames) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.in.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		end := i + 1
		if i < 0 {
			end = len(rest)
		}
		f.feed(rest[:end], i >= 0)
		rest = rest[end:]
		if f.size > f.most {
			f.err = tooLarge(f.server, f.most)
			f.part, f.data = nil, nil
			f.call.cut(f.err)
			return 0, f.err
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// feed takes a part of a line, or its end.
func (f *frames) feed(b []byte, ends bool) {
	f.size += int64(len(b))
	f.line = f.line || len(bytes.TrimRight(b, "\r\n")) > 0
	if f.tap != nil {
		f.part = append(f.part, b...)
	}
	if !ends {
		return
	}
	if value, ok := bytes.CutPrefix(bytes.TrimRight(f.part, "\r\n"), []byte("data:")); ok {
		if len(f.data) > 0 {
			f.data = append(f.data, '\n')
		}
		f.data = append(f.data, bytes.TrimPrefix(value, []byte(" "))...)
	}
	f.part = f.part[:0]
	if !f.line {
		if len(f.data) > 0 {
			f.tap.message(f.data)
		}
		f.size, f.data = 0, nil
	}
	f.line = false
}
