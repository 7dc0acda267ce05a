//go:build unix

package api

import (
	"context"
	"net"
	"syscall"
	"time"
)

// goneAfter is how long a request is under way before its connection is watched: most are answered sooner.
const goneAfter = 100 * time.Millisecond

// watchGone calls gone when the other side of a connection has closed it, of which fasthttp takes no notice while a handler runs. Nothing is read. It ends
// with stop, after which the connection may be read again.
func watchGone(c net.Conn, gone context.CancelFunc) (stop func()) {
	lc, ok := c.(*conn)
	if !ok {
		return func() {}
	}
	tcp, ok := lc.Conn.(syscall.Conn)
	if !ok {
		return func() {}
	}
	ended := make(chan struct{})
	timer := time.AfterFunc(goneAfter, func() {
		defer close(ended)
		socket, err := tcp.SyscallConn()
		if err != nil {
			return
		}
		var one [1]byte
		_ = socket.Read(func(fd uintptr) bool {
			n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			switch {
			case err == syscall.EAGAIN || err == syscall.EINTR:
				return false // until there is something, or stop
			case n == 0 || err != nil:
				gone()
			}
			return true // the next request is there already
		})
	})
	return func() {
		if timer.Stop() {
			return
		}
		_ = lc.SetReadDeadline(time.Unix(1, 0))
		<-ended
		_ = lc.SetReadDeadline(time.Time{})
	}
}
