package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// decode reads one JSON value within bounds: objects as map[string]any, numbers as json.Number. A name that an object has twice is
// refused, since nobody could say which of the two was looked at.
func decode(b []byte) (any, error) {
	if len(b) > MaxBytes {
		return nil, agent.Errorf(agent.Invalid, "the program has %d bytes, more than %d", len(b), MaxBytes)
	}
	if !utf8.Valid(b) {
		return nil, agent.Errorf(agent.Invalid, "the program is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := value(d, "", 0)
	if err == nil {
		if _, err = d.Token(); err == nil {
			err = errors.New("there is something after it")
		} else if errors.Is(err, io.EOF) {
			return v, nil
		}
	}
	if _, ok := errors.AsType[*agent.Error](err); ok {
		return nil, err
	}
	before := b[:min(d.InputOffset(), int64(len(b)))]
	return nil, &agent.Error{
		Kind: agent.Invalid, Msg: "the program is not valid JSON: " + strings.TrimPrefix(endless(err).Error(), "json: "),
		Pos: agent.Pos{File: "program", Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])},
	}
}

func endless(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return err
}

func value(d *json.Decoder, at string, depth int) (any, error) {
	if depth > MaxNesting {
		return nil, agent.Errorf(agent.Invalid, "the program is not right at %s: values are nested more than %d deep", at, MaxNesting)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		out := map[string]any{}
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := k.(string) // all that the decoder lets pass there
			here := at + "/" + escape(name)
			if _, twice := out[name]; twice {
				return nil, agent.Errorf(agent.Invalid, "the program is not right at %s: this name is there twice", here)
			}
			if out[name], err = value(d, here, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for d.More() {
			v, err := value(d, at+"/"+strconv.Itoa(len(out)), depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = d.Token()
		return out, err
	}
	return t, nil
}

// escape writes a name as a token of a JSON Pointer.
func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return fmt.Sprintf("%T", v)
	}
}
