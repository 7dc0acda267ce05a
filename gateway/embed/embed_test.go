package embed

import (
	"reflect"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

func TestPeek(t *testing.T) {
	for in, want := range map[string]wire.Peek{
		`"four"`:                         {Model: "m", Text: 4},
		`["four","five5"]`:               {Model: "m", Text: 9},
		`[1,2,3]`:                        {Model: "m", Text: 12},
		`[[1,2],[3]]`:                    {Model: "m", Text: 12},
		`[{"text":"abc"},{"image":"x"}]`: {Model: "m", Text: 3, Media: 1},
		`"four","user":"u"`:              {Model: "m", Text: 4, User: "u"},
		`"four","encoding_format":"base64","extra":{}`: {Model: "m", Text: 4},
	} {
		p, err := Codec.Peek(wire.Embed, "/embeddings", []byte(`{"model":"m","input":`+in+`}`))
		if err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%s: %+v, %v", in, p, err)
		}
	}
	for _, body := range []string{`{`, `{"input":"x"}`, `{"model":"m"}`, `{"model":"m","input":7}`, `{"model":"a","model":"b","input":"x"}`} {
		if _, err := Codec.Peek(wire.Embed, "", []byte(body)); err == nil || agent.AsError(err).Kind != agent.Invalid {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestPassedBytesStayAsTheyAre(t *testing.T) {
	const body = `{"input" : ["b","a"],"model":"m","dimensions":3, "z":{"b":1,"a":2}}`
	c, err := Codec.Patch(wire.Embed, "", "key=x", nil, []byte(body), wire.Target{Model: "m"})
	if err != nil || string(c.Body) != body || c.Path != "/embeddings" || c.Query != "" {
		t.Errorf("%+v, %v", c, err)
	}
	c, _ = Codec.Patch(wire.Embed, "", "", nil, []byte(body), wire.Target{Model: "other"})
	if string(c.Body) != strings.Replace(body, `"m"`, `"other"`, 1) {
		t.Errorf("%s", c.Body)
	}
}

func TestMeter(t *testing.T) {
	m := Codec.Meter(false)
	const body = `{"object":"list","data":[{"embedding":[0.1]}],"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}`
	for _, c := range []byte(body) {
		if m.State().Ended {
			t.Fatal("ended early")
		}
		m.Write([]byte{c})
	}
	if s := m.State(); !s.Ended || !s.Content || !s.Usage.Known || s.Usage.Tokens != (agent.ModelTokens{Input: 8}) || s.Model != "m" {
		t.Errorf("%+v", s)
	}
	m = Codec.Meter(false)
	m.Write([]byte(`{"error":{"message":"x","code":"insufficient_quota"}}`))
	if s := m.State(); s.Ended || s.Fault == nil || s.Fault.Class != agent.QuotaExhausted {
		t.Errorf("%+v", s)
	}
}

func TestChatsAreRefusedClearly(t *testing.T) {
	if _, err := Codec.Peek(wire.Generate, "", []byte(`{"model":"m","input":"x"}`)); err == nil || !strings.Contains(err.Error(), "openai-chat") {
		t.Errorf("%v", err)
	}
	_, a := Codec.Encode(wire.Embed, &wire.Request{}, wire.Target{})
	_, b := Codec.Decode(wire.Embed, "", nil, []byte(`{}`))
	_, c := Codec.DecodeAnswer(nil, wire.Origin{})
	_, d := Codec.EncodeAnswer(nil, nil)
	_, e := Codec.Encode(wire.Generate, &wire.Request{}, wire.Target{})
	for i, err := range []error{a, b, c, d, e} {
		if x := agent.AsError(err); x == nil || x.Kind != agent.Invalid || !strings.Contains(x.Msg, "embeddings") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if l := Codec.Decoder(wire.Origin{}).Frame("", []byte("{}")); len(l) != 1 || l[0].Kind != wire.Broken {
		t.Errorf("%+v", l)
	}
	if s := string(Codec.Encoder(nil).Append(nil, wire.Event{Kind: wire.Begin})); !strings.HasPrefix(s, `data: {"error":`) {
		t.Errorf("%q", s)
	}
}

func FuzzPeek(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":["a",[1],{"text":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Codec.Peek(wire.Embed, "", b); err != nil && agent.AsError(err).Kind != agent.Invalid {
			t.Fatal(err)
		}
		_, _ = Codec.Patch(wire.Embed, "", "", nil, b, wire.Target{Model: "other"})
		m := Codec.Meter(false)
		m.Write(b)
		m.State()
	})
}
