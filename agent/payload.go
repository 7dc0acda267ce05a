package agent

import (
	"mime"
	"strings"
	"unicode/utf8"
)

// The media types a script's values travel as.
const (
	TypeJSON  = "application/json"
	TypeText  = "text/plain; charset=utf-8"
	TypeBytes = "application/octet-stream"
)

// JSON returns a JSON payload. b must be valid JSON.
func JSON(b []byte) Payload { return Payload{Type: TypeJSON, Body: b} }

// Text returns a text payload.
func Text(s string) Payload { return Payload{Type: TypeText, Body: []byte(s)} }

// IsJSON reports whether the payload's type is JSON (application/json or a +json suffix, RFC 6839).
func (p Payload) IsJSON() bool {
	t := mediaType(p.Type)
	return t == TypeJSON || strings.HasSuffix(t, "+json")
}

// IsText reports whether the payload is text/* and valid UTF-8.
func (p Payload) IsText() bool {
	return strings.HasPrefix(mediaType(p.Type), "text/") && utf8.Valid(p.Body)
}

func mediaType(s string) string {
	t, _, err := mime.ParseMediaType(s)
	if err != nil {
		return ""
	}
	return t
}
