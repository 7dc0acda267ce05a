package message

import (
	"bytes"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func FuzzRequest(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"thinking","signature":"skep1.e30"},{"type":"text","text":"a"}]}]}`))
	f.Add([]byte(`{"model":"m","max_tokens":1,"system":"s","messages":[{"role":"user","content":"a"}],"thinking":{"type":"enabled","budget_tokens":-1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		made := wiretest.Request(t, Codec, wire.Generate, askPath, body, target)
		mark := []byte(`cache_control":{"type":"ephemeral"`)
		if n := bytes.Count(made, mark); n > MaxMarks && !bytes.Contains(body, mark) {
			t.Errorf("%d marks: %s", n, made)
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
		m := Codec.Meter(true)
		var frames []wiretest.Frame
		for line := range bytes.Lines(data) {
			frames = append(frames, wiretest.Frame{Data: string(bytes.TrimSpace(line))})
			m.Write(append(append([]byte("data: "), line...), '\n'))
		}
		m.Write(data)
		m.State()
		list := wiretest.Decode(t, Codec.Decoder(here), frames...)
		checkBlocks(t, framesOf(t, wiretest.Encode(Codec.Encoder(nil), list)))
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(wholeAnswer), 200)
	f.Add([]byte(`{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"x"}}}`), 429)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		wiretest.Fault(t, Codec, status, body)
		wiretest.Answer(t, Codec, here, body, agent.Unavailable)
	})
}
