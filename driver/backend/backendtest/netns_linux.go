package backendtest

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// island is a network namespace that has a loopback interface and nothing else. It is that of one thread, which lives as long as the island does: what it
// starts is born there, and a socket that it makes is there, whoever uses it.
type island struct {
	do   chan func()
	done chan struct{}
}

// newIsland needs the right to make namespaces, which root has.
func newIsland() (*island, error) {
	n := &island{do: make(chan func()), done: make(chan struct{})}
	made := make(chan error)
	go func() {
		defer close(n.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		if err != nil {
			err = os.NewSyscallError("unshare", err)
		} else {
			err = loopbackUp()
		}
		made <- err
		if err != nil {
			return
		}
		for f := range n.do {
			f()
		}
	}()
	return n, <-made
}

// run calls f on the island.
func (n *island) run(f func()) {
	back := make(chan struct{})
	n.do <- func() { f(); close(back) }
	<-back
}

func (n *island) listen(addr string) (ln net.Listener, err error) {
	n.run(func() { ln, err = net.Listen("tcp", addr) })
	return ln, err
}

func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func (n *island) close() {
	close(n.do)
	<-n.done
}

// loopbackUp is "ip link set lo up": see netdevice(7).
func loopbackUp() error {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = syscall.Close(s) }()
	r := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{name: [16]byte{'l', 'o'}, flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(s), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&r))); e != 0 {
		return fmt.Errorf("bring up lo: %w", e)
	}
	return nil
}
