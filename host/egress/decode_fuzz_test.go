package egress

import (
	"bytes"
	stdflate "compress/flate"
	stdgzip "compress/gzip"
	stdzlib "compress/zlib"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// packed is text in a coding.
func packed(f *testing.F, k coding, text string) []byte {
	var b bytes.Buffer
	var w io.WriteCloser
	switch k {
	case codingGzip:
		w = stdgzip.NewWriter(&b)
	case codingDeflate:
		w = stdzlib.NewWriter(&b)
	case codingBrotli:
		w = brotli.NewWriter(&b)
	case codingZstd:
		w, _ = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	}
	if _, err := io.WriteString(w, text); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	return b.Bytes()
}

// FuzzDecode decodes what a server may have sent: within bounds of memory, the same in whatever pieces it comes, and as Go's own library reads it where that
// has the coding.
func FuzzDecode(f *testing.F) {
	for k := codingGzip; k <= codingZstd; k++ {
		f.Add(byte(k), byte(0), packed(f, k, "some text, some text"))
		f.Add(byte(k), byte(0), packed(f, k, strings.Repeat("\x00", 1<<20)))
		f.Add(byte(k), byte(codingGzip), packed(f, k, string(packed(f, codingGzip, "twice"))))
	}
	f.Add(byte(codingDeflate), byte(0), []byte("\x4b\x04\x00")) // without the header
	f.Add(byte(codingZstd), byte(0), []byte("\x28\xb5\x2f\xfd\x00\xff"))
	const most = 64 << 10
	f.Fuzz(func(t *testing.T, outer, inner byte, b []byte) {
		list := []coding{1 + coding(outer-1)%4}
		if inner != 0 {
			list = append(list, 1+coding(inner-1)%4)
		}
		read := func(from io.Reader) ([]byte, error) {
			for _, k := range list {
				from = &decoder{coding: k, from: from}
			}
			return io.ReadAll(io.LimitReader(from, most))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		whole, err := read(bytes.NewReader(b))
		runtime.ReadMemStats(&after)
		if got, room := after.TotalAlloc-before.TotalAlloc, uint64(len(list))*(3*maxWindow+32<<20); got > room {
			t.Fatalf("%v: %d bytes were allocated for %d", list, got, len(b))
		}
		pieces, failed := read(iotest.OneByteReader(bytes.NewReader(b)))
		if (err == nil) != (failed == nil) || err == nil && !bytes.Equal(whole, pieces) {
			t.Fatalf("%v: %q, %v; byte by byte %q, %v", list, whole, err, pieces, failed)
		}
		if len(list) > 1 || len(b) == 0 {
			return
		}
		var other io.Reader
		switch k := list[0]; {
		case k == codingGzip:
			other, failed = stdgzip.NewReader(bytes.NewReader(b))
		case k == codingDeflate && len(b) > 1 && b[0]&15 == 8 && (uint(b[0])<<8|uint(b[1]))%31 == 0:
			other, failed = stdzlib.NewReader(bytes.NewReader(b))
		case k == codingDeflate:
			other = stdflate.NewReader(bytes.NewReader(b))
		}
		if other == nil || failed != nil {
			return
		}
		if want, failed := io.ReadAll(io.LimitReader(other, most)); failed == nil && (err != nil || !bytes.Equal(whole, want)) {
			t.Fatalf("%v: %q, %v; want %q", list, whole, err, want)
		}
	})
}
