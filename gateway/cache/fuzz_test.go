package cache_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/skep-dev/skep/gateway/cache"
)

// FuzzNormal brings requests into one form: it says what they said, is the same for what was brought into it, and whatever spaces there were.
func FuzzNormal(f *testing.F) {
	f.Add([]byte(`{"model":"m","b":[1.0,1e2,12345678901234567890],"a":{"z":"<ä>","y":null}, "stream":true}`))
	f.Add([]byte(`{"a":1,"a":2,"\u0061":3}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, err := cache.Normal(body, "stream")
		if err != nil {
			return
		}
		if again, err := cache.Normal(out, "stream"); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%s becomes %s, %v", out, again, err)
		}
		var spread bytes.Buffer
		if json.Indent(&spread, body, "", "\t") == nil {
			if same, err := cache.Normal(spread.Bytes(), "stream"); err != nil || !bytes.Equal(same, out) {
				t.Errorf("%s with other spaces becomes %s, %v", body, same, err)
			}
		}
		want, got := value(t, body), value(t, out)
		if m, ok := want.(map[string]any); ok {
			delete(m, "stream")
		}
		if !reflect.DeepEqual(want, got) && want != nil {
			t.Errorf("%s becomes %s", body, out)
		}
	})
}

func value(t *testing.T, b []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}
