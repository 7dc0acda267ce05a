package backup

import (
	"bytes"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// FuzzRead reads archives beneath their compression. What passes holds no more than it says.
func FuzzRead(f *testing.F) {
	st, err := store.Open(f.Context(), memkv.New(), f.TempDir(), nil)
	if err != nil {
		f.Fatal(err)
	}
	defer st.Close()
	var file bytes.Buffer
	if _, err := Write(f.Context(), st, &file, Manifest{}); err != nil {
		f.Fatal(err)
	}
	z, err := zstd.NewReader(&file)
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	seed, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var records, blobs int64
		_, sum, err := readTar(t.Context(), bytes.NewReader(b), sink{
			record: func(_, _ []byte) error { records++; return nil },
			blob:   func(agent.Digest, []byte) error { blobs++; return nil },
		})
		if err != nil && agent.AsError(err).Msg == "" {
			t.Errorf("error says nothing: %#v", err)
		}
		if err == nil && (sum.Records != records || sum.Blobs != blobs) {
			t.Errorf("%d records and %d blobs came of %+v", records, blobs, sum)
		}
	})
}

func FuzzPairs(f *testing.F) {
	f.Add(appendPair(appendPair(nil, []byte("key"), []byte("value")), []byte("k"), nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		err := eachPair(b, func(k, v []byte) error { again = appendPair(again, k, v); return nil })
		if err == nil && len(again) > len(b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}
