package grant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

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

// Decode reads one JSON value into v, and refuses fields that it does not know and what follows the value.
func Decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return agent.Errorf(agent.Invalid, "the host call's input is not what this call takes: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return agent.Errorf(agent.Invalid, "the host call's input goes on after its JSON value")
	}
	return nil
}
