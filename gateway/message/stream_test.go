package message

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func TestStreamIsReadWhole(t *testing.T) {
	got, f := wiretest.Collect(events(toolStream...))
	if f != nil {
		t.Fatal(f)
	}
	if d := cmp.Diff(toolAnswer(), wiretest.NoRaw(got)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestStreamIsWrittenAsItWasRead(t *testing.T) {
	b := wiretest.Encode(Codec.Encoder(&wire.Request{}), events(toolStream...))
	got, f := back(t, b)
	if f != nil {
		t.Fatal(f)
	}
	if d := cmp.Diff(toolAnswer(), wiretest.NoRaw(got)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// The blocks of a stream are numbered without gaps, one is open at a time, each ends once, and none is empty.
func checkBlocks(t *testing.T, list []wiretest.Frame) {
	t.Helper()
	next, open := int64(0), int64(-1)
	for i, f := range list {
		v := gjson.Parse(f.Data)
		if f.Name != v.Get("type").Str {
			t.Errorf("frame %d: event %s has type %s", i, f.Name, v.Get("type").Str)
		}
		switch f.Name {
		case "content_block_start":
			if open >= 0 || v.Get("index").Int() != next {
				t.Errorf("frame %d: block %d begins while %d is open; next is %d", i, v.Get("index").Int(), open, next)
			}
			if b := v.Get("content_block"); b.Get("type").Str == "tool_use" && (b.Get("name").Str == "" || b.Get("id").Str == "") {
				t.Errorf("frame %d: a tool_use begins without a name or an id", i)
			}
			open = next
			next++
		case "content_block_delta", "content_block_stop":
			if v.Get("index").Int() != open {
				t.Errorf("frame %d: %s of block %d, and %d is open", i, f.Name, v.Get("index").Int(), open)
			}
			if f.Name == "content_block_stop" {
				open = -1
			}
		}
	}
	if open >= 0 && list[len(list)-1].Name != "error" {
		t.Errorf("block %d never ends", open)
	}
}

// Fault 12: accounting of clients goes by message_start, and by the figures at the end.
func TestUserSeesEstimatedInputAtTheStartAndTrueUsageAtTheEnd(t *testing.T) {
	list := []wire.Event{
		{Kind: wire.Begin, ID: "chatcmpl-1", Model: "gpt", Usage: wire.Usage{Tokens: agent.ModelTokens{Input: 1234}}},
		{Kind: wire.PartBegin}, {Kind: wire.PartDelta, Text: "hi"}, {Kind: wire.PartEnd},
		{Kind: wire.End, Stop: wire.StopEnd, Usage: wire.Usage{Known: true, Tokens: agent.ModelTokens{Input: 2103, CacheRead: 2000, Output: 9}}},
	}
	fr := framesOf(t, wiretest.Encode(Codec.Encoder(&wire.Request{}), list))
	checkBlocks(t, fr)
	if n := gjson.Get(fr[0].Data, "message.usage.input_tokens").Int(); n != 1234 {
		t.Errorf("message_start tells %d tokens of input, want the estimate 1234", n)
	}
	if id := gjson.Get(fr[0].Data, "message.id").Str; id != "msg_chatcmpl-1" {
		t.Errorf("id %q", id)
	}
	u := gjson.Get(fr[len(fr)-2].Data, "usage")
	if u.Get("input_tokens").Int() != 103 || u.Get("cache_read_input_tokens").Int() != 2000 || u.Get("output_tokens").Int() != 9 {
		t.Errorf("message_delta tells %s", u.Raw)
	}
	if fr[len(fr)-1].Name != "message_stop" {
		t.Errorf("the last frame is %s", fr[len(fr)-1].Name)
	}
}

// Fault 13: what the end tells replaces what the start told.
func TestUserIsNotChargedForStartAndEndAddedUp(t *testing.T) {
	f := []string{
		startFrame,
		`{"type":"message_delta","delta":{},"usage":{"input_tokens":3,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":40}}`,
		endFrame("end_turn"), stopFrame,
	}
	a, fault := wiretest.Collect(events(f...))
	if fault != nil {
		t.Fatal(fault)
	}
	if a.Usage.Tokens.Input != 2103 || a.Usage.Tokens.Output != 77 {
		t.Errorf("got %+v, want input 2103 and output 77", a.Usage.Tokens)
	}
	m := Codec.Meter(true)
	for _, x := range f {
		m.Write([]byte("data: " + x + "\n\n"))
	}
	if d := cmp.Diff(a.Usage, m.State().Usage); d != "" {
		t.Errorf("what passes is counted in another way than what is translated, -decoder +meter:\n%s", d)
	}
	if r := gjson.ParseBytes(a.Usage.Raw); r.Get("output_tokens").Int() != 77 || r.Get("cache_read_input_tokens").Int() != 2000 {
		t.Errorf("raw usage %s", a.Usage.Raw)
	}
}

// Fault 5: arguments come whole, in pieces, only with the start, or not at all.
func TestUserGetsTheArgumentsOfACallHoweverTheyCome(t *testing.T) {
	start := func(input string) string {
		return `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":` + input + `}}`
	}
	piece := func(s string) string {
		q, _ := json.Marshal(s)
		return `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":` + string(q) + `}}`
	}
	const stop = `{"type":"content_block_stop","index":0}`
	for _, c := range []struct {
		name   string
		frames []string
		want   string
	}{
		{"whole", []string{start("{}"), piece(`{"a":1}`), stop}, `{"a":1}`},
		{"pieces", []string{start("{}"), piece(`{"a`), piece(""), piece(`":1}`), stop}, `{"a":1}`},
		{"start", []string{start(`{"a":1}`), stop}, `{"a":1}`},
		{"none", []string{start("{}"), stop}, `{}`},
		{"empty piece", []string{start("{}"), piece(""), stop}, `{}`},
		{"no stop", []string{start("{}"), piece(`{"a":1}`)}, `{"a":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			frames := append(append([]string{startFrame}, c.frames...), endFrame("tool_use"), stopFrame)
			a, f := wiretest.Collect(events(frames...))
			if f != nil || len(a.Parts) != 1 || a.Parts[0].Call.Args != c.want {
				t.Fatalf("got %+v, %v; want arguments %s", a.Parts, f, c.want)
			}
			b, f := back(t, wiretest.Encode(Codec.Encoder(nil), events(frames...)))
			if f != nil || b.Parts[0].Call.Args != c.want {
				t.Errorf("written: %+v, %v", b.Parts, f)
			}
		})
	}
}

// Faults 6 and 8: calls of other providers come interleaved, after text that never ended; blocks come one after another.
func TestUserGetsOneWholeBlockAfterAnother(t *testing.T) {
	call := func(i int, name string) wire.Event {
		return wire.Event{Kind: wire.PartBegin, Index: i, Part: wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "call_" + name, Name: name}}}
	}
	piece := func(i int, s string) wire.Event { return wire.Event{Kind: wire.PartDelta, Index: i, Text: s} }
	list := []wire.Event{
		{Kind: wire.Begin},
		{Kind: wire.PartBegin, Index: 0, Part: wire.Part{Kind: wire.ThoughtPart}}, piece(0, "hm"), {Kind: wire.PartEnd, Index: 0},
		{Kind: wire.PartBegin, Index: 1}, // text that says nothing
		call(2, "a"), piece(2, `{"x":`), call(3, "b"), piece(3, `{"y"`), piece(2, "1}"), piece(3, ":2}"),
		{Kind: wire.PartEnd, Index: 3}, {Kind: wire.PartEnd, Index: 2},
		{Kind: wire.End, Stop: wire.StopTool},
	}
	b := wiretest.Encode(Codec.Encoder(nil), list)
	fr := framesOf(t, b)
	checkBlocks(t, fr)
	a, f := back(t, b)
	if f != nil {
		t.Fatal(f)
	}
	want := []wire.Part{
		{Kind: wire.ThoughtPart, Text: "hm"},
		{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "call_a", Name: "a", Args: `{"x":1}`}},
		{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "call_b", Name: "b", Args: `{"y":2}`}},
	}
	if d := cmp.Diff(want, a.Parts); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Text is passed on as it comes, not at the end.
func TestTextIsWrittenAtOnce(t *testing.T) {
	e := Codec.Encoder(nil)
	b := e.Append(nil, wire.Event{Kind: wire.Begin})
	b = e.Append(b, wire.Event{Kind: wire.PartBegin})
	before := len(b)
	b = e.Append(b, wire.Event{Kind: wire.PartDelta, Text: "hi <b>"})
	if s := string(b[before:]); !strings.Contains(s, "text_delta") || !strings.HasSuffix(s, "\n\n") {
		t.Errorf("got %q", s)
	}
}

func TestUserSeesThatAStreamBroke(t *testing.T) {
	overloaded := `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	for _, c := range []struct {
		name   string
		frames []string
		class  agent.FaultClass
	}{
		{"cut before the end", toolStream[:len(toolStream)-1], agent.StreamBroken},
		{"cut in a call", toolStream[:15], agent.StreamBroken},
		{"nothing", nil, agent.StreamBroken},
		{"overloaded", append(slices.Clone(toolStream[:11]), overloaded), agent.Overloaded},
		{"api_error", []string{startFrame, `{"type":"error","error":{"type":"api_error","message":"boom"}}`}, agent.StreamBroken},
		{"no JSON", []string{startFrame, `{"type":`}, agent.StreamBroken},
		{"call without a name", []string{startFrame, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"x","input":{}}}`}, agent.StreamBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := events(c.frames...)
			_, f := wiretest.Collect(list)
			if f == nil || f.Class != c.class || f.Message == "" {
				t.Fatalf("got %+v, want class %s", f, c.class)
			}
			fr := framesOf(t, wiretest.Encode(Codec.Encoder(nil), list))
			last := fr[len(fr)-1]
			if last.Name != "error" || gjson.Get(last.Data, "error.message").Str == "" {
				t.Errorf("the last frame is %+v, want an error", last)
			}
			for _, x := range fr {
				if x.Name == "message_stop" {
					t.Error("the stream ends cleanly")
				}
			}
		})
	}
}

func TestACallThatIsNoneEndsInAnError(t *testing.T) {
	fr := framesOf(t, wiretest.Encode(Codec.Encoder(nil), []wire.Event{{Kind: wire.Begin}, {Kind: wire.End, Stop: wire.StopBroken}}))
	if last := fr[len(fr)-1]; last.Name != "error" {
		t.Errorf("the last frame is %+v", last)
	}
	if _, err := Codec.EncodeAnswer(&wire.Answer{Stop: wire.StopBroken}, nil); agent.KindOf(err) != agent.Unavailable || err == nil {
		t.Errorf("got %v", err)
	}
}

func TestNothingFollowsTheEnd(t *testing.T) {
	d := Codec.Decoder(here)
	for _, f := range toolStream {
		d.Frame("", []byte(f))
	}
	if got := append(d.Frame("", []byte(startFrame)), d.Close()...); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestAStartThatComesTwiceBeginsOnce(t *testing.T) {
	n := 0
	for _, e := range events(startFrame, startFrame, endFrame("end_turn"), stopFrame) {
		if e.Kind == wire.Begin {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d beginnings", n)
	}
}

func TestPing(t *testing.T) {
	if l := events(`{"type":"ping"}`); l[0].Kind != wire.Ping {
		t.Errorf("got %+v", l)
	}
	b := wiretest.Encode(Codec.Encoder(nil), []wire.Event{{Kind: wire.Begin}, {Kind: wire.Ping}})
	if fr := framesOf(t, b); fr[1].Name != "ping" {
		t.Errorf("got %+v", fr)
	}
}

func TestMeterReadsWhatPasses(t *testing.T) {
	var all []byte
	for _, f := range toolStream {
		all = append(all, "event: x\ndata: "+f+"\n\n"...)
	}
	for _, size := range []int{1, 7, len(all)} {
		m := Codec.Meter(true)
		for b := range slices.Chunk(all, size) {
			m.Write(b)
		}
		s := m.State()
		want := wire.MeterState{
			Content: true, Ended: true, Model: "claude-opus-4-8", ID: "msg_1", Stop: wire.StopTool, Signed: true,
			Chars: len("Let me see.I'll look." + `{"city": "Paris"}`), Calls: []string{"toolu_1", "toolu_2"},
			Usage: toolAnswer().Usage,
		}
		s.Usage.Raw = nil
		if d := cmp.Diff(want, s); d != "" {
			t.Errorf("in pieces of %d, -want +got:\n%s", size, d)
		}
	}
}

func TestMeterTellsWhatHasComeOfAStreamThatBreaks(t *testing.T) {
	m := Codec.Meter(true)
	for _, f := range toolStream[:12] {
		m.Write([]byte("data: " + f + "\n\n"))
	}
	s := m.State()
	if s.Ended || !s.Content || s.Usage.Tokens.Input != 2103 || s.Chars != len("Let me see.I'll look.") {
		t.Errorf("got %+v", s)
	}
	m.Write([]byte("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"))
	if s = m.State(); s.Fault == nil || s.Fault.Class != agent.Overloaded || s.Ended {
		t.Errorf("got %+v", s)
	}
}
