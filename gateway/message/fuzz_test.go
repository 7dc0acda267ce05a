package message

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

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
	f.Add([]byte(full))
	f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"thinking","signature":"skep1.e30"},{"type":"text","text":"a"}]}]}`))
	f.Add([]byte(`{"model":"m","max_tokens":1,"system":"s","messages":[{"role":"user","content":"a"}],"thinking":{"type":"enabled","budget_tokens":-1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		_, err := Codec.Peek(wire.Generate, "/v1/messages", body)
		kindIs(t, err, agent.Invalid)
		c, err := Codec.Patch(wire.Generate, "/v1/messages", "", nil, body, wire.Target{Model: "other", Origin: here})
		kindIs(t, err, agent.Invalid)
		if err == nil && !json.Valid(c.Body) {
			t.Errorf("patched to what is no JSON: %s", c.Body)
		}
		r, err := Codec.Decode(wire.Generate, "/v1/messages", http.Header{}, body)
		kindIs(t, err, agent.Invalid)
		if !bytes.Equal(body, before) {
			t.Error("the body was changed")
		}
		if err != nil {
			return
		}
		c, err = Codec.Encode(wire.Generate, r, target)
		kindIs(t, err, agent.Invalid)
		if err != nil {
			return
		}
		if !json.Valid(c.Body) {
			t.Fatalf("encoded to what is no JSON: %s", c.Body)
		}
		if n := bytes.Count(c.Body, []byte(`"cache_control":{"type":"ephemeral"`)); n > MaxMarks && !bytes.Contains(body, []byte("cache_control\":{\"type\":\"ephemeral\"")) {
			t.Errorf("%d marks: %s", n, c.Body)
		}
		if _, err := Codec.Decode(wire.Generate, "", http.Header{}, c.Body); err != nil {
			t.Errorf("what was encoded cannot be read: %v\n%s", err, c.Body)
		}
	})
}

func FuzzStream(f *testing.F) {
	var all []byte
	for _, s := range toolStream {
		all = append(append(all, s...), '\n')
	}
	f.Add(all)
	f.Add([]byte(startFrame + "\n" + `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, e, m := Codec.Decoder(here), Codec.Encoder(nil), Codec.Meter(true)
		var out []byte
		ended, open := 0, map[int]bool{}
		next := 0
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
					if c := ev.Part.Call; ev.Part.Kind == wire.CallPart && (c == nil || c.ID == "" || c.Name == "") {
						t.Fatal("a call without an id or a name")
					}
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
			m.Write(append(append([]byte("data: "), line...), '\n'))
		}
		take(d.Close())
		if ended != 1 {
			t.Fatalf("%d ends", ended)
		}
		m.Write(data)
		m.State()
		checkBlocks(t, framesOf(t, out))
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(wholeAnswer), 200)
	f.Add([]byte(`{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"x"}}}`), 429)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		m := Codec.Meter(false)
		m.Write(body)
		m.State()
		flt := Codec.DecodeFault(status, nil, body)
		if _, _, b := Codec.EncodeFault(flt); !json.Valid(b) {
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
