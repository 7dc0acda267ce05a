package script

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
)

// Recorded is a call to a provider, and what it answered.
type Recorded struct {
	Protocol agent.Protocol
	Op       wire.Op
	Path     string // with the query, if any
	Request  []byte
	Status   int
	Header   http.Header
	Body     []byte
}

// Record makes a turn of a call, as a line of JSON without its end: one that tells the same answer to the same conversation. An error is told once, so
// that what followed it follows it again. There is a turn of what was generated alone, in JSON or as server-sent events.
func Record(r Recorded, codecs []wire.Codec) ([]byte, error) {
	var codec wire.Codec
	for _, c := range codecs {
		if c.Protocol() == r.Protocol {
			codec = c
		}
	}
	if codec == nil || r.Op != wire.Generate {
		return nil, agent.Errorf(agent.Invalid, "a call of this kind is not recorded")
	}
	if r.Status == 0 || !utf8.Valid(r.Body) {
		return nil, agent.Errorf(agent.Invalid, "a call without an answer, or with one that is no text, is not recorded")
	}
	asked, err := codec.Decode(r.Op, r.Path, http.Header{}, r.Request)
	if err != nil {
		return nil, err
	}
	t := Turn{Match: &Match{Request: conversationOf(asked).hash}, Raw: &Raw{Protocol: r.Protocol, Status: r.Status}}
	if r.Status >= http.StatusMultipleChoices {
		t.Times = 1
	}
	for name := range r.Header {
		if t.Raw.Header == nil {
			t.Raw.Header = map[string]string{}
		}
		t.Raw.Header[name] = r.Header.Get(name)
	}
	switch {
	case strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream"):
		t.Raw.Frames = frames(r.Body)
	default: // as text: no byte of it changes
		if t.Raw.Body, err = json.Marshal(string(r.Body)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(&t)
}

// frames cuts a stream behind each of its frames.
func frames(text []byte) []string {
	list := []string{}
	p := sse.Parser{Max: wire.MaxFrame}
	from := 0
	for at := 0; at < len(text); {
		n, _, _, ok, err := p.Next(text[at:])
		if at += n; ok || err != nil {
			list = append(list, string(text[from:at]))
			from = at
		}
	}
	if from < len(text) {
		list = append(list, string(text[from:]))
	}
	return list
}

// differs reports whether a recorded answer is in another protocol or form than the one that is asked for.
func (p *play) differs(raw *Raw) bool {
	switch {
	case raw.Protocol == agent.NoProtocol:
		return false
	case raw.Protocol != p.codec.Protocol():
		return true
	case raw.Status >= http.StatusMultipleChoices:
		return false
	}
	list := raw.Protocol == agent.GeminiProtocol && bytes.HasPrefix(bytes.TrimSpace(raw.bytes()), []byte("[")) // a stream in its other form
	return p.stream != (raw.Frames != nil || list)
}

// translated tells a recorded answer in another protocol or form.
func (p *play) translated(t *Turn) (*http.Response, error) {
	raw := t.Raw
	codec := p.s.codecs[raw.Protocol]
	if codec == nil {
		return refuse(p.r, p.codec, agent.Errorf(agent.Invalid, "the turn was recorded in %s, which is not spoken here", raw.Protocol)), nil
	}
	body := raw.bytes()
	if raw.Status >= http.StatusMultipleChoices {
		header := http.Header{}
		for name, v := range raw.Header {
			header.Set(name, v)
		}
		return p.failed(codec.DecodeFault(raw.Status, header, body)), nil
	}
	from := wire.Origin{Protocol: raw.Protocol.String()}
	if raw.Frames == nil {
		a, err := codec.DecodeAnswer(body, from)
		if err != nil {
			return refuse(p.r, p.codec, err), nil
		}
		return p.say(a, &Reply{}, t)
	}
	var c wire.Collector
	var broken *wire.Fault
	dec := codec.Decoder(from)
	take := func(list []wire.Event) {
		for _, e := range list {
			if e.Kind == wire.Broken {
				broken = e.Fault
			}
			c.Add(e)
		}
	}
	parser := sse.Parser{Max: wire.MaxFrame}
	for _, f := range raw.Frames {
		_ = parser.Write([]byte(f), func(name string, data []byte) { take(dec.Frame(name, data)) })
	}
	if name, data, ok := parser.Flush(); ok {
		take(dec.Frame(name, data))
	}
	take(dec.Close())
	if broken != nil {
		return p.failed(broken), nil
	}
	return p.say(c.Answer(), &Reply{}, t)
}

func (p *play) failed(f *wire.Fault) *http.Response {
	status, header, body := p.codec.EncodeFault(f)
	return whole(p.r, status, header, body)
}

// bytes is the body as it was.
func (r *Raw) bytes() []byte {
	var text string
	if json.Unmarshal(r.Body, &text) == nil {
		return []byte(text)
	}
	return r.Body
}
