package leak_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/leak"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/vault/scrub"
)

// FuzzFrames passes a stream that may be anything with texts in between that spell a key. What a client reads in it has no key; frames that say nothing of
// it go byte for byte; and it is the same whether the stream comes whole or frame by frame.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(text("plain")), key[:9], key[9:], []byte(args(0, "{}")+": c\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"s\",\"content\":\"k\"}}]}\r\n\r\n"), "such", key, []byte("data: [DONE]\n\n"))
	f.Add([]byte("event: x\ndata: {\n\n"), "sk-0123", "4", []byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"56789-abc"))
	f.Fuzz(func(t *testing.T, before []byte, one, two string, after []byte) {
		all := append(append(append(bytes.Clone(before), "\n\n"+text(one)+text(two)...), after...), "\n\n"...)
		begin := func() wire.Meter { return chat.Codec.Meter(true) }
		whole := leak.Bytes(scrub.New([]byte(key)), begin, true, all)
		var pieces []byte
		m := begin()
		fr := leak.NewFrames(scrub.New([]byte(key)), m, begin, true)
		p := sse.Parser{Max: wire.MaxFrame}
		from := 0
		for at := 0; at < len(all); {
			n, _, _, ok, err := p.Next(all[at:])
			if at += n; ok || err != nil || at == len(all) {
				m.Write(all[from:at])
				pieces = append(pieces, fr.Pass(all[from:at], false)...)
				from = at
			}
		}
		pieces = append(pieces, fr.Pass(nil, true)...)
		for _, out := range [][]byte{whole, pieces} {
			if said := told(out); strings.Contains(said, key) {
				t.Fatalf("%q became %q, which says %q", all, out, said)
			}
		}
		if !strings.Contains(told(all), key[:1]) && (!bytes.Equal(whole, all) || !bytes.Equal(pieces, all)) {
			t.Fatalf("%q became %q and %q", all, whole, pieces)
		}
	})
}

// told is all that a stream says, each text of its own on a line.
func told(stream []byte) string {
	by := map[string]string{}
	m := chat.Codec.Meter(true)
	m.(wire.Teller).Tell(func(s wire.Said) { by[fmt.Sprint(s.Kind, s.Index)] += s.Text })
	m.Write(stream)
	m.Write([]byte("\n\n"))
	var all strings.Builder
	for _, text := range by {
		all.WriteString(text + "\n")
	}
	return all.String()
}
