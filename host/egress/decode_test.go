package egress

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/skep-dev/skep/agent"
)

func pack(t testing.TB, b []byte, codings ...string) []byte {
	for _, c := range codings {
		var out bytes.Buffer
		var w io.WriteCloser
		var err error
		switch c {
		case "gzip":
			w = gzip.NewWriter(&out)
		case "zlib":
			w = zlib.NewWriter(&out)
		case "flate":
			w, err = flate.NewWriter(&out, 9)
		case "br":
			w = brotli.NewWriter(&out)
		case "zstd":
			w, err = zstd.NewWriter(&out)
		case "zstd, wide":
			w, err = zstd.NewWriter(&out, zstd.WithWindowSize(16<<20))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b = out.Bytes()
	}
	return b
}

func TestDecode(t *testing.T) {
	text := []byte(strings.Repeat("A response of some length. ", 100))
	zero := make([]byte, 4<<20)
	for _, row := range []struct {
		name, coding string
		body, want   []byte
		words        string
		kind         agent.Kind
	}{
		{"identity", "identity", text, text, "", 0},
		{"gzip", "gzip", pack(t, text, "gzip"), text, "", 0},
		{"x-gzip, upper case", "X-GZIP", pack(t, text, "gzip"), text, "", 0},
		{"gzip of two members", "gzip", append(pack(t, text, "gzip"), pack(t, text, "gzip")...), append(text[:len(text):len(text)], text...), "", 0},
		{"deflate", "deflate", pack(t, text, "zlib"), text, "", 0},
		{"deflate without header", "deflate", pack(t, text, "flate"), text, "", 0},
		{"brotli", "br", pack(t, text, "br"), text, "", 0},
		{"zstd", "zstd", pack(t, text, "zstd"), text, "", 0},
		{"gzip in brotli", "gzip, br", pack(t, text, "gzip", "br"), text, "", 0},
		{"three codings", "gzip, gzip, gzip", []byte("as it is"), []byte("as it is"), "", 0},
		{"unknown coding", "evil", []byte("as it is"), []byte("as it is"), "", 0},
		{"known and unknown", "gzip, evil", []byte("as it is"), []byte("as it is"), "", 0},
		{"nothing", "gzip", nil, nil, "", 0},
		{"not gzip", "gzip", text, nil, "not valid gzip", agent.Unavailable},
		{"not brotli", "br", []byte("\xff\xff\xff\xff"), nil, "not valid br", agent.Unavailable},
		{"not zstd", "zstd", text, nil, "not valid zstd", agent.Unavailable},
		{"cut short", "gzip", pack(t, text, "gzip")[:40], nil, "not valid gzip", agent.Unavailable},
		{"wrong checksum", "gzip", append(bytes.Clone(pack(t, text, "gzip")[:len(pack(t, text, "gzip"))-8]), make([]byte, 8)...), nil, "not valid gzip", agent.Unavailable},
		{"text after the end", "gzip", append(pack(t, text, "gzip"), "EVIL"...), nil, "not valid gzip", agent.Unavailable},
		{"gzip bomb", "gzip", pack(t, zero, "gzip"), nil, "256 times its size", agent.Exhausted},
		{"deflate bomb", "deflate", pack(t, zero, "zlib"), nil, "256 times its size", agent.Exhausted},
		{"brotli bomb", "br", pack(t, zero, "br"), nil, "256 times its size", agent.Exhausted},
		{"zstd bomb", "zstd", pack(t, zero, "zstd"), nil, "256 times its size", agent.Exhausted},
		{"bomb in a bomb", "gzip, gzip", pack(t, zero, "gzip", "gzip"), nil, "256 times its size", agent.Exhausted},
		{"empty members in a bomb", "gzip, gzip", pack(t, bytes.Repeat(pack(t, nil, "gzip"), 200_000), "gzip"), nil, "256 times its size", agent.Exhausted},
		{"wide window", "zstd", pack(t, make([]byte, 17<<20), "zstd, wide"), nil, "more than 8388608 bytes", agent.Exhausted},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.http("api.example.com", apiAddr, func(rw http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); got != acceptEncoding[0] {
					t.Errorf("Accept-Encoding: %s", got)
				}
				rw.Header().Set("Content-Encoding", row.coding)
				_, _ = rw.Write(row.body)
			})
			res, body, err := get(t, w.egress(), nil, &Request{URL: "http://api.example.com/"})
			if row.words != "" {
				wantError(t, err, row.kind, row.words)
				if n := len(body); n > freely+ratio*len(row.body) {
					t.Errorf("%d bytes came through", n)
				}
				return
			}
			if err != nil || body != string(row.want) {
				t.Fatalf("got %.100q, %v", body, err)
			}
			undone := row.name != "three codings" && !strings.Contains(row.name, "unknown") && row.coding != "identity"
			if kept := res.Get("content-encoding") != ""; kept == undone && row.body != nil {
				t.Errorf("undone %v, content-encoding kept %v", undone, kept)
			}
			if undone && row.body != nil && res.Get("content-length") != "" {
				t.Error("content-length is of the encoded body")
			}
		})
	}
}

func TestRangeIsNotEncoded(t *testing.T) {
	w := newWorld(t)
	w.http("api.example.com", apiAddr, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		rw.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(rw, r.Header.Get("Accept-Encoding"))
	})
	_, body, err := get(t, w.egress(), nil, &Request{URL: "http://api.example.com/", Header: [][2]string{{"range", "bytes=0-9"}}})
	if err != nil || body != "identity" {
		t.Errorf("%q, %v", body, err)
	}
}
