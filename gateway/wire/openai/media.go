package openai

import (
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// URLBlob reads an address, which may be a data: URL.
func URLBlob(field, url string, image bool) (*wire.Blob, error) {
	if url == "" {
		return nil, agent.Errorf(agent.Invalid, "%s: an address is required", field)
	}
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return &wire.Blob{URL: url, Image: image}, nil
	}
	head, data, ok := strings.Cut(rest, ",")
	mime, enc, _ := strings.Cut(head, ";")
	if !ok || !strings.HasSuffix(";"+enc, ";base64") {
		return nil, agent.Errorf(agent.Invalid, "%s: a data: URL must be data:TYPE;base64,DATA", field)
	}
	if mime == "" {
		return nil, agent.Errorf(agent.Invalid, "%s: a data: URL must say its type, such as image/png", field)
	}
	return &wire.Blob{MIME: mime, Data: data, Image: image}, nil
}

// BlobURL is b as an address.
func BlobURL(b *wire.Blob) string {
	if b.Data != "" {
		return "data:" + b.MIME + ";base64," + b.Data
	}
	return b.URL
}

// FileBlob reads a file whose data is a data: URL, or base64 alone, then taken for PDF unless its name says otherwise.
func FileBlob(field, id, name, data string) (*wire.Blob, error) {
	switch {
	case id != "":
		return &wire.Blob{FileID: id, Name: name}, nil
	case strings.HasPrefix(data, "data:"):
		b, err := URLBlob(field, data, false)
		if err == nil {
			b.Name = name
		}
		return b, err
	case data != "":
		return &wire.Blob{MIME: "application/pdf", Data: data, Name: name}, nil
	}
	return nil, agent.Errorf(agent.Invalid, "%s: file_id or file_data is required", field)
}

// AudioMIME is the type of sound of a format.
func AudioMIME(format string) string {
	if format == "mp3" {
		return "audio/mpeg"
	}
	return "audio/" + format
}

// AudioFormat is the format of sound of a type; "" when b is no sound.
func AudioFormat(b *wire.Blob) string {
	if b.MIME == "audio/mpeg" {
		return "mp3"
	}
	f, ok := strings.CutPrefix(b.MIME, "audio/")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(f, "x-")
}

// IsImage reports whether b is an image.
func IsImage(b *wire.Blob) bool { return b.Image || strings.HasPrefix(b.MIME, "image/") }

// Args makes arguments of a call that a host or client gave: a string of JSON, or JSON itself. Nothing becomes {}. What is no object becomes one, with the
// text in the field invalid_arguments: models do make such calls, and what they said must be sent back to them in protocols that know only objects.
func Args(value json.RawMessage) string {
	s := ArgText(gjson.ParseBytes(value))
	t := strings.TrimSpace(s)
	if t == "" || t == "null" {
		return "{}"
	}
	if t[0] == '{' && raw.Valid([]byte(t)) {
		return s
	}
	b := raw.AppendString([]byte(`{"invalid_arguments":`), s)
	return string(append(b, '}'))
}

// ArgText is a piece of arguments: the text of a string, or JSON as it is.
func ArgText(v gjson.Result) string {
	switch v.Type {
	case gjson.Null:
		return ""
	case gjson.String:
		return v.Str
	}
	return v.Raw
}
