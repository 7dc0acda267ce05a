package sse

// Filter passes a stream on byte for byte, without the frames that Drop names. It holds the bytes of the frame that is not whole yet.
type Filter struct {
	Drop func(name string, data []byte) bool

	p     Parser
	held  []byte
	ended bool // the last byte was the CR that ends a frame, so a LF that follows goes where that went
	drop  bool // it was dropped
}

// NewFilter returns a Filter. A frame of more than limit bytes of data is passed on unread.
func NewFilter(limit int, drop func(name string, data []byte) bool) *Filter {
	return &Filter{Drop: drop, p: Parser{Max: limit}}
}

// Append takes in and appends to out what may be passed on.
func (f *Filter) Append(out, in []byte) []byte {
	if f.ended && len(in) > 0 && in[0] == '\n' {
		if !f.drop {
			out = append(out, '\n')
		}
		in, f.p.cr = in[1:], false
	}
	f.ended = f.ended && len(in) == 0
	for len(in) > 0 {
		n, name, data, ok, _ := f.p.Next(in)
		f.held = append(f.held, in[:n]...)
		in = in[n:]
		switch {
		case ok:
			if f.drop = f.Drop(name, data); !f.drop {
				out = append(out, f.held...)
			}
			f.held = f.held[:0]
			f.ended = f.p.cr && len(in) == 0
		case f.p.over: // too long to be judged
			out = append(out, f.held...)
			f.held = f.held[:0]
		}
	}
	return out
}

// Flush ends the stream: it appends what is held.
func (f *Filter) Flush(out []byte) []byte {
	if name, data, ok := f.p.Flush(); !ok || !f.Drop(name, data) {
		out = append(out, f.held...)
	}
	f.held = f.held[:0]
	return out
}
