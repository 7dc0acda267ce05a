//go:build linux && !race

package nonblock

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// conn is a TCP connection. Its other methods are package net's.
type conn struct {
	*net.TCPConn
	socket  syscall.RawConn
	in, out half
}

// half is one direction. What it has is good while mu is held.
type half struct {
	mu    sync.Mutex
	step  func(fd uintptr) bool // reports whether it is done, or else must wait; made once, as a closure is an allocation
	p     []byte                // what is to be read into, or is left to write
	n     int                   // bytes read
	errno syscall.Errno
}

func of(nc net.Conn) net.Conn {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return nc
	}
	socket, err := t.SyscallConn()
	if err != nil {
		return nc
	}
	c := &conn{TCPConn: t, socket: socket}
	c.in.step, c.out.step = c.in.read, c.out.write
	return c
}

func (h *half) read(fd uintptr) bool {
	for {
		n, errno := call(syscall.SYS_READ, fd, h.p)
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		}
		h.n, h.errno = n, errno
		return true
	}
}

func (h *half) write(fd uintptr) bool {
	for len(h.p) > 0 {
		n, errno := call(syscall.SYS_WRITE, fd, h.p)
		switch errno {
		case 0:
			h.p = h.p[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			h.errno = errno
			return true
		}
	}
	return true
}

func call(number, fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(min(len(p), most)))
	return int(n), errno
}

// most is how many bytes one call takes, so that none is long: nothing else runs on its thread meanwhile.
const most = 256 << 10

// Read is net.Conn's.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	h := &c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	h.p, h.n, h.errno = p, 0, 0
	err := c.socket.Read(h.step)
	h.p = nil
	switch {
	case err != nil:
		return 0, err
	case h.errno != 0:
		return 0, c.failed("read", h.errno)
	case h.n == 0:
		return 0, io.EOF
	}
	return h.n, nil
}

// Write is net.Conn's.
func (c *conn) Write(p []byte) (int, error) {
	h := &c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	h.p, h.errno = p, 0
	err := c.socket.Write(h.step)
	n := len(p) - len(h.p)
	h.p = nil
	if err == nil && h.errno != 0 {
		err = c.failed("write", h.errno)
	}
	return n, err
}

func (c *conn) failed(call string, errno syscall.Errno) error {
	return &net.OpError{Op: call, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(call, errno)}
}
