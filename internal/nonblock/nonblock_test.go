package nonblock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair returns both ends of a connection, of which ours is what is tested.
func pair(t *testing.T) (ours net.Conn, theirs *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return Of(near), far.(*net.TCPConn)
}

// More than the socket's buffers hold goes both ways at once, whole and in order.
func TestAllArrives(t *testing.T) {
	ours, theirs := pair(t)
	sent := make([]byte, 24<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 7)
	}
	var wg sync.WaitGroup
	for _, c := range [][2]net.Conn{{ours, theirs}, {theirs, ours}} {
		wg.Go(func() {
			if n, err := c[0].Write(sent); n != len(sent) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		})
		wg.Go(func() {
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(c[1], got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("not what was sent: %v", err)
			}
		})
	}
	wg.Wait()
	if n, err := ours.Read(nil); n != 0 || err != nil {
		t.Errorf("read of nothing: %d, %v", n, err)
	}
}

// Each end of a connection shows as package net tells it.
func TestHowItEnds(t *testing.T) {
	one := make([]byte, 1)
	ours, theirs := pair(t)
	_ = theirs.CloseWrite()
	if _, err := ours.Read(one); err != io.EOF {
		t.Errorf("closed: %v", err)
	}

	ours, theirs = pair(t)
	_ = theirs.SetLinger(0)
	_ = theirs.Close()
	_, err := ours.Read(one)
	if op := (*net.OpError)(nil); !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" {
		t.Errorf("reset: %v", err)
	}
	if n, err := ours.Write(one); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after a reset: %d, %v", n, err)
	}

	ours, _ = pair(t)
	_ = ours.SetDeadline(time.Unix(1, 0))
	for what, do := range map[string]func([]byte) (int, error){"read": ours.Read, "write": ours.Write} {
		_, err := do(one)
		if ne := net.Error(nil); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("%s past the deadline: %v", what, err)
		}
	}
	_ = ours.SetDeadline(time.Time{})
	ended := make(chan error)
	go func() { _, err := ours.Read(one); ended <- err }()
	_ = ours.Close() // before the read or within it
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed here: %v", err)
	}

	near, _ := net.Pipe()
	if Of(near) != near {
		t.Error("what is no socket became another")
	}
}
