package store_test

import (
	"bytes"
	"testing"

	"github.com/skep-dev/skep/store"
)

// A record that was decoded encodes to one that decodes the same; none makes the decoder panic or take memory it was
// not sent.
func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte("\x01\x02{}\x00\x01\x03abc"))
	f.Add(append([]byte("\x00\x00\x02"), make([]byte, 32)...))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := store.DecodeRow(b)
		if err != nil {
			return
		}
		again := store.Encode(r)
		r2, err := store.DecodeRow(again)
		if err != nil || !bytes.Equal(again, store.Encode(r2)) {
			t.Errorf("%x becomes %x, %v", b, again, err)
		}
	})
}

func FuzzUnseal(f *testing.F) {
	f.Add("meta/format", store.Seal("meta/format", []byte(`{"format":1}`)))
	f.Add("k", []byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, k string, b []byte) {
		payload, err := store.Unseal(store.Key(k), b)
		if err == nil && !bytes.Equal(store.Seal(store.Key(k), payload), b) {
			t.Errorf("%q at %q is taken for another record's bytes", b, k)
		}
	})
}
