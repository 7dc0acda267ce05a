// Package sse reads and writes server-sent events as models' providers send them: frames of a name and data
// (https://html.spec.whatwg.org/multipage/server-sent-events.html). It is lenient where hosts are: a frame that the end of the stream cuts off before
// its empty line is still a frame, and lines may end in CR, LF or both. Fields other than event and data are dropped.
package sse

import (
	"bytes"
	"errors"
	"io"
)

// ErrTooLong says that a frame was longer than it may be.
var ErrTooLong = errors.New("a frame of the stream is too long")

// field is what a line may have besides its value: "data: " and more.
const field = 16

// MaxName bounds the name of an event; a longer one is cut.
const MaxName = 256

// Parser takes a stream in pieces of any size. It holds one frame, of at most Max bytes. The zero value with Max set is ready.
type Parser struct {
	Max int // bytes of a frame's data

	line  []byte // what has come of the line that is not whole yet
	data  []byte
	name  []byte
	has   bool // the frame has a data line
	cr    bool // the last byte was a CR, so a LF that follows belongs to it
	over  bool // the frame is too long: it is skipped
	begun bool
	done  bool // data is a frame that was handed out
	names map[string]string
}

// Next takes bytes from b until a frame is whole. It returns how many it took, and whether there is a frame, whose name and data are good until the next
// call. err is ErrTooLong when a frame was skipped; the frames after it are read.
func (p *Parser) Next(b []byte) (n int, name string, data []byte, ok bool, err error) {
	p.reset()
	for n < len(b) {
		rest := b[n:]
		if p.cr {
			p.cr = false
			if rest[0] == '\n' {
				n++
				continue
			}
		}
		end := bytes.IndexByte(rest, '\n')
		scan := rest
		if end >= 0 {
			scan = rest[:end]
		}
		if c := bytes.IndexByte(scan, '\r'); c >= 0 {
			end, p.cr = c, true
		}
		if end < 0 {
			p.keep(rest)
			return len(b), "", nil, false, nil
		}
		n += end + 1
		line := rest[:end]
		if len(p.line) > 0 {
			p.keep(line)
			line = p.line
		}
		whole, err := p.take(line)
		p.line = p.line[:0]
		if err != nil {
			return n, "", nil, false, err
		}
		if whole {
			p.done = true
			if p.cr && n < len(b) && b[n] == '\n' { // what ends the frame is of the frame
				p.cr = false
				n++
			}
			return n, p.intern(), p.data, true, nil
		}
	}
	return n, "", nil, false, nil
}

// Within reports whether a frame has begun and not ended.
func (p *Parser) Within() bool {
	return len(p.line) > 0 || p.over || !p.done && (p.has || len(p.name) > 0)
}

// Flush ends the stream: it returns the frame that has come without its end, if any.
func (p *Parser) Flush() (name string, data []byte, ok bool) {
	p.reset()
	if len(p.line) > 0 {
		_, _ = p.take(p.line)
		p.line = p.line[:0]
	}
	if p.over || !p.has {
		return "", nil, false
	}
	p.done = true
	return p.intern(), p.data, true
}

// Write takes b and gives each frame to each. It returns ErrTooLong when a frame was skipped.
func (p *Parser) Write(b []byte, each func(name string, data []byte)) error {
	var failed error
	for len(b) > 0 {
		n, name, data, ok, err := p.Next(b)
		if err != nil {
			failed = err
		}
		if ok {
			each(name, data)
		}
		b = b[n:]
	}
	return failed
}

func (p *Parser) reset() {
	if p.done {
		p.data, p.name, p.has, p.done = p.data[:0], p.name[:0], false, false
	}
}

// keep adds to the line. A line that is too long is not kept, and its frame is skipped.
func (p *Parser) keep(b []byte) {
	if p.over && len(p.line) > 0 {
		return
	}
	if len(p.line)+len(b) > p.Max+field {
		p.over = true
		p.line = append(p.line[:0], '!') // a line that is not empty, and has no field
		return
	}
	p.line = append(p.line, b...)
}

// take takes a whole line, and reports whether it ends a frame.
func (p *Parser) take(line []byte) (bool, error) {
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		if p.over {
			p.over, p.has, p.data, p.name = false, false, p.data[:0], p.name[:0]
			return false, ErrTooLong
		}
		if !p.has {
			p.name = p.name[:0]
		}
		return p.has, nil
	}
	if len(line) > p.Max+field {
		p.over = true
		return false, nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		if len(p.data)+len(value)+1 > p.Max+1 {
			p.over = true
		}
		if p.over {
			return false, nil
		}
		if p.has {
			p.data = append(p.data, '\n')
		}
		p.has = true
		p.data = append(p.data, value...)
	case "event":
		p.name = append(p.name[:0], value[:min(len(value), MaxName)]...)
	}
	return false, nil
}

// intern returns the name as a string, which is made once for each of the first 64.
func (p *Parser) intern() string {
	if len(p.name) == 0 {
		return ""
	}
	if s, ok := p.names[string(p.name)]; ok {
		return s
	}
	s := string(p.name)
	if p.names == nil {
		p.names = map[string]string{}
	}
	if len(p.names) < 64 {
		p.names[s] = s
	}
	return s
}

// Reader reads frames from a stream.
type Reader struct {
	r      io.Reader
	p      Parser
	buf    []byte
	at, to int
	err    error
	end    bool
}

// NewReader returns a Reader of r whose frames have at most limit bytes of data.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, p: Parser{Max: limit}, buf: make([]byte, 16<<10)}
}

// Next returns the next frame, whose data is good until the next call. At the end of the stream it is io.EOF; when reading fails, what failed; and
// ErrTooLong for a frame that is too long, after which nothing is read.
func (r *Reader) Next() (name string, data []byte, err error) {
	for {
		for r.at < r.to {
			n, name, data, ok, err := r.p.Next(r.buf[r.at:r.to])
			r.at += n
			if err != nil {
				r.at, r.to, r.err, r.end = 0, 0, err, true
				return "", nil, err
			}
			if ok {
				return name, data, nil
			}
		}
		if r.err != nil {
			if errors.Is(r.err, io.EOF) && !r.end {
				r.end = true
				if name, data, ok := r.p.Flush(); ok {
					return name, data, nil
				}
			}
			return "", nil, r.err
		}
		n, err := r.r.Read(r.buf)
		r.at, r.to, r.err = 0, n, err
	}
}

// Append appends a frame to b. The name may be empty; data may have more than one line.
func Append(b []byte, name string, data []byte) []byte {
	if name != "" {
		b = append(b, "event: "...)
		b = append(b, name...)
		b = append(b, '\n')
	}
	for {
		line, rest, more := bytes.Cut(data, []byte("\n"))
		b = append(b, "data: "...)
		b = append(b, line...)
		b = append(b, '\n')
		if !more {
			break
		}
		data = rest
	}
	return append(b, '\n')
}
