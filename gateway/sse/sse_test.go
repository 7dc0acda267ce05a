package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

type frame struct{ Name, Data string }

func readAll(t *testing.T, r *Reader) (list []frame, err error) {
	t.Helper()
	for {
		name, data, err := r.Next()
		if err != nil {
			return list, err
		}
		list = append(list, frame{name, string(data)})
	}
}

func TestFrames(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []frame
	}{
		{"one", "data: a\n\n", []frame{{"", "a"}}},
		{"named", "event: ping\ndata: {}\n\n", []frame{{"ping", "{}"}}},
		{"name after data", "data: {}\nevent: x\n\n", []frame{{"x", "{}"}}},
		{"CRLF", "event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", []frame{{"a", "1"}, {"", "2"}}},
		{"CR alone", "data: 1\r\rdata: 2\r\r", []frame{{"", "1"}, {"", "2"}}},
		{"comments", ": OPENROUTER PROCESSING\n\n: x\ndata: 1\n: y\n\n", []frame{{"", "1"}}},
		{"many lines", "data: a\ndata:\ndata: b\n\n", []frame{{"", "a\n\nb"}}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []frame{{"", "a"}}},
		{"no space", "data:{\"a\":1}\n\n", []frame{{"", `{"a":1}`}}},
		{"two spaces", "data:  a\n\n", []frame{{"", " a"}}},
		{"other fields", "id: 7\nretry: 10\nfoo\ndata: a\n\n", []frame{{"", "a"}}},
		{"a name without data is no frame", "event: x\n\ndata: a\n\n", []frame{{"", "a"}}},
		{"empty data", "data\n\n", []frame{{"", ""}}},
		{"colons", "data: a: b\n\n", []frame{{"", "a: b"}}},
		{"no empty line at the end", "data: a\n\ndata: [DONE]\n", []frame{{"", "a"}, {"", "[DONE]"}}},
		{"no line end at the end", "data: [DONE]", []frame{{"", "[DONE]"}}},
		{"nothing", "", nil},
		{"empty lines", "\n\n\r\n\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readAll(t, NewReader(strings.NewReader(c.in), 100))
			if err != io.EOF {
				t.Errorf("error %v", err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("at once: %s", d)
			}
			got, err = readAll(t, NewReader(iotest.OneByteReader(strings.NewReader(c.in)), 100))
			if err != io.EOF {
				t.Errorf("error %v", err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("byte by byte: %s", d)
			}
		})
	}
}

func TestAFailedReadHidesTheHalfFrame(t *testing.T) {
	broken := errors.New("connection reset")
	got, err := readAll(t, NewReader(io.MultiReader(strings.NewReader("data: 1\n\ndata: 2"), iotest.ErrReader(broken)), 100))
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestTooLong(t *testing.T) {
	for _, in := range []string{
		"data: " + strings.Repeat("x", 11) + "\n\n",
		"data: 123456\ndata: 123456\n\n",
		"data: " + strings.Repeat("x", 1<<16),
	} {
		_, _, err := NewReader(iotest.HalfReader(strings.NewReader(in+"\n\n")), 10).Next()
		if err != ErrTooLong {
			t.Errorf("%.20q: %v", in, err)
		}
	}
	if _, data, err := NewReader(strings.NewReader("data: 1234567890\n\n"), 10).Next(); err != nil || len(data) != 10 {
		t.Errorf("a frame of the longest length: %v", err)
	}
	p := Parser{Max: 10}
	var got []string
	err := p.Write([]byte("data: a\n\ndata: "+strings.Repeat("x", 5000)+"\n\ndata: b\n\n"), func(_ string, d []byte) { got = append(got, string(d)) })
	if err != ErrTooLong || cmp.Diff([]string{"a", "b"}, got) != "" {
		t.Errorf("a parser skips it alone: %v %v", got, err)
	}
	if cap(p.line) > 1<<12 || cap(p.data) > 1<<12 {
		t.Errorf("kept %d and %d bytes", cap(p.line), cap(p.data))
	}
}

func TestAppend(t *testing.T) {
	b := Append(nil, "x", []byte("a\nb"))
	b = Append(b, "", []byte("c"))
	if want := "event: x\ndata: a\ndata: b\n\ndata: c\n\n"; string(b) != want {
		t.Fatalf("%q", b)
	}
	got, _ := readAll(t, NewReader(bytes.NewReader(b), 100))
	if d := cmp.Diff([]frame{{"x", "a\nb"}, {"", "c"}}, got); d != "" {
		t.Error(d)
	}
}

func TestFilterKeepsBytes(t *testing.T) {
	in := ": hello\r\n\r\nid: 4\r\ndata:1\r\n\r\ndata: drop\n\n\ndata: 2\n: c\n\ndata: drop\r\n\r\ndata: " + strings.Repeat("y", 50) + "\n\ndata: 3"
	want := strings.ReplaceAll(strings.ReplaceAll(in, "data: drop\n\n", ""), "data: drop\r\n\r\n", "")
	for size := 1; size < len(in); size++ {
		f := NewFilter(20, func(_ string, data []byte) bool { return string(data) == "drop" })
		var out []byte
		for rest := []byte(in); len(rest) > 0; {
			n := min(size, len(rest))
			out = f.Append(out, rest[:n])
			rest = rest[n:]
		}
		if out = f.Flush(out); string(out) != want {
			t.Fatalf("in pieces of %d: %q, want %q", size, out, want)
		}
	}
}

func TestFewAllocations(t *testing.T) {
	in := []byte(strings.Repeat("event: response.output_text.delta\ndata: {\"type\":\"x\"}\n\n", 100))
	p := Parser{Max: 1000}
	n := 0
	each := func(string, []byte) { n++ }
	_ = p.Write(in, each)
	if a := testing.AllocsPerRun(10, func() { _ = p.Write(in, each) }); a > 1 {
		t.Errorf("%v allocations for 100 frames", a)
	}
	if n < 1000 {
		t.Errorf("%d frames", n)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("event: a\r\ndata: 1\r\n\r\n: c\ndata: [DONE]"), 3)
	f.Add([]byte("\xef\xbb\xbfdata\n\rdata: x\n\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		if len(in) > 1<<12 {
			return
		}
		const limit = 64
		at := func(r io.Reader) (list []frame, err error) {
			s := NewReader(r, limit)
			for {
				name, data, err := s.Next()
				if err != nil {
					return list, err
				}
				if len(data) > limit || len(name) > MaxName {
					t.Fatalf("a frame of %d bytes, named by %d", len(data), len(name))
				}
				list = append(list, frame{name, string(data)})
			}
		}
		a, errA := at(bytes.NewReader(in))
		b, errB := at(iotest.OneByteReader(bytes.NewReader(in)))
		if d := cmp.Diff(a, b); d != "" || (errA == io.EOF) != (errB == io.EOF) {
			t.Fatalf("pieces change frames: %v %v %s", errA, errB, d)
		}
		keep := NewFilter(limit, func(string, []byte) bool { return false })
		size = max(1, min(size, 100))
		var out []byte
		for rest := in; len(rest) > 0; {
			n := min(size, len(rest))
			out = keep.Append(out, rest[:n])
			rest = rest[n:]
		}
		if out = keep.Flush(out); !bytes.Equal(out, in) {
			t.Fatalf("a filter that drops nothing changed %q to %q", in, out)
		}
	})
}
