package chat

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
)

var origin = wire.Origin{Protocol: "openai-chat", Provider: "host", Model: "m"}

// stream makes a stream of chunks, each given as what is in choices[0], or whole when it begins with "{", or [DONE].
func stream(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		if !strings.HasPrefix(c, "{") && c != "[DONE]" {
			c = `{"id":"c1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,` + c + `}]}`
		}
		b.WriteString("data: " + c + "\n\n")
	}
	return b.String()
}

// decode gives a stream to a decoder, checks that its events keep the rules, and returns them.
func decode(t *testing.T, s string) []wire.Event {
	t.Helper()
	d := Codec.Decoder(origin)
	r := sse.NewReader(strings.NewReader(s), wire.MaxFrame)
	var list []wire.Event
	for {
		name, data, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, d.Frame(name, data)...)
	}
	list = append(list, d.Close()...)
	check(t, list)
	if more := d.Close(); len(more) > 0 {
		t.Errorf("events after the end: %v", more)
	}
	return list
}

// check checks the rules of events: parts are numbered without gaps, begin and end once, and one event is the last.
func check(t *testing.T, list []wire.Event) {
	t.Helper()
	open := map[int]bool{}
	next := 0
	for i, e := range list {
		switch e.Kind {
		case wire.PartBegin:
			if e.Index != next {
				t.Errorf("part %d begins where %d is next", e.Index, next)
			}
			if e.Part.Kind == wire.CallPart && (e.Part.Call == nil || e.Part.Call.ID == "" || e.Part.Call.Name == "") {
				t.Errorf("a call begins without its id or name")
			}
			next++
			open[e.Index] = true
		case wire.PartDelta, wire.PartOpaque, wire.PartEnd:
			if !open[e.Index] {
				t.Errorf("an event of part %d, which is not open", e.Index)
			}
			if e.Kind == wire.PartEnd {
				delete(open, e.Index)
			}
		case wire.End:
			if len(open) > 0 {
				t.Errorf("the answer ends with %d parts open", len(open))
			}
		}
		if last := e.Kind == wire.End || e.Kind == wire.Broken; last != (i == len(list)-1) {
			t.Errorf("event %d of %d is of kind %d", i, len(list), e.Kind)
		}
	}
}

func collect(list []wire.Event) (*wire.Answer, *wire.Fault) {
	var c wire.Collector
	for _, e := range list {
		if e.Kind == wire.Broken {
			return c.Answer(), e.Fault
		}
		c.Add(e)
	}
	return c.Answer(), nil
}

func answerOf(t *testing.T, chunks ...string) *wire.Answer {
	t.Helper()
	a, f := collect(decode(t, stream(chunks...)))
	if f != nil {
		t.Fatalf("the stream broke: %v", f)
	}
	return a
}

// encoded gives events to an encoder.
func encoded(r *wire.Request, list []wire.Event) string {
	e := Codec.Encoder(r)
	var b []byte
	for _, v := range list {
		b = e.Append(b, v)
	}
	return string(b)
}

func frames(t *testing.T, s string) []string {
	t.Helper()
	r := sse.NewReader(strings.NewReader(s), wire.MaxFrame)
	var list []string
	for {
		_, data, err := r.Next()
		if err != nil {
			return list
		}
		list = append(list, string(data))
	}
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func text(s string) wire.Part { return wire.Part{Kind: wire.TextPart, Text: s} }

func thought(s string) wire.Part { return wire.Part{Kind: wire.ThoughtPart, Text: s} }

func callPart(id, name, args string) wire.Part {
	return wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: id, Name: name, Args: args}}
}
