package response

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

var origin = wire.Origin{Protocol: "openai-responses", Provider: "host", Model: "m"}

// stream makes a stream of events, each the fields of one: its type first, such as "response.created", then JSON fields.
func stream(events ...string) string {
	var b []byte
	for _, e := range events {
		typ, fields, _ := strings.Cut(e, " ")
		data := `{"type":"` + typ + `"`
		if fields != "" {
			data += "," + fields
		}
		b = sse.Append(b, typ, []byte(data+"}"))
	}
	return string(b)
}

// decode gives a stream to a decoder, and checks that its events keep the rules.
func decode(t *testing.T, s string) []wire.Event {
	t.Helper()
	return wiretest.Decode(t, Codec.Decoder(origin), wiretest.Frames(t, s)...)
}

func answerOf(t *testing.T, s string) *wire.Answer {
	t.Helper()
	a, f := wiretest.Collect(decode(t, s))
	if f != nil {
		t.Fatalf("the stream broke: %v", f)
	}
	for i := range a.Parts {
		a.Parts[i].Item = ""
	}
	return a
}

// encoded gives events to an encoder.
func encoded(r *wire.Request, list []wire.Event) string {
	return string(wiretest.Encode(Codec.Encoder(r), list))
}

func text(s string) wire.Part { return wire.Part{Kind: wire.TextPart, Text: s} }

func thought(s string) wire.Part { return wire.Part{Kind: wire.ThoughtPart, Text: s} }

func callPart(id, name, args string) wire.Part {
	return wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: id, Name: name, Args: args}}
}
