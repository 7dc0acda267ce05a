package inside

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// relay copies what comes to a TCP address of the box's loopback to the socket, and back: programs know how to reach the one and not the other.
type relay struct {
	listener net.Listener
	socket   string
}

const maxRelayed = 1024 // connections at once

func listenRelay(addr, socket string) (*relay, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "the relay of the box cannot listen at " + addr, Err: err}
	}
	return &relay{listener: l, socket: socket}, nil
}

func (r *relay) addr() string { return r.listener.Addr().String() }

// run relays until ctx has ended, and then returns when all connections are closed.
func (r *relay) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = r.listener.Close() })
	defer stop()
	slots := make(chan struct{}, maxRelayed)
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free: those that are open have to end first
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case slots <- struct{}{}:
			wg.Go(func() {
				r.serve(ctx, conn)
				<-slots
			})
		case <-ctx.Done():
			_ = conn.Close()
			return
		}
	}
}

func (r *relay) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	var d net.Dialer
	up, err := d.DialContext(ctx, "unix", r.socket)
	if err != nil {
		return
	}
	defer up.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = conn.Close(), up.Close() })
	defer stop()
	both(conn, up)
}

// half is a connection of which one direction can end before the other.
type half interface {
	io.ReadWriter
	CloseWrite() error
}

// both copies both ways until both have ended. A way that fails ends the other, since nobody would hear of it otherwise.
func both(a, b io.ReadWriteCloser) {
	var wg sync.WaitGroup
	pass := func(to, from io.ReadWriteCloser) {
		_, err := io.Copy(to, from)
		if h, ok := to.(half); err == nil && ok && h.CloseWrite() == nil {
			return
		}
		_, _ = to.Close(), from.Close()
	}
	wg.Go(func() { pass(a, b) })
	pass(b, a)
	wg.Wait()
}
