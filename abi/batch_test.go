package abi

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBatchRoundTrip(t *testing.T) {
	want := []Request{{Name: "log", Input: []byte("{}")}, {Name: "emit", Input: []byte{}}, {Name: strings.Repeat("n", MaxName), Input: []byte{0, 1}}}
	var b []byte
	for _, r := range want {
		var err error
		if b, err = AppendRequest(b, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := DecodeRequests(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	replies := []Reply{{Status: OK, Output: []byte("x")}, {Status: 3, Output: []byte{}}}
	b = nil
	for _, r := range replies {
		b = AppendReply(b, r)
	}
	back, err := DecodeReplies(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(replies, back); d != "" {
		t.Error(d)
	}
}

func TestBatchRefuses(t *testing.T) {
	if _, err := AppendRequest(nil, Request{Name: strings.Repeat("n", MaxName+1)}); !errors.Is(err, errName) {
		t.Errorf("long name: %v", err)
	}
	one, err := AppendRequest(nil, Request{Name: "log", Input: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(one); n++ {
		if _, err := DecodeRequests(one[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a batch", n, len(one))
		}
	}
	if _, err := DecodeRequests(bytes.Repeat(one, MaxBatch)); err != nil {
		t.Errorf("%d calls: %v", MaxBatch, err)
	}
	if _, err := DecodeRequests(bytes.Repeat(one, MaxBatch+1)); !errors.Is(err, errMany) {
		t.Errorf("%d calls: %v", MaxBatch+1, err)
	}
}

func FuzzDecodeRequests(f *testing.F) {
	one, _ := AppendRequest(nil, Request{Name: "emit", Input: []byte(`{"name":"x"}`)})
	f.Add(one)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := DecodeRequests(b)
		if err != nil {
			return
		}
		var back []byte
		for _, r := range rs {
			if back, err = AppendRequest(back, r); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(b, back) {
			t.Errorf("%x came back as %x", b, back)
		}
	})
}

func FuzzDecodeReplies(f *testing.F) {
	f.Add(AppendReply(nil, Reply{Status: 2, Output: []byte("{}")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := DecodeReplies(b)
		if err != nil {
			return
		}
		var back []byte
		for _, r := range rs {
			back = AppendReply(back, r)
		}
		if !bytes.Equal(b, back) {
			t.Errorf("%x came back as %x", b, back)
		}
	})
}
