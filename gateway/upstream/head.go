package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// What almost every call has is written and read here, with a few allocations where net/http makes fifty. Whatever is unusual is left to net/http.

// mostFields is of how many fields a head may be to be read or written here.
const mostFields = 64

// plain reports whether a request can be written by write: a body of a known length, and a head that needs no cleaning.
func plain(r *http.Request) bool {
	if r.Body == nil || r.ContentLength <= 0 || r.TransferEncoding != nil || r.Trailer != nil || r.Close || len(r.Header) > mostFields ||
		!token(r.Method) || !plainHost(r.Host) || r.URL.Opaque != "" || !plainTarget(r.URL) {
		return false
	}
	if ua := r.Header["User-Agent"]; len(ua) != 1 || ua[0] == "" {
		return false
	}
	for name, vs := range r.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Expect":
			return false
		}
		if !token(name) {
			return false
		}
		for _, v := range vs {
			if !plainValue(v) {
				return false
			}
		}
	}
	return true
}

func plainHost(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '.' && c != ':' && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

func plainTarget(u *url.URL) bool {
	if u.RawPath != "" || !strings.HasPrefix(u.Path, "/") || u.ForceQuery {
		return false
	}
	for i := range len(u.Path) {
		if c := u.Path[i]; !isAlnum(c) && c != '/' && c != '-' && c != '_' && c != '.' && c != ':' {
			return false
		}
	}
	for i := range len(u.RawQuery) {
		if c := u.RawQuery[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// plainValue reports whether a field's value is written as it is: printable ASCII that neither begins nor ends with a space.
func plainValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// token reports whether s can name a field (RFC 9110, section 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && (c >= 0x7f || c <= ' ' || strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0) {
			return false
		}
	}
	return s != ""
}

// write writes a request that is plain, and closes its body.
func write(w *bufio.Writer, r *http.Request) error {
	defer r.Body.Close()
	b := append(w.AvailableBuffer(), r.Method...)
	b = append(b, ' ')
	b = append(b, r.URL.Path...)
	if r.URL.RawQuery != "" {
		b = append(append(b, '?'), r.URL.RawQuery...)
	}
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", r.Host)
	b = append(b, "Content-Length: "...)
	b = append(strconv.AppendInt(b, r.ContentLength, 10), "\r\n"...)
	var room [mostFields]string
	names := room[:0]
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range r.Header[name] {
			b = appendField(b, name, v)
		}
	}
	if _, err := w.Write(append(b, "\r\n"...)); err != nil {
		return err
	}
	if whole, ok := r.Body.(wholeBody); ok && int64(whole.Len()) == r.ContentLength {
		_, err := whole.WriteTo(w)
		return err
	}
	n, err := io.Copy(w, io.LimitReader(r.Body, r.ContentLength))
	if err == nil && n < r.ContentLength {
		err = errors.New("upstream: the body of the request is shorter than it says")
	}
	return err
}

// wholeBody is a body that is in memory and knows how much is left of it: what is more than a buffer goes out by one write.
type wholeBody interface {
	io.WriterTo
	Len() int
}

func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

var (
	headEnd = []byte("\r\n\r\n")
	version = []byte("HTTP/1.1 ")
)

// readUsual reads a response's head of HTTP/1.1 that is whole in r's buffer, and whose body has a length or is chunked. It returns nil, and has read nothing, for
// any other, which http.ReadResponse then understands or refuses.
func readUsual(r *bufio.Reader, q *http.Request) *http.Response {
	if _, err := r.Peek(1); err != nil || q.Method == http.MethodHead || q.Method == http.MethodConnect {
		return nil
	}
	b, _ := r.Peek(r.Buffered())
	end := bytes.Index(b, headEnd)
	if end < len("HTTP/1.1 200") || !bytes.HasPrefix(b, version) {
		return nil
	}
	first, rest, _ := strings.Cut(string(b[:end]), "\r\n") // one string for all
	res := &http.Response{Proto: first[:8], ProtoMajor: 1, ProtoMinor: 1, Status: first[9:], ContentLength: -1, Request: q}
	code, _, _ := strings.Cut(res.Status, " ")
	status, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 || !plainValue(res.Status) || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified {
		return nil
	}
	res.StatusCode = int(status)
	if !fields(res, rest) {
		return nil
	}
	_, _ = r.Discard(end + len(headEnd))
	switch n := res.ContentLength; {
	case n < 0:
		res.TransferEncoding = []string{"chunked"}
		res.Body = &chunked{r: r, from: httputil.NewChunkedReader(r)}
	case n == 0:
		res.Body = http.NoBody
	default:
		res.Body = &sized{r: r, left: n}
	}
	return res
}

// fields reads the fields of a head. It reports whether they are usual, and say in one way how the body ends.
func fields(res *http.Response, text string) bool {
	n := strings.Count(text, "\r\n") + 1
	if text == "" || n > mostFields {
		return false
	}
	res.Header = make(http.Header, n)
	values := make([]string, n) // one array for all
	var length, chunks bool
	for line := range strings.SplitSeq(text, "\r\n") {
		name, v, ok := strings.Cut(line, ":")
		v = strings.Trim(v, " \t")
		if !ok || !token(name) || !plainValue(v) {
			return false
		}
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case "Content-Length":
			size, err := strconv.ParseUint(v, 10, 63)
			if err != nil || length || chunks {
				return false
			}
			length, res.ContentLength = true, int64(size)
		case "Transfer-Encoding":
			if length || chunks || v != "chunked" {
				return false
			}
			chunks = true
			continue // as net/http has it
		case "Connection":
			if !strings.EqualFold(v, "keep-alive") {
				return false
			}
		case "Trailer", "Pragma", "Upgrade":
			return false
		}
		if old := res.Header[name]; old != nil {
			res.Header[name] = append(old, v)
			continue
		}
		values[0] = v
		res.Header[name] = values[:1:1]
		values = values[1:]
	}
	return length != chunks
}

// sized is a body of a known length.
type sized struct {
	r    *bufio.Reader
	left int64
}

// Read is io.Reader's. The end comes with the last bytes.
func (s *sized) Read(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		p = p[:s.left]
	}
	n, err := s.r.Read(p)
	s.left -= int64(n)
	switch {
	case s.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close is io.Closer's. The connection is the exchange's to close.
func (s *sized) Close() error { return nil }

var errTrailer = errors.New("upstream: the body of the response does not end as HTTP has it")

// chunked is a body in chunks.
type chunked struct {
	r    *bufio.Reader
	from io.Reader
}

// Read is io.Reader's.
func (c *chunked) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err == io.EOF {
		err = c.end()
	}
	return n, err
}

// end reads what follows the last chunk: an empty line, before which there may be fields that were not announced. As net/http has it, they have to end within
// the buffer, and to be fields.
func (c *chunked) end() error {
	b, err := c.r.Peek(2)
	switch {
	case string(b) == "\r\n":
		_, _ = c.r.Discard(2) // they are there
		return io.EOF
	case len(b) < 2:
		return short(err)
	}
	for n := 4; ; n++ {
		b, err := c.r.Peek(n)
		if bytes.HasSuffix(b, []byte("\r\n\r\n")) {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return errTrailer
		}
		if err != nil {
			return short(err)
		}
	}
	if _, err := textproto.NewReader(c.r).ReadMIMEHeader(); err != nil {
		return errTrailer
	}
	return io.EOF
}

// short is the error of a body that ends too early.
func short(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close is io.Closer's.
func (c *chunked) Close() error { return nil }
