package skep

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
)

// Do reads the call's input, calls f and sets what it returns as the call's output or error. Its result is what an exported
// function returns: 0 when f worked, else 1.
//
// Values travel as JSON, except that a []byte is the bytes as they are and a string is text. Use struct{} for a function
// that takes or returns nothing. A panic in f becomes the call's error, and its stack a line of the log.
//
// When f fails or panics, the rollbacks of the steps that worked run before the call ends, the latest first.
func Do[In, Out any](f func(In) (Out, error)) (code int32) {
	steps = taken{}
	err := caught(func() error { return do(f) })
	if err == nil {
		return 0
	}
	Fail(steps.rollBack(err))
	return 1
}

// caught makes an error of a panic.
func caught(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			Error("panic: %v\n%s", r, debug.Stack())
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

func do[In, Out any](f func(In) (Out, error)) error {
	var in In
	if err := decode(Input(), &in); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	out, err := f(in)
	if err != nil {
		return err
	}
	b, err := encode(out)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	Output(b)
	return nil
}

// InputJSON decodes the call's input, which must be JSON, into v.
func InputJSON(v any) error { return json.Unmarshal(Input(), v) }

// OutputJSON sets the JSON form of v as the call's output.
func OutputJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	Output(b)
	return nil
}

// Fail sets the call's error. An exported function that fails must also return a number other than 0.
func Fail(err error) { setError([]byte(err.Error())) }

// decode is the inverse of encode. No bytes at all leave v at its zero value.
func decode(b []byte, v any) error {
	switch v := v.(type) {
	case *[]byte:
		*v = b
		return nil
	case *string:
		*v = string(b)
		return nil
	case *struct{}:
		return nil
	}
	if len(b) == 0 {
		return nil
	}
	err := json.Unmarshal(b, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Errorf("field %q wants %s, not %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return err
}

func encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	case struct{}:
		return nil, nil
	}
	return json.Marshal(v)
}
