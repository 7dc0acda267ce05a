package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"unicode/utf8"
)

// FuzzMessages decodes what may come from the other end, either end. What was accepted is within bounds, and is the same when it is written and read again.
func FuzzMessages(f *testing.F) {
	for _, m := range []*Message{
		{Kind: Hello, Body: Body(HelloBody{Version: 1, Sandbox: "01BOX", Generation: 2, Token: "t", Nonce: "n", CLIs: []Inventory{{Name: "claude", Path: "/x"}}})},
		{Kind: Welcome, Body: Body(WelcomeBody{Key: "k", Acked: 3, Env: map[string]string{"A": "b"}, ModelKey: "m"})},
		{Kind: Refused, Fault: &Fault{Kind: 4, Message: "no", Hint: "h"}},
		{Kind: Events, Body: Body(EventsBody{First: 1, List: []Event{NewEvent("1", TextDelta, TextData{Text: "ä<\x00"}), NewEvent("", TurnStarted, nil)}})},
		{Kind: Ack, Seq: 7}, {Kind: Bye}, {Kind: Heartbeat}, {Kind: Ready},
		{Kind: Command, ID: 1 << 62, Name: DoExec, Body: Body(Exec{ID: "1", Command: []string{"x"}, Stdin: []byte("in")}), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{Kind: Reply, ID: 1, Body: Body(ExecResult{Code: 1, Stdout: "x"})},
	} {
		b, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"kind":"events","body":{"first":-1,"list":[null]}}`))
	f.Add([]byte("{\"kind\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		for _, v := range bodies() {
			_ = m.Read(v)
		}
		if h, err := DecodeHello(m); err == nil && (h.Seq < 0 || len(h.CLIs) > 64) {
			t.Errorf("a hello is out of bounds: %+v", h)
		}
		if e, err := DecodeEvents(m); err == nil {
			checkEvents(t, e)
		}
		again, err := Encode(m)
		if err != nil {
			return // escapes may make it longer
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v", again, err)
		}
		if twice, err := Encode(back); err != nil || !bytes.Equal(twice, again) {
			t.Errorf("%s is not %s (%v)", twice, again, err)
		}
	})
}

// bodies are one of each that a message can have.
func bodies() []any {
	return []any{
		&HelloBody{}, &WelcomeBody{}, &EventsBody{}, &Prompt{}, &Answer{}, &InterruptArgs{}, &Exec{}, &ExecResult{}, &Processes{}, &SignalArgs{}, &SetupArgs{},
		&RepoArgs{}, &RepoResult{}, &DiffArgs{}, &DiffResult{}, &FileArgs{}, &FileInfo{}, &FileList{}, &ArchiveArgs{}, &PortArgs{},
	}
}

func checkEvents(t *testing.T, b *EventsBody) {
	if b.First < 1 || len(b.List) < 1 || len(b.List) > MaxBatch || b.First+int64(len(b.List)) < b.First {
		t.Errorf("a batch is out of bounds: %d from %d", len(b.List), b.First)
	}
	for _, e := range b.List {
		if e.Type == "" || len(e.Data) > MaxEvent || len(e.Data) > 0 && !json.Valid(e.Data) {
			t.Errorf("an event is out of bounds: %s %s", e.Type, e.Data)
		}
	}
}

// FuzzFit cuts whatever a backend may take from a CLI: what comes out fits, is JSON and UTF-8, and what fits already is not cut.
func FuzzFit(f *testing.F) {
	for shape := range 4 {
		f.Add("tool.started", []byte(`{"id":"1","input":{"a":"ä","n":12345678901234567890}}`), shape)
		f.Add("x", []byte(`{"text":"ää<>&\u0000"}`), 20000+shape)
		f.Add("x", []byte(`["a",["b"]]`), 9000+shape)
		f.Add("x", []byte("no JSON \xff"), 4+shape)
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte, times int) {
		times = max(times, 0)
		long := bytes.Repeat(data, max(1, min(times/4, (MaxEvent+MaxEvent/4)/(len(data)+1))))
		shaped := long
		switch times % 4 {
		case 1:
			shaped = Body(map[string]string{"text": string(long)})
		case 2:
			shaped = Body(map[string]any{"list": bytes.Split(long, []byte(" "))})
		case 3:
			fields := map[string][]byte{}
			for i, piece := range bytes.Split(long, []byte(" ")) {
				fields[strconv.Itoa(i)] = piece
			}
			shaped = Body(fields)
		}
		for _, d := range [][]byte{data, shaped} {
			e := Event{Type: kind, Data: d}
			fits := len(d) <= MaxEvent && json.Valid(d) && utf8.Valid(d)
			e.Fit()
			if len(e.Data) > MaxEvent || len(e.Data) > 0 && (!json.Valid(e.Data) || !utf8.Valid(e.Data)) {
				t.Fatalf("%d bytes became %d: %.100s", len(d), len(e.Data), e.Data)
			}
			if fits && (e.Cut || !bytes.Equal(e.Data, d)) {
				t.Fatalf("what fits was changed: %s is %s", d, e.Data)
			}
			if len(d) > 0 && (e.Cut || !fits) && kind != "" {
				if _, err := Encode(&Message{Kind: Events, Body: Body(EventsBody{First: 1, List: []Event{e}})}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// FuzzStreams reads a stream that may be anything. It gives an end only where the sender has put one, and never more than was sent.
func FuzzStreams(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02ab\x00\x00\x00\x01c\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x02a"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(b)
			_ = theirs.Close()
		}()
		c := NewConn(ours, nil)
		got, err := io.ReadAll(c)
		_ = c.Close()
		if len(got) > len(b) {
			t.Errorf("%d bytes became %d", len(b), len(got))
		}
		if err == nil && !bytes.Contains(b, []byte{0, 0, 0, 0}) {
			t.Error("a stream without an end has one")
		}
		if _, again := c.Read(make([]byte, 1)); (err == nil) != errors.Is(again, io.EOF) {
			t.Errorf("at first it ended with %v, then %v", err, again)
		}
	})
}

// FuzzExecFrames reads frames that may be anything. What was read is what was sent, and an end is where a frame ends.
func FuzzExecFrames(f *testing.F) {
	f.Add([]byte("i\x00\x00\x00\x02abx\x00\x00\x00\x00"))
	f.Add([]byte("o\x00\x00\x00\x02a"))
	f.Add([]byte("e\x00"))
	f.Add([]byte("e\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got []byte
		r := bytes.NewReader(b)
		for {
			kind, data, err := ReadExecFrame(r)
			if err == nil {
				got = AppendExecFrame(got, kind, data)
				continue
			}
			if !bytes.HasPrefix(b, got) || (err == io.EOF) != (len(got) == len(b)) {
				t.Errorf("%q was read as %q, and then %v", b, got, err)
			}
			return
		}
	})
}
