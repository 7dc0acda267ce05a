package grant

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// None is the output of a call that returns no bytes.
type None struct{}

// JSON returns the handler of a call whose input and output are JSON. Unknown fields are refused, so that a misspelt one
// is an error and not a silence. A call that takes struct{} may come without input.
func JSON[In, Out any](fn func(context.Context, In) (Out, error)) Handler {
	return func(ctx context.Context, b []byte) ([]byte, error) {
		var in In
		if _, nothing := any(in).(struct{}); !nothing || len(b) > 0 {
			if err := Decode(b, &in); err != nil {
				return nil, err
			}
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		if _, none := any(out).(None); none {
			return nil, nil
		}
		return json.Marshal(out)
	}
}

// decoder decodes one value after the other. To make one costs as much as to decode a small value.
type decoder struct {
	in   bytes.Reader
	json *json.Decoder
}

var decoders = sync.Pool{New: func() any {
	d := &decoder{}
	d.json = json.NewDecoder(&d.in)
	d.json.DisallowUnknownFields()
	return d
}}

// maxKept is the largest input, in bytes, after which a decoder is used again: it keeps as much memory.
const maxKept = 64 << 10

// Decode reads one JSON value into v, and refuses fields that it does not know and what follows the value.
func Decode(b []byte, v any) error {
	d := decoders.Get().(*decoder) // one that has failed is not used again: it would fail again
	d.in.Reset(b)
	if err := d.json.Decode(v); err != nil {
		return agent.Errorf(agent.Invalid, "the host call's input is not what this call takes: %v", err)
	}
	if !blank(d.json.Buffered()) || !blank(&d.in) {
		return agent.Errorf(agent.Invalid, "the host call's input goes on after its JSON value")
	}
	if len(b) <= maxKept {
		d.in.Reset(nil)
		decoders.Put(d)
	}
	return nil
}

// blank reports whether there is nothing left in memory but white space (RFC 8259, section 2).
func blank(r io.Reader) bool {
	var b [16]byte
	for {
		n, err := r.Read(b[:])
		for _, c := range b[:n] {
			if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
		}
		if err != nil {
			return true
		}
	}
}
