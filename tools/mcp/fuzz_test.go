package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/skep-dev/skep/agent"
)

func FuzzOffer(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"$ref":"#/$defs/y"}},"$defs":{"y":{"type":"string","pattern":"(?=a)b"}}}}`,
		`{"name":"a","inputSchema":{"$ref":"#"},"annotations":{"readOnlyHint":1}}`,
		`{"name":"a","inputSchema":{"allOf":[{"$ref":"#/allOf/0"}]}}`,
		`{"name":"a","inputSchema":{"$dynamicRef":"#x","$anchor":"x","$id":"http://e/"}}`,
		`{"name":1}`, `[]`, `null`,
	} {
		f.Add([]byte(seed))
	}
	s := &source{o: Options{Bounds: DefaultBounds()}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := s.offer(raw)
		if err != nil {
			return
		}
		if o.Method == "" || !json.Valid(o.Input) || o.Input[0] != '{' || o.Digest == "" {
			t.Errorf("%s is taken as %+v", raw, o)
		}
	})
}

func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"{}"}]}`, `{"content":[{"type":"image","data":"aGk="},{"type":"resource","resource":{"uri":"file:///a/%2e%2e","blob":""}}]}`,
		`{"structuredContent":[1],"content":null}`, `{"isError":true}`, `{"content":[null,{"type":"resource"}]}`, `{"inputRequests":{}}`, `1`,
	} {
		f.Add([]byte(seed))
	}
	c := &call{tool: "it.x"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		res, err := c.result(raw)
		if err != nil {
			if agent.KindOf(err) != agent.Failed {
				t.Errorf("%s: %v", raw, err)
			}
			return
		}
		if !json.Valid(res.Value) || res.Text && res.Value[0] != '"' {
			t.Errorf("%s is %s", raw, res.Value)
		}
		for _, b := range res.Blobs {
			if strings.Contains(b.Name, "/") {
				t.Errorf("a file is called %q", b.Name)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `[{"jsonrpc":"2.0","method":"a"}]`, `[]`, `[[]]`, `{}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			_, _ = decode(line)
		}
	})
}

// FuzzFrames: what goes through comes out as it was, until an event is too large, however it is cut up.
func FuzzFrames(f *testing.F) {
	f.Add("data: {\"result\":{\"a\":1}}\n\n", 100)
	f.Add("event: x\r\ndata: {\r\ndata: \"result\":2}\r\n\r\n: a\n\n", 40)
	f.Add(strings.Repeat("x", 200), 100)
	f.Fuzz(func(t *testing.T, stream string, most int) {
		most = min(max(most, 1), 1<<16)
		var taps [2]*tap
		var outs [2]string
		for i, in := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			taps[i] = &tap{}
			b, err := io.ReadAll(&frames{server: "it", most: int64(most), in: in, tap: taps[i]})
			if outs[i] = string(b); err == nil && outs[i] != stream {
				t.Errorf("%q became %q", stream, outs[i])
			}
			if err != nil && agent.KindOf(err) != agent.Exhausted {
				t.Error(err)
			}
		}
		if a, b := taps[0].get(), taps[1].get(); !bytes.Equal(a, b) && outs[0] == outs[1] {
			t.Errorf("taken are %s and %s", a, b)
		}
	})
}
