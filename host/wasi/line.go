package wasi

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// maxLine is the longest line kept; longer ones are cut, between characters.
const maxLine = 16 << 10

// line collects output until it is a whole line.
type line struct{ buf []byte }

// write emits the lines that p completes, and keeps the rest.
func (l *line) write(p []byte, emit func(string)) {
	for len(p) > 0 {
		room := maxLine - len(l.buf)
		if i := bytes.IndexByte(p[:min(len(p), room+1)], '\n'); i >= 0 {
			l.buf = append(l.buf, p[:i]...)
			p = p[i+1:]
			l.emit(len(l.buf), emit)
			continue
		}
		n := min(len(p), room)
		l.buf, p = append(l.buf, p[:n]...), p[n:]
		if len(l.buf) == maxLine && len(p) > 0 {
			l.emit(whole(l.buf), emit)
		}
	}
}

// flush emits what is left as a line.
func (l *line) flush(emit func(string)) {
	if len(l.buf) > 0 {
		l.emit(len(l.buf), emit)
	}
}

// emit emits the first n bytes as a line of valid UTF-8.
func (l *line) emit(n int, emit func(string)) {
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(l.buf[:n], []byte("\r"))), "\uFFFD")
	l.buf = append(l.buf[:0], l.buf[n:]...)
	emit(text)
}

// whole returns how much of b is left without a character that is cut at its end.
func whole(b []byte) int {
	for n := 1; n < utf8.UTFMax && n < len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				break
			}
			return len(b) - n
		}
	}
	return len(b)
}
