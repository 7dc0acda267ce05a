// Package wiretest is what the tests of codecs have in common: it reads streams, checks the rules that their events keep, and compares what came of them.
package wiretest

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
)

// Frame is a frame of a stream, as a client gets it.
type Frame struct{ Name, Data string }

// Frames reads a stream of server-sent events.
func Frames(t testing.TB, stream string) []Frame {
	t.Helper()
	r := sse.NewReader(strings.NewReader(stream), wire.MaxFrame)
	var list []Frame
	for {
		name, data, err := r.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, Frame{name, string(data)})
	}
}

// Data is the data of the frames of a stream.
func Data(t testing.TB, stream string) []string {
	t.Helper()
	var list []string
	for _, f := range Frames(t, stream) {
		list = append(list, f.Data)
	}
	return list
}

// Decode gives frames and their end to a decoder, checks that the events keep the rules, and returns them.
func Decode(t testing.TB, d wire.Decoder, frames ...Frame) []wire.Event {
	t.Helper()
	var list []wire.Event
	for _, f := range frames {
		list = append(list, d.Frame(f.Name, []byte(f.Data))...)
	}
	list = append(list, d.Close()...)
	check(t, list)
	if more := d.Close(); len(more) > 0 {
		t.Errorf("events after the end: %v", more)
	}
	return list
}

// check checks the rules of events: parts are numbered without gaps, begin and end once, and one event is the last.
func check(t testing.TB, list []wire.Event) {
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

// Collect makes an answer of events; the fault is that of Broken.
func Collect(list []wire.Event) (*wire.Answer, *wire.Fault) {
	var c wire.Collector
	for _, e := range list {
		if e.Kind == wire.Broken {
			return c.Answer(), e.Fault
		}
		c.Add(e)
	}
	return c.Answer(), nil
}

// Encode gives events to an encoder.
func Encode(e wire.Encoder, list []wire.Event) []byte {
	var b []byte
	for _, v := range list {
		b = e.Append(b, v)
	}
	return b
}

// Same compares values; a list that is empty is the same as none.
func Same(t testing.TB, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// SameJSON compares JSON.
func SameJSON(t testing.TB, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("got is no JSON: %v\n%s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("want is no JSON: %v\n%s", err, want)
	}
	if d := cmp.Diff(w, g); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Refused checks that err is of kind Invalid and names field.
func Refused(t testing.TB, err error, field string) {
	t.Helper()
	if err == nil || agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), field) {
		t.Errorf("got error %v, want one of kind invalid that names %s", err, field)
	}
}

// NoRaw takes the provider's own figures out of an answer, which differ where a codec wrote them.
func NoRaw(a *wire.Answer) *wire.Answer {
	b := *a
	b.Usage.Raw = nil
	return &b
}
