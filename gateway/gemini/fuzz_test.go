package gemini

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

func kindIs(t *testing.T, err error, kind agent.Kind) {
	t.Helper()
	if err != nil && agent.KindOf(err) != kind {
		t.Errorf("error %v is of kind %s, want %s", err, agent.KindOf(err), kind)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("/v1beta/models/m:streamGenerateContent?alt=sse", []byte(full))
	f.Add(askPath, []byte(`{"contents":[{"role":"model","parts":[{"text":"","thoughtSignature":"c2tlcDEuZTMw"}]}]}`))
	f.Add("/v1beta/models/m:countTokens", []byte(`{"generate_content_request":{"model":"models/m","contents":{"parts":{"text":"a"}}}}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		before := bytes.Clone(body)
		for _, op := range []wire.Op{wire.Generate, wire.Count} {
			_, err := Codec.Peek(op, path, body)
			kindIs(t, err, agent.Invalid)
			c, err := Codec.Patch(op, path, "", nil, body, target)
			kindIs(t, err, agent.Invalid)
			if err == nil && !json.Valid(c.Body) {
				t.Errorf("patched to what is no JSON: %s", c.Body)
			}
			r, err := Codec.Decode(op, path, http.Header{}, body)
			kindIs(t, err, agent.Invalid)
			if !bytes.Equal(body, before) {
				t.Error("the body was changed")
			}
			if err != nil {
				continue
			}
			c, err = Codec.Encode(op, r, target)
			kindIs(t, err, agent.Invalid)
			if err != nil {
				continue
			}
			if !json.Valid(c.Body) {
				t.Fatalf("encoded to what is no JSON: %s", c.Body)
			}
			if _, err := Codec.Decode(op, c.Path, http.Header{}, c.Body); err != nil {
				t.Errorf("what was encoded cannot be read: %v\n%s", err, c.Body)
			}
		}
	})
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"required":["a"],"$defs":{"b":{"type":["string","null"],"enum":["x",null]}}}`))
	f.Add([]byte(`{"type":"OBJECT","properties":{"a":{"type":"STRING","nullable":true,"min_length":"3"}},"any_of":[{"type":"NUMBER"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, ok := toOpenAPI(b); ok && !json.Valid(out) {
			t.Errorf("no JSON: %s", out)
		}
		if json.Valid(b) {
			if out := fromOpenAPI(gjson.ParseBytes(b)); !json.Valid(out) {
				t.Errorf("no JSON: %s", out)
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(strings.Join(toolStream, "\n")), false)
	f.Add([]byte(strings.Join(toolStream, "\n")), true)
	f.Add([]byte(`{"promptFeedback":{"blockReason":"SAFETY"}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, array bool) {
		r := &wire.Request{Array: array}
		d, e, m := Codec.Decoder(here), Codec.Encoder(r), Codec.Meter(true)
		var out []byte
		ended, next, open := 0, 0, map[int]bool{}
		take := func(list []wire.Event) {
			for _, ev := range list {
				if ended > 0 {
					t.Fatalf("%+v follows the end", ev)
				}
				switch ev.Kind {
				case wire.PartBegin:
					if ev.Index != next {
						t.Fatalf("part %d begins, want %d", ev.Index, next)
					}
					next++
					open[ev.Index] = true
				case wire.PartDelta, wire.PartOpaque, wire.PartEnd:
					if !open[ev.Index] {
						t.Fatalf("%+v of a part that is not open", ev)
					}
					open[ev.Index] = ev.Kind != wire.PartEnd
				case wire.End, wire.Broken:
					ended++
				}
				out = e.Append(out, ev)
			}
		}
		for line := range bytes.Lines(data) {
			take(d.Frame("", bytes.TrimSpace(line)))
			if array {
				m.Write(line)
			} else {
				m.Write(append(append([]byte("data: "), line...), '\n'))
			}
		}
		take(d.Close())
		if ended != 1 {
			t.Fatalf("%d ends", ended)
		}
		m.State()
		m.(wire.Breaker).Broken(nil)
		chunksOf(t, r, out)
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(toolStream[5]), 200)
	f.Add([]byte(`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x.RetryInfo","retryDelay":"3s"}]}}]`), 429)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		m := Codec.Meter(false)
		m.Write(body)
		m.State()
		if _, _, b := Codec.EncodeFault(Codec.DecodeFault(status, nil, body)); !json.Valid(b) {
			t.Errorf("no JSON: %s", b)
		}
		a, err := Codec.DecodeAnswer(body, here)
		kindIs(t, err, agent.Unavailable)
		if err != nil {
			return
		}
		b, err := Codec.EncodeAnswer(a, nil)
		kindIs(t, err, agent.Unavailable)
		if err == nil && !json.Valid(b) {
			t.Errorf("no JSON: %s", b)
		}
	})
}
