package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

func TestInput(t *testing.T) {
	dir := t.TempDir()
	photo := filepath.Join(dir, "photo.png")
	write(t, photo, "\x89PNG\xff")
	data := filepath.Join(dir, "data.json")
	write(t, data, `{"a":1}`)
	tests := []struct {
		name, arg, mediaType, stdin string
		want                        agent.Payload
	}{
		{name: "JSON object", arg: `{"a":1}`, want: agent.JSON([]byte(`{"a":1}`))},
		{name: "number", arg: `42`, want: agent.JSON([]byte(`42`))},
		{name: "text", arg: `hello there`, want: agent.Text("hello there")},
		{name: "named type", arg: `42`, mediaType: "text/plain", want: agent.Payload{Type: "text/plain", Body: []byte("42")}},
		{name: "JSON file", arg: "@" + data, want: agent.JSON([]byte(`{"a":1}`))},
		{name: "binary file", arg: "@" + photo, want: agent.Payload{Type: "image/png", Body: []byte("\x89PNG\xff")}},
		{name: "JSON on stdin", arg: "-", stdin: "[1]\n", want: agent.Payload{Type: agent.TypeJSON, Body: []byte("[1]\n")}},
		{name: "text on stdin", arg: "-", stdin: "hi", want: agent.Text("hi")},
		{name: "bytes on stdin", arg: "-", stdin: "\xff", want: agent.Payload{Type: agent.TypeBytes, Body: []byte("\xff")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &cli{stdin: strings.NewReader(tt.stdin)}
			got, err := c.input([]string{tt.arg}, tt.mediaType)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("payload (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInputErrors(t *testing.T) {
	c := &cli{stdin: strings.NewReader("")}
	for _, arg := range []string{`{"a":`, `["a`, `{a:1}`, "@/no/such/file"} {
		if _, err := c.input([]string{arg}, ""); agent.KindOf(err) != agent.Invalid {
			t.Errorf("input(%q): got %v, want an invalid error", arg, err)
		}
	}
}
