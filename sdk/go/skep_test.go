//go:build !wasip1

package skep

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

type pair struct{ A, B int }

func TestDoCarriesValues(t *testing.T) {
	host := &Fake{}
	var sum int
	if err := host.Call(func() int32 { return Do(func(p pair) (int, error) { return p.A + p.B, nil }) }, pair{2, 3}, &sum); err != nil || sum != 5 {
		t.Errorf("JSON: got %d, %v", sum, err)
	}
	var text string
	if err := host.Call(func() int32 { return Do(func(s string) (string, error) { return strings.ToUpper(s), nil }) }, "abc", &text); err != nil || text != "ABC" {
		t.Errorf("text: got %q, %v", text, err)
	}
	var raw []byte
	if err := host.Call(func() int32 { return Do(func(b []byte) ([]byte, error) { slices.Reverse(b); return b, nil }) }, []byte{1, 2}, &raw); err != nil || !slices.Equal(raw, []byte{2, 1}) {
		t.Errorf("bytes: got %v, %v", raw, err)
	}
	if err := host.Call(func() int32 { return Do(func(struct{}) (struct{}, error) { return struct{}{}, nil }) }, nil, nil); err != nil || len(host.Output) != 0 {
		t.Errorf("nothing: got %q, %v", host.Output, err)
	}
}

func TestDoFails(t *testing.T) {
	tests := []struct {
		name     string
		function func() int32
		in       any
		want     string
	}{
		{"error", func() int32 { return Do(func(pair) (int, error) { return 0, errors.New("no luck") }) }, pair{}, "no luck"},
		{"wrong field", func() int32 { return Do(func(pair) (int, error) { return 0, nil }) }, map[string]any{"A": "x"}, `input: field "A" wants int, not string`},
		{"not JSON", func() int32 { return Do(func(pair) (int, error) { return 0, nil }) }, "{", "input: unexpected end of JSON input"},
		{"panic", func() int32 { return Do(func(pair) (int, error) { panic("oh") }) }, pair{}, "panic: oh"},
		{"output", func() int32 { return Do(func(pair) (func(), error) { return nil, nil }) }, pair{}, "output: json: unsupported type: func()"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := &Fake{}
			if err := host.Call(tt.function, tt.in, nil); err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if tt.name == "panic" && (len(host.Logs) != 1 || !strings.Contains(host.Logs[0].Message, "skep_test.go")) {
				t.Errorf("the log does not show where it panicked: %v", host.Logs)
			}
		})
	}
}

// answer stands for two other agents: one doubles, one always fails.
func answer(agent, _ string, in []byte) ([]byte, error) {
	if agent == "broken" {
		return nil, errors.New("out of order")
	}
	return append(in, in...), nil
}

func TestCallAgent(t *testing.T) {
	host := &Fake{Answer: answer}
	var got string
	err := host.Call(func() int32 {
		return Do(func(in string) (string, error) {
			var out string
			err := CallAgent("doubler", "twice", in, &out)
			return out, err
		})
	}, "ab", &got)
	if err != nil || got != "abab" {
		t.Errorf("got %q, %v", got, err)
	}
	err = (&Fake{}).Call(func() int32 {
		return Do(func(string) (string, error) {
			err := CallAgent("doubler", "twice", "", nil)
			var e *CallError
			if !errors.As(err, &e) || e.Kind != "denied" {
				t.Errorf("a call that was not granted: got %v", err)
			}
			return "", nil
		})
	}, "", nil)
	if err != nil {
		t.Error(err)
	}
}

func TestBatch(t *testing.T) {
	host := &Fake{Answer: answer}
	err := host.Call(func() int32 {
		return Do(func(struct{}) (struct{}, error) {
			var one, two string
			calls := []*Call{
				{Agent: "doubler", Function: "twice", In: "a", Out: &one}, {Agent: "broken", Function: "f"},
				{Agent: "doubler", Function: "twice", In: "b", Out: &two},
			}
			err := Batch(calls...)
			if one != "aa" || two != "bb" || calls[0].Err != nil || calls[1].Err == nil {
				t.Errorf("got %q, %q, errors %v, %v", one, two, calls[0].Err, calls[1].Err)
			}
			return struct{}{}, err
		})
	}, nil, nil)
	if err == nil || err.Error() != "broken.f: out of order" {
		t.Errorf("got %v", err)
	}
}
