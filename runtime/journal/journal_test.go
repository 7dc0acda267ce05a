package journal

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

var at = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

// all has every kind, and every field in one of them.
func all() []Entry {
	digest := agent.DigestOf([]byte("x"))
	return []Entry{
		{Kind: Begin, Seed: [32]byte{1, 2}, Time: at, Image: digest},
		{Kind: Life, Count: 1},
		{Kind: Start, Call: 1, Name: "http.open", Sum: Sum{1}, Class: Once, Text: "POST https://example.com/"},
		{Kind: Start, Call: 2, Name: "run.sleep", Sum: Sum{2}, Class: Wait, Until: at.Truncate(time.Millisecond)},
		{Kind: Done, Call: 1, Name: "http.open", Sum: Sum{1}, Blob: digest, Bytes: 200_000},
		{Kind: Deliver, Call: 1, Time: at.Add(time.Second)},
		{Kind: Deliver, Call: 3, Name: "state.get", Sum: Sum{3}, Class: Read, Text: "k", Out: []byte{}, Time: at.Add(2 * time.Second)},
		{Kind: Timer, Time: at.Add(3 * time.Second)},
		{Kind: Answered, Call: 4, Name: "shared.get", Sum: Sum{4}, Out: []byte("{}")},
		{Kind: Event, Name: "go", ID: "once", Out: []byte("1")},
		{Kind: Take, Call: 5, Count: 1},
		{Kind: Mark, Call: 6, Lines: 2, Count: 3, Bytes: 40},
		{Kind: Step, Call: 7, Name: "one", Count: 1, Flag: true},
		{Kind: Snapshot, Image: digest, ImageBlob: digest, Out: []byte("s"), Time: at, Lines: 2, Bytes: 40, Call: 8, Count: 64, Usage: agent.Usage{CPU: 1, Memory: 2}},
		{Kind: Crash, Count: 2, Text: "its process ended"},
		{Kind: Retry, Call: 1}, {Kind: Terminate}, {Kind: Rejected, Call: 9},
		{Kind: Done, Call: 10, Err: &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitHTTP, Msg: "m", Hint: "h"}},
		{Kind: Used, Name: "http GET https://example.com"},
		{Kind: End, Text: "completed"},
	}
}

