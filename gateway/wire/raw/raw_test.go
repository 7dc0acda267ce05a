package raw

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestSet(t *testing.T) {
	for _, c := range []struct{ in, name, value, want string }{
		{` { "a" : 1 , "b":2} `, "a", "3", ` { "a" : 3 , "b":2} `},
		{`{"a":{"a":1},"b":[{"a":2}],"c":"a"}`, "c", `"x"`, `{"a":{"a":1},"b":[{"a":2}],"c":"x"}`},
		{`{"\u0061":1}`, "a", "2", `{"\u0061":2}`},
		{"\n{}", "a", "2", "\n" + `{"a":2}`},
		{`{ "b":1}`, "a", "2", `{"a":2, "b":1}`},
		{`{"a":"\"},{"}`, "a", "null", `{"a":null}`},
	} {
		o, err := Read([]byte(c.in))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(o.Set(c.name, []byte(c.value))); got != c.want {
			t.Errorf("%s became %s", c.in, got)
		}
		if string(o.Bytes) != c.in {
			t.Errorf("%s was changed", c.in)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	many := `{"k0":0`
	for i := range 100 {
		many += `,"k` + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `":1`
	}
	if _, err := Read([]byte(many + "}")); err != nil {
		t.Error(err)
	}
	for _, in := range []string{"", "null", "[]", "{", `{"a":1}}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":1,"A":2}`, many + `,"K0":2}`, strings.Repeat("[", 1<<20), `{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + "}"} {
		if _, err := Read([]byte(in)); err == nil || agent.AsError(err).Kind != agent.Invalid {
			t.Errorf("%.40s: %v", in, err)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add([]byte(` {"model" : "a", "x":[1,{"model":2}]}`), "model")
	f.Add([]byte(`{}`), "a\"b")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		before := bytes.Clone(b)
		o, err := Read(b)
		if err != nil {
			return
		}
		got := o.Set(name, []byte(`{"new":1}`))
		if !json.Valid(got) {
			t.Fatalf("%q became %q", b, got)
		}
		again, err := Read(got)
		if err != nil {
			return // the name differs in case from one that is there
		}
		want := len(o.Fields)
		if !o.Get(name).Exists() {
			want++
		}
		if len(again.Fields) != want || !bytes.Equal(before, b) {
			t.Fatalf("%q became %q", b, got)
		}
	})
}

// With makes what Set makes, field by field.
func TestWith(t *testing.T) {
	for _, one := range []string{`{}`, ` { "a" : 1 , "b":{"c":[2]} } `, `{"a":1}`, `{"x":null,"a":"\u00e9"}`} {
		for _, other := range []string{`{}`, `{"a":2}`, `{"b":3,"a":4}`, `{"n":1,"a":[5, 6],"m\"":2}`, `{"n":1}`} {
			o, err := Read([]byte(one))
			if err != nil {
				t.Fatal(err)
			}
			l, err := Read([]byte(other))
			if err != nil {
				t.Fatal(err)
			}
			want := o
			for _, f := range l.Fields {
				if want, err = Read(want.Set(f.Name, []byte(f.Value.Raw))); err != nil {
					t.Fatal(err)
				}
			}
			if got := o.With(l); string(got) != string(want.Bytes) {
				t.Errorf("%s with %s: %s, want %s", one, other, got, want.Bytes)
			}
		}
	}
}
