package backendtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Shapes are the fields that lines of JSON have, with their types, by the kind of the line: "result: usage.input_tokens number". They hold no value.
type Shapes map[string]bool

// Add adds those of each line of output. kind names the kind of a line; one that has no name is left out. Of the fields that are in opaque, as
// "kind: path" or "*: path", what is within is not looked at: it is data, or is not read by the backend.
func (s Shapes) Add(output []byte, kind func(map[string]any) string, opaque ...string) {
	for line := range bytes.Lines(output) {
		var v map[string]any
		if json.Unmarshal(line, &v) != nil {
			continue
		}
		if name := kind(v); name != "" {
			s.add(name+":", "", v, opaque)
		}
	}
}

func (s Shapes) add(kind, path string, v any, opaque []string) {
	here := strings.TrimSuffix(kind+" "+path, " ")
	if path != "" {
		s[here+" "+typeOf(v)] = true
	}
	if slices.Contains(opaque, here) || slices.Contains(opaque, "*: "+path) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for k, f := range v {
			s.add(kind, strings.TrimPrefix(path+"."+k, "."), f, opaque)
		}
	case []any:
		for _, f := range v {
			s.add(kind, path+"[]", f, opaque)
		}
	}
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "list"
	}
	return "object"
}

// Contract compares what a CLI said with what the golden file has, and names each difference: so that a new version of the CLI that speaks otherwise is
// noticed here. A line of the file that ends in " ?" is of what is said only at times. With update the file is written; such lines stay.
func Contract(t testing.TB, file string, s Shapes, update bool) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !update {
		t.Fatal(err)
	}
	known := map[string]bool{} // true for what comes only at times
	for line := range strings.Lines(string(b)) {
		name, rare := strings.CutSuffix(strings.TrimSuffix(line, "\n"), " ?")
		known[name] = rare
	}
	if update {
		writeContract(t, file, s, known)
		return
	}
	for _, d := range s.drift(known) {
		t.Errorf("%s: the CLI %s", file, d)
	}
}

// drift is what differs from what is known.
func (s Shapes) drift(known map[string]bool) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if _, ok := known[name]; !ok {
			list = append(list, "says what it did not: "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !s[name] && !known[name] {
			list = append(list, "does not say any more: "+name)
		}
	}
	return list
}

// writeContract writes what there is and was: what one run does not say is of what is said only at times.
func writeContract(t testing.TB, file string, s Shapes, known map[string]bool) {
	t.Helper()
	fresh := len(known) == 0
	all := maps.Clone(map[string]bool(s))
	for name := range known {
		all[name] = true
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		_, was := known[name]
		if !fresh && (!was || !s[name] || known[name]) {
			name += " ?"
		}
		fmt.Fprintln(&b, name)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