func TestRoundTrip(t *testing.T) {
	want := all()
	packed := Pack("R", want)
	if len(packed) != 1 || packed[0].Run != "R" || len(packed[0].Blobs) != 2 {
		t.Fatalf("packed as %d: %+v", len(packed), packed)
	}
	got, err := Unpack(packed[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for n := range packed[0].Data {
		if short, err := Unpack(packed[0].Data[:n]); err == nil && len(short) >= len(want) {
			t.Errorf("%d of %d bytes were taken for all", n, len(packed[0].Data))
		}
	}
	if _, err := Unpack([]byte{version + 1}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("another version: %v", err)
	}
}

// Whatever is packed fits into what the store takes.
func TestPackBounds(t *testing.T) {
	var entries []Entry
	for i := range 100 {
		e := Entry{Kind: Deliver, Call: uint64(i + 1), Name: "x", Time: at, Out: bytes.Repeat([]byte{1}, MaxInline*i/99)}
		if i%3 == 0 {
			e.Out, e.Blob = nil, agent.DigestOf([]byte{byte(i)})
		}
		entries = append(entries, e)
	}
	n := 0
	for _, p := range Pack("R", entries) {
		if len(p.Data) > instance.MaxData || len(p.Blobs) > instance.MaxBlobs {
			t.Errorf("%d bytes, %d blobs", len(p.Data), len(p.Blobs))
		}
		back, err := Unpack(p.Data)
		if err != nil {
			t.Fatal(err)
		}
		n += len(back)
	}
	if n != len(entries) {
		t.Errorf("%d entries of %d", n, len(entries))
	}
}

func TestView(t *testing.T) {
	add := func(v *View, entries ...Entry) *View {
		for _, e := range entries {
			v.Add(e)
		}
		return v
	}
	none := func(uint64) bool { return false }
	started := add(NewView(), all()[:4]...)
	if n := started.Uncertain(none); n != 1 {
		t.Errorf("call %d is uncertain, want 1", n)
	}
	if n := started.Uncertain(func(n uint64) bool { return n == 1 }); n != 0 {
		t.Errorf("call %d is uncertain while it is under way", n)
	}
	if n := add(started, Entry{Kind: Retry, Call: 1}).Uncertain(none); n != 0 {
		t.Errorf("call %d is uncertain although it is to be made again", n)
	}
	v := add(NewView(), all()[:13]...)
	if len(v.Deliveries) != 3 || !v.Calls[1].Delivered || v.Calls[1].Blob == "" || v.Clock != at.Add(3*time.Second) || v.Mark.Lines != 2 {
		t.Errorf("%+v", v)
	}
	if v.Find("go") != -1 || !v.Has("once") || v.Has("") {
		t.Errorf("events %+v", v.Events)
	}
	add(v, all()[13])
	if len(v.Deliveries) != 0 || v.Calls[1] != nil || v.Calls[2] == nil || !v.Rested {
		t.Errorf("after a snapshot: %+v", v)
	}
	add(v, Entry{Kind: Life}, Entry{Kind: Crash, Text: "one"}, Entry{Kind: Life}, Entry{Kind: Crash, Text: "two"})
	if len(v.Crashes) != 2 || v.Rested || v.Lives != 3 {
		t.Errorf("after crashes: %+v", v)
	}
	for _, e := range []Entry{
		{Call: 90, Name: abi.CallSandboxNext, Class: Read, Err: &agent.Error{Kind: agent.Failed, Msg: "lost"}}, {Call: 91, Name: abi.CallSandboxRead, Class: Read},
		{Call: 92, Name: abi.CallFilePut, Class: Idempotent},
	} {
		e.Kind = Deliver
		if add(v, e); len(v.Crashes) != 2 {
			t.Errorf("%+v is progress", e)
		}
	}
	for _, e := range []Entry{{Call: 93, Name: abi.CallSandboxNext, Class: Read}, {Call: 94, Name: abi.CallSandboxExec, Class: Idempotent}} {
		e.Kind = Deliver
		if v := add(NewView(), Entry{Kind: Life}, Entry{Kind: Crash}, e); len(v.Crashes) != 0 {
			t.Errorf("%+v is no progress", e)
		}
	}
	if v.Full() != nil {
		t.Error(v.Full())
	}
	for range MaxEntries {
		v.Add(Entry{Kind: Deliver, Call: 1, Name: abi.CallHTTPRead})
	}
	if v.Full() != nil {
		t.Errorf("pieces of a body count: %v", v.Full())
	}
	for range MaxEntries {
		v.Add(Entry{Kind: Deliver, Call: 1, Name: "x"})
	}
	if e := agent.AsError(v.Full()); e == nil || e.Kind != agent.Exhausted || e.Hint == "" {
		t.Errorf("a full journal: %v", e)
	}
}

func TestUntil(t *testing.T) {
	entries := []Entry{
		{Kind: Begin, Time: at}, {Kind: Life}, {Kind: Deliver, Call: 1, Name: "a"}, {Kind: Event, Name: "e"},
		{Kind: Step, Call: 2, Name: "one"}, {Kind: Deliver, Call: 3, Name: "b"}, {Kind: Mark, Call: 2, Lines: 1},
		{Kind: Step, Call: 4, Name: "two"}, {Kind: Start, Call: 5}, {Kind: End},
	}
	got, ok := Until(entries, "two")
	want := []Entry{entries[0], entries[2], entries[3], entries[4], entries[5], entries[6]}
	if d := cmp.Diff(want, got); d != "" || !ok {
		t.Errorf("%v %s", ok, d)
	}
	if got, ok := Until(entries, ""); !ok || len(got) != 0 {
		t.Errorf("from the beginning: %v, %v", got, ok)
	}
	if _, ok := Until(entries, "three"); ok {
		t.Error("a step that is not there was found")
	}
}

func TestClassOf(t *testing.T) {
	open := func(head string) []byte { return abi.AppendHTTPFrame(nil, []byte(head), nil) }
	for _, tt := range []struct {
		name string
		in   []byte
		want Class
	}{
		{abi.CallHTTPOpen, open(`{"method":"GET","url":"x"}`), Read},
		{abi.CallHTTPOpen, open(`{"method":"post","url":"x"}`), Once},
		{abi.CallHTTPOpen, open(`{"method":"POST","url":"x","header":[["idempotency-key","1"]]}`), Idempotent},
		{abi.CallHTTPOpen, open(`{"method":"DELETE","url":"x"}`), Idempotent},
		{abi.CallHTTPOpen, []byte("?"), Once},
		{abi.CallHTTP, []byte(`{"method":"HEAD"}`), Read},
		{abi.CallAgent, []byte(`{"agent":"a","function":"f"}`), Once},
		{abi.CallAgent, []byte(`{"agent":"a","function":"f","key":"k"}`), Wait},
		{abi.CallAgent, []byte(`{"agent":"a","function":"f","key":"k","send":true}`), Inside},
		{abi.CallStateSet, []byte(`{"key":"k","json":1}`), Idempotent},
		{abi.CallStateSet, []byte(`{"key":"k","if":1,"json":1}`), Once},
		{abi.CallStorageGet, nil, Own},
		{"new.call", nil, Once},
	} {
		if got := ClassOf(tt.name, tt.in); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.name, tt.in, got, tt.want)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(Pack("R", all())[0].Data)
	for _, e := range all() {
		f.Add(Pack("R", []Entry{e})[0].Data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := Unpack(b)
		if err != nil {
			return
		}
		v := NewView()
		for _, e := range entries {
			v.Add(e)
		}
		_, _ = Until(entries, "one")
		for _, p := range Pack("R", entries) {
			if _, err := Unpack(p.Data); err != nil {
				t.Errorf("what was read cannot be read again: %v", err)
			}
		}
	})
}
