package python

import (
	"testing"
	"unicode/utf8"
)

// FuzzMessages reads what a hostile guest may say.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`["f","g"]`))
	f.Add([]byte(`null`))
	f.Add([]byte(`text/plain; charset=utf-8`))
	f.Add([]byte(`{"type":"ValueError","message":"x","stack":"at f (main.py:1)","file":"main.py","line":1,"column":-2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if functions(b) == nil {
			t.Error("no list of functions")
		}
		if mediaType(string(b)) == "" {
			t.Error("no media type")
		}
		e := failure(b, 1)
		if e == nil || e.Pos.Line < 0 || e.Pos.Column < 0 {
			t.Errorf("failure is %v", e)
		}
		if utf8.Valid(b) && e != nil && !utf8.ValidString(e.Msg) {
			t.Errorf("message %q is not UTF-8", e.Msg)
		}
	})
}
