package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

type decoded struct {
	Name string          `json:"name"`
	Body []byte          `json:"body,omitempty"`
	Raw  json.RawMessage `json:"raw,omitempty"`
}

// fresh decodes by a decoder of its own.
func fresh(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it goes on")
	}
	return nil
}

// FuzzDecode decodes two inputs, one after the other: what the first left behind does not change what the second comes to.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"name":"bee"}`, ` {"name":"bee","body":"AAEC","raw":[1, 2]} `, "{}\n", `{"name":"bee"} x`, `{"name":"bee"}{"name":"wasp"}`, `{"name"`, `{"other":1}`,
		`null`, `1`, `1 2`, ``, ` `, `{"body":"?"}`, `{"name":"bee"},`, `{"name":"` + strings.Repeat("b", 600) + `"}` + strings.Repeat(" ", 600) + "!",
		`{"name":"` + strings.Repeat("b", 600) + `"}` + strings.Repeat("\t", 600),
	} {
		f.Add([]byte(s), []byte(`{"name":"next"}`))
		f.Add([]byte(`{"name":"before"} `), []byte(s))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, in := range [][]byte{a, b, a} {
			var got, want decoded
			err, bad := Decode(in, &got), fresh(in, &want)
			if (err == nil) != (bad == nil) {
				t.Fatalf("%q: %v, want %v", in, err, bad)
			}
			if err == nil && fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Fatalf("%q: %+v, want %+v", in, got, want)
			}
		}
	})
}
