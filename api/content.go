package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
)

// content is a result that is stored bytes, of which a client may ask for a part (RFC 9110, section 14).
type content struct {
	contentType string
	name        string // of the file, for who saves it
	etag        string
	size        int64
	body        io.ReadSeekCloser // which is closed once it was sent
}

func (s *Server) respondContent(c *fiber.Ctx, out *content) error {
	h := &c.Response().Header
	h.Set("ETag", out.etag)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Cache-Control", "private, no-cache")
	h.Set("X-Content-Type-Options", "nosniff") // it may come from anybody, and is for no browser to run
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Disposition", attachment(out.name))
	if validHeader([2]string{"Content-Type", out.contentType}) {
		h.SetContentType(out.contentType)
	}
	if hasTag(string(c.Request().Header.Peek("If-None-Match")), out.etag) {
		_ = out.body.Close() // nothing was written
		c.Status(http.StatusNotModified)
		return nil
	}
	from, length, status := int64(0), out.size, http.StatusOK
	if given := string(c.Request().Header.Peek("If-Range")); given == "" || given == out.etag {
		part, ok, err := byteRange(string(c.Request().Header.Peek("Range")), out.size)
		if err != nil {
			_ = out.body.Close() // nothing was written
			return err
		}
		if ok {
			from, length, status = part.from, part.length, http.StatusPartialContent
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+length-1, out.size))
		}
	}
	if _, err := out.body.Seek(from, io.SeekStart); err != nil {
		_ = out.body.Close() // nothing was written
		return fmt.Errorf("read file: %w", err)
	}
	c.Status(status)
	c.Context().SetBodyStream(&contentBody{io.LimitReader(out.body, length), out.body, c.Context().Conn()}, int(length))
	return nil
}

// contentBody gives its reader some time for each piece, and not for all of them.
type contentBody struct {
	io.Reader
	io.Closer
	conn net.Conn
}

func (b *contentBody) Read(p []byte) (int, error) {
	if err := b.conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}

type span struct{ from, length int64 }

// byteRange reads a Range header. It is not ok when all is to be sent: without one, with one that is not understood, and with several
// ranges. One that lies behind the end is an error.
func byteRange(header string, size int64) (s span, ok bool, err error) {
	unit, set, found := strings.Cut(header, "=")
	first, last, dash := strings.Cut(strings.TrimSpace(set), "-")
	if !found || !dash || !strings.EqualFold(strings.TrimSpace(unit), "bytes") || strings.Contains(set, ",") {
		return s, false, nil
	}
	from, err1 := position(first)
	to, err2 := position(last)
	switch {
	case first == "" && err2 == nil: // the last so many
		s = span{max(0, size-to), min(to, size)}
	case err1 != nil, last != "" && (err2 != nil || to < from):
		return s, false, nil
	case last == "":
		s = span{from, size - from}
	default:
		s = span{from, min(to, size-1) - from + 1}
	}
	if s.length <= 0 {
		return s, false, invalidAs(http.StatusRequestedRangeNotSatisfiable, fmt.Sprintf("the file has %d bytes, and none in the range %.80q", size, header), "ask for a range within the file")
	}
	return s, true, nil
}

// position reads a number of digits alone.
func position(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err
}

// hasTag reports whether an If-None-Match header names an entity tag.
func hasTag(header, etag string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
			return true
		}
	}
	return false
}
