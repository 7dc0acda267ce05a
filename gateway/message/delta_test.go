package message

import (
	"testing"

	"github.com/tidwall/gjson"
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
