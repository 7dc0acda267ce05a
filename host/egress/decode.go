package egress

import (
	"bufio"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// coding is a way in which a response's body is encoded (RFC 9110, section 8.4.1).
type coding uint8

const (
	unknownCoding coding = iota
	codingGzip
	codingDeflate
	codingBrotli
	codingZstd
)

func (c coding) String() string { return [...]string{"unknown", "gzip", "deflate", "br", "zstd"}[c] }

var (
	acceptEncoding = []string{"gzip, deflate, br, zstd"}
	identity       = []string{"identity"} // with Range, which counts encoded bytes
)

const (
	maxCodings = 2       // one in the other
	maxWindow  = 8 << 20 // of Zstandard (RFC 9659)
)

var errWindow = zstd.ErrWindowSizeExceeded

// codingsOf returns what was done to the body of a response, the last thing first. A body of which a part is in no form that
// is known, or is in too many, stays as it is.
func codingsOf(res *http.Response, method string) []coding {
	values := res.Header["Content-Encoding"]
	if len(values) == 0 || method == http.MethodHead || res.StatusCode == http.StatusPartialContent || res.Body == http.NoBody {
		return nil
	}
	var list []coding
	for name := range strings.SplitSeq(strings.Join(values, ","), ",") {
		switch strings.ToLower(strings.Trim(name, " \t")) {
		case "identity", "":
		case "gzip", "x-gzip":
			list = append(list, codingGzip)
		case "deflate":
			list = append(list, codingDeflate)
		case "br":
			list = append(list, codingBrotli)
		case "zstd":
			list = append(list, codingZstd)
		default:
			return nil
		}
		if len(list) > maxCodings {
			return nil
		}
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// decoder undoes one coding. It looks at nothing before the first Read.
type decoder struct {
	coding coding
	from   io.Reader
	r      io.Reader
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.r == nil {
		in := bufio.NewReader(d.from)
		start, err := in.Peek(1)
		if len(start) == 0 { // an empty body is empty in every coding
			return 0, err
		}
		if d.r, err = d.open(in); err != nil {
			return 0, err
		}
	}
	return d.r.Read(p)
}

func (d *decoder) open(in *bufio.Reader) (io.Reader, error) {
	switch d.coding {
	case codingGzip:
		return gzip.NewReader(in)
	case codingDeflate: // zlib's format by the standard, and without its header by custom
		if b, err := in.Peek(2); err == nil && b[0]&15 == 8 && (uint(b[0])<<8|uint(b[1]))%31 == 0 {
			return zlib.NewReader(in)
		}
		return flate.NewReader(in), nil
	case codingBrotli:
		return brotli.NewReader(in), nil
	}
	return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}
