package reply_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/reply"
)

type taken struct {
	head abi.HTTPReply
	body io.Reader
}

func begin(t *testing.T) (*reply.Reply, *grant.Door, chan taken) {
	begun := make(chan taken, 1)
	r := reply.New(func(head abi.HTTPReply, body io.Reader) { begun <- taken{head, body} })
	return r, grant.NewDoor(agent.DefaultLimits(), r.Handlers(), nil), begun
}

func head(t *testing.T, d *grant.Door, h abi.HTTPReply) error {
	in, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Call(t.Context(), abi.CallReply, in)
	return err
}

func TestReply(t *testing.T) {
	for _, end := range []error{nil, errors.New("it failed")} {
		r, d, begun := begin(t)
		want := abi.HTTPReply{Status: 201, Header: [][2]string{{"a", "b"}}}
		if err := head(t, d, want); err != nil {
			t.Fatal(err)
		}
		got := <-begun
		if diff := cmp.Diff(want, got.head); diff != "" {
			t.Error(diff)
		}
		for _, piece := range []string{"one", "", "two"} {
			written := make(chan error, 1)
			go func() {
				_, err := d.Call(t.Context(), abi.CallReplyWrite, []byte(piece))
				written <- err
			}()
			b := make([]byte, len(piece))
			if _, err := io.ReadFull(got.body, b); err != nil || string(b) != piece {
				t.Errorf("%q, %v", b, err)
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
		}
		if !r.Close(end) {
			t.Error("it had begun")
		}
		if _, err := io.ReadAll(got.body); !errors.Is(err, end) {
			t.Errorf("the body ended with %v, want %v", err, end)
		}
	}
}

func TestReplyRefuses(t *testing.T) {
	r, d, begun := begin(t)
	_, err := d.Call(t.Context(), abi.CallReplyWrite, []byte("x"))
	if agent.KindOf(err) != agent.Conflict {
		t.Errorf("a piece before the head: %v", err)
	}
	for _, status := range []int{0, 199, 600} {
		if err := head(t, d, abi.HTTPReply{Status: status}); agent.KindOf(err) != agent.Invalid {
			t.Errorf("status %d: %v", status, err)
		}
	}
	if r.Close(nil) {
		t.Error("it had not begun")
	}
	if err := head(t, d, abi.HTTPReply{Status: 599}); err != nil {
		t.Error(err)
	}
	<-begun
	if err := head(t, d, abi.HTTPReply{Status: 200}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("a second head: %v", err)
	}
}

// TestNobodyReads has a piece wait for a reader, and the call end.
func TestNobodyReads(t *testing.T) {
	_, d, begun := begin(t)
	if err := head(t, d, abi.HTTPReply{Status: 200}); err != nil {
		t.Fatal(err)
	}
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Call(ctx, abi.CallReplyWrite, []byte("x")); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("%v", err)
	}
}
