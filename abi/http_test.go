package abi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHTTPFrames(t *testing.T) {
	length := int64(7)
	want := HTTPOpen{Method: "POST", URL: "https://a.b/", Header: [][2]string{{"a", "b"}}, Redirect: "manual", Stream: true, Length: &length}
	b, err := AppendHTTPHead(nil, want, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	head, body, err := SplitHTTPHead(b)
	var got HTTPOpen
	if err != nil || json.Unmarshal(head, &got) != nil || string(body) != "body" {
		t.Fatalf("head %s, body %q, %v", head, body, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, last := range []bool{true, false} {
		id, gotLast, piece, err := SplitHTTPWrite(AppendHTTPWrite(nil, 9, last, []byte("p")))
		if id != 9 || gotLast != last || string(piece) != "p" || err != nil {
			t.Errorf("write: %d %v %q %v", id, gotLast, piece, err)
		}
		gotLast, piece, err = SplitHTTPRead(AppendHTTPRead(nil, last, nil))
		if gotLast != last || len(piece) != 0 || err != nil {
			t.Errorf("read: %v %q %v", gotLast, piece, err)
		}
	}
	if id, err := SplitHTTPID(AppendHTTPID(nil, 1<<31)); id != 1<<31 || err != nil {
		t.Errorf("id: %d %v", id, err)
	}
}

func TestHTTPFramesRefuse(t *testing.T) {
	for _, b := range []string{"", "\x01\x00\x00", "\x02\x00\x00\x00x", "\xff\xff\xff\xffx"} {
		if _, _, err := SplitHTTPHead([]byte(b)); err == nil {
			t.Errorf("head %q was taken", b)
		}
	}
	edge := AppendHTTPFrame(nil, []byte(strings.Repeat("x", MaxHTTPHead)), nil)
	if _, _, err := SplitHTTPHead(edge); err != nil {
		t.Errorf("a head of the largest size: %v", err)
	}
	if _, _, err := SplitHTTPHead(AppendHTTPFrame(nil, []byte(strings.Repeat("x", MaxHTTPHead+1)), nil)); err == nil {
		t.Error("a head past the largest size was taken")
	}
	for _, b := range []string{"", "\x00\x00\x00\x00", "\x00\x00\x00\x00\x02x"} {
		if _, _, _, err := SplitHTTPWrite([]byte(b)); err == nil {
			t.Errorf("write %q was taken", b)
		}
	}
	for _, b := range []string{"", "\x02", "\xff"} {
		if _, _, err := SplitHTTPRead([]byte(b)); err == nil {
			t.Errorf("read %q was taken", b)
		}
	}
	for _, b := range []string{"", "\x00\x00\x00", "\x00\x00\x00\x00\x00"} {
		if _, err := SplitHTTPID([]byte(b)); err == nil {
			t.Errorf("id %q was taken", b)
		}
	}
}

func FuzzHTTPFrames(f *testing.F) {
	b, _ := AppendHTTPHead(nil, HTTPHead{ID: 3, Status: 200}, []byte("x"))
	f.Add(b)
	f.Add(AppendHTTPWrite(nil, 1, true, []byte("x")))
	f.Add(AppendHTTPRead(nil, false, []byte("x")))
	f.Add(AppendHTTPID(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if head, body, err := SplitHTTPHead(b); err == nil && !bytes.Equal(b, AppendHTTPFrame(nil, head, body)) {
			t.Errorf("head: %x came back otherwise", b)
		}
		if id, last, piece, err := SplitHTTPWrite(b); err == nil && !bytes.Equal(b, AppendHTTPWrite(nil, id, last, piece)) {
			t.Errorf("write: %x came back otherwise", b)
		}
		if last, piece, err := SplitHTTPRead(b); err == nil && !bytes.Equal(b, AppendHTTPRead(nil, last, piece)) {
			t.Errorf("read: %x came back otherwise", b)
		}
		if id, err := SplitHTTPID(b); err == nil && !bytes.Equal(b, AppendHTTPID(nil, id)) {
			t.Errorf("id: %x came back otherwise", b)
		}
	})
}
