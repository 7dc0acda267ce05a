package chat

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

var origin = wire.Origin{Protocol: "openai-chat", Provider: "host", Model: "m"}

// stream makes a stream of chunks, each given as what is in choices[0], or whole when it begins with "{", or [DONE].
func stream(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		if !strings.HasPrefix(c, "{") && c != "[DONE]" {
			c = `{"id":"c1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,` + c + `}]}`
		}
		b.WriteString("data: " + c + "\n\n")
	}
	return b.String()
}

// decode gives a stream to a decoder, and checks that its events keep the rules.
func decode(t *testing.T, s string) []wire.Event {
	t.Helper()
	return wiretest.Decode(t, Codec.Decoder(origin), wiretest.Frames(t, s)...)
}

func answerOf(t *testing.T, chunks ...string) *wire.Answer {
	t.Helper()
	a, f := wiretest.Collect(decode(t, stream(chunks...)))
	if f != nil {
		t.Fatalf("the stream broke: %v", f)
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
