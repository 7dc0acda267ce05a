package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func TestManySealedThoughtsAreReadInLinearTime(t *testing.T) {
	for name, call := range map[string]string{"thoughts": "", "on calls": "c0"} {
		t.Run(name, func(t *testing.T) {
			d := sealedDetail("", &wire.Thinking{Opaque: "o", Origin: origin}, 0, call)
			wiretest.Linear(t, func(n int) func() {
				said := turn{Details: slices.Repeat([]json.RawMessage{d}, n)}
				return func() {
					think(slices.Repeat([]wire.Part{callPart("c1", "f", "{}")}, n), said, nil)
				}
			})
		})
	}
}

func TestSealedThoughtsGetTheirPlaces(t *testing.T) {
	detail := func(text string, at int) json.RawMessage {
		return sealedDetail(text, &wire.Thinking{Opaque: text, Origin: origin}, at, "")
	}
	parts := think([]wire.Part{text("a"), text("b")}, turn{Details: []json.RawMessage{detail("4", 9), detail("2", 3), detail("1", 0)}}, nil)
	var got []string
	for _, p := range parts {
		got = append(got, p.Text)
	}
	wiretest.Same(t, []string{"1", "a", "b", "2", "4"}, got)
}

func TestThoughtInManyPiecesIsReadInLinearTime(t *testing.T) {
	wiretest.Linear(t, func(n int) func() {
		frames := make([][]byte, n)
		for i := range frames {
			frames[i] = fmt.Appendf(nil, `{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"piece %d","signature":"s"}]}}]}`, i)
		}
		return func() {
			d := Codec.Decoder(origin)
			for _, f := range frames {
				d.Frame("", f)
			}
		}
	})
}

func TestThoughtInPiecesIsOneEntry(t *testing.T) {
	a := answerOf(t,
		`"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"a","signature":null,"id":"x"}]}`,
		`"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"b","summary":"c"}]}`,
		`"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"sig"},{"type":"reasoning.encrypted","index":0,"data": "d"}]}`,
		`"delta":{"content":"x"},"finish_reason":"stop"`)
	const want = `[{"id":"x","index":0,"signature":"sig","summary":"c","text":"ab","type":"reasoning.text"},{"type":"reasoning.encrypted","index":0,"data": "d"}]`
	if got := a.Parts[0].Thought.Opaque; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
