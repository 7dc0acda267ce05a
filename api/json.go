package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// decodeJSON decodes one JSON value strictly: valid UTF-8, no unknown field, nothing after it.
func decodeJSON(b []byte, v any) error {
	if !utf8.Valid(b) {
		n := 0
		for n < len(b) {
			r, size := utf8.DecodeRune(b[n:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			n += size
		}
		return agent.Errorf(agent.Invalid, "the body is not valid UTF-8 at byte %d", n)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return &agent.Error{Kind: agent.Invalid, Msg: "the body is empty", Hint: "send a JSON object"}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return jsonError(b, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return placed(b, d.InputOffset(), "the body has something after its JSON value")
	}
	return nil
}

const unknownField = "json: unknown field "

func jsonError(b []byte, err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what := "the body"
		if e.Field != "" {
			what = fmt.Sprintf("field %q", e.Field)
		}
		return placed(b, e.Offset, fmt.Sprintf("%s must be %s, not %s", what, jsonName(e.Type), e.Value))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return placed(b, e.Offset, "the body is not valid JSON: "+e.Error())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return placed(b, int64(len(b)), "the body is not valid JSON: it ends too early")
	}
	if e, ok := errors.AsType[*agent.Error](err); ok { // from an UnmarshalText of package agent
		return e
	}
	if name, ok := strings.CutPrefix(err.Error(), unknownField); ok {
		return &agent.Error{Kind: agent.Invalid, Msg: "the body has an unknown field " + name, Hint: "/v1/openapi.json lists the fields"}
	}
	return agent.Wrap(agent.Invalid, err, "the body cannot be decoded: "+strings.TrimPrefix(err.Error(), "json: "))
}

// placed returns an Invalid error that points at an offset of b by line and column.
func placed(b []byte, offset int64, msg string) error {
	before := b[:min(max(offset, 0), int64(len(b)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return &agent.Error{Kind: agent.Invalid, Msg: msg, Pos: agent.Pos{File: "body", Line: line, Column: column}}
}

func jsonName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint8:
		return "a whole number"
	case reflect.Slice, reflect.Array:
		return "an array"
	}
	return "an object"
}

// required returns an Invalid error naming the first field of the struct v that has no omitempty and no value.
func required(v reflect.Value) error {
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		name, opts, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" || strings.Contains(opts, "omit") {
			continue
		}
		if f := v.Field(i); f.IsZero() || (f.Kind() == reflect.Slice && f.Len() == 0) {
			return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("field %q is missing", name), Hint: "/v1/openapi.json lists the fields"}
		}
	}
	return nil
}

// encodeJSON encodes v and leaves the JSON that is in it as it is: json.Marshal would escape <, > and & in it, and the bytes would no longer be
// those that a digest beside them is of.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
