package message

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/gateway/wire"
)

// What is read the short way is what the long way reads.
func TestTextDelta(t *testing.T) {
	const head = `{"type":"content_block_delta","index":`
	for text, want := range map[string]bool{
		head + `0,"delta":{"type":"text_delta","text":"I think."}}`:        true,
		head + `12,"delta":{"type":"text_delta","text":"é, {}[]"}     }`:   true,
		head + `0,"delta":{"type":"text_delta","text":""}}`:                true,
		head + `0,"delta":{"type":"text_delta","text":"a\"b"}}`:            false,
		head + `0,"delta":{"type":"text_delta","text":"a\n"}}`:             false,
		head + "0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\tb\"}}":  false,
		head + `0,"delta":{"type":"text_delta","text":"a","text":"b"}}`:    false,
		head + `0,"delta":{"type":"text_delta","text":"a"}},"index":1}`:    false,
		head + `0,"delta":{"type":"text_delta","text":"a"}} }`:             false,
		head + `0,"delta":{"type":"text_delta","text":"a"}`:                false,
		head + `0,"delta":{"type":"text_delta","text":"a`:                  false,
		head + `01,"delta":{"type":"text_delta","text":"a"}}`:              false,
		head + `,"delta":{"type":"text_delta","text":"a"}}`:                false,
		head + `9999999999,"delta":{"type":"text_delta","text":"a"}}`:      false,
		head + `0,"delta":{"type":"thinking_delta","thinking":"a"}}`:       false,
		`{"index":0,"type":"content_block_delta","delta":{"type":"text"}}`: false,
		``: false,
	} {
		index, got, ok := textDelta([]byte(text))
		if ok != want {
			t.Errorf("%s: %v", text, ok)
		}
		if !ok {
			continue
		}
		v := gjson.Parse(text)
		if !gjson.Valid(text) || index != v.Get("index").Int() || string(got) != v.Get("delta.text").Str {
			t.Errorf("%s: %d, %q", text, index, got)
		}
	}
}

// A stream means the same whichever way its pieces are read.
func TestEitherWay(t *testing.T) {
	const (
		start = `{"type":"content_block_start","index":%d,"content_block":%s}`
		piece = `{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":"%s"}}`
	)
	frames := [][2]string{
		{"", fmt.Sprintf(piece, 0, "before all")},
		{"content_block_start", fmt.Sprintf(start, 0, `{"type":"text","text":""}`)},
		{"content_block_start", fmt.Sprintf(start, 1, `{"type":"thinking","thinking":""}`)},
		{"content_block_start", fmt.Sprintf(start, 2, `{"type":"of another time"}`)},
		{"content_block_delta", fmt.Sprintf(piece, 0, "Sunny, ")},
		{"", fmt.Sprintf(piece, 0, "I think.")},
		{"ping", fmt.Sprintf(piece, 0, "not a ping")},
		{"message_stop", fmt.Sprintf(piece, 0, "é")},
		{"content_block_delta", fmt.Sprintf(piece, 0, "")},
		{"content_block_delta", fmt.Sprintf(piece, 1, "in a thought")},
		{"content_block_delta", fmt.Sprintf(piece, 2, "in something else")},
		{"content_block_delta", fmt.Sprintf(piece, 9, "in nothing")},
		{"content_block_stop", `{"type":"content_block_stop","index":0}`},
		{"content_block_delta", fmt.Sprintf(piece, 0, "too late")},
		{"message_stop", `{"type":"message_stop"}`},
		{"content_block_delta", fmt.Sprintf(piece, 0, "after all")},
	}
	var events [2][]wire.Event
	var states [2][]wire.MeterState
	for way, spell := range []func(string) string{strings.Clone, func(s string) string { return "{ " + s[1:] }} {
		d, m := Codec.Decoder(here), Codec.Meter(true)
		for _, f := range frames {
			text := spell(f[1])
			events[way] = append(events[way], d.Frame(f[0], []byte(text))...)
			m.Write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", f[0], text))
			states[way] = append(states[way], m.State())
		}
	}
	if diff := cmp.Diff(events[0], events[1]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(states[0], states[1]); diff != "" {
		t.Error(diff)
	}
}
