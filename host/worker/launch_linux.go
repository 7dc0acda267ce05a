package worker

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is a process that was started, and its connection.
type child struct {
	cmd    *exec.Cmd
	conn   net.Conn
	stderr *complaints
}

// launch starts this program as a worker. It has nothing of ours but one end of a socket pair.
func (p *Pool) launch() (*child, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close() // the connection has a descriptor of its own
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	c := &child{conn: conn, stderr: &complaints{log: p.log}}
	c.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{os.Args[0]}, p.opts.Args...), Env: []string{}, Dir: "/",
		Stderr: c.stderr, ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if err := p.starts.start(c.cmd); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// end kills the process, if it still runs, and reaps it.
func (c *child) end() *os.ProcessState {
	_ = c.conn.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	return c.cmd.ProcessState
}

// peakMemory is the most memory, in bytes, that a process which has ended had resident.
func peakMemory(state *os.ProcessState) int64 {
	if used, ok := state.SysUsage().(*syscall.Rusage); ok {
		return used.Maxrss << 10
	}
	return 0
}

// writeRaw writes what a connection takes without waiting, and returns how much that was. An error is left for who writes the rest.
func writeRaw(raw syscall.RawConn, b []byte) (n int) {
	_ = raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), b)
		return true
	})
	return max(n, 0)
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pool"), os.NewFile(uintptr(fds[1]), "worker"), nil
}

// inherited returns the connection that launch has left for this process.
func inherited() (net.Conn, error) {
	f := os.NewFile(3, "worker")
	defer f.Close()
	return net.FileConn(f)
}

// starter starts processes from one thread that lives as long as they may: the kernel takes the end of the thread that
// started a process for its parent's death.
type starter struct {
	once   sync.Once
	ending sync.Once
	reqs   chan startRequest
	done   sync.WaitGroup
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

func (s *starter) start(cmd *exec.Cmd) error {
	s.once.Do(func() {
		s.reqs = make(chan startRequest)
		s.done.Go(func() {
			runtime.LockOSThread()
			for r := range s.reqs {
				r.err <- r.cmd.Start()
			}
		})
	})
	r := startRequest{cmd, make(chan error, 1)}
	s.reqs <- r
	return <-r.err
}

// close ends the thread, once all processes have ended.
func (s *starter) close() {
	s.once.Do(func() {})
	s.ending.Do(func() {
		if s.reqs != nil {
			close(s.reqs)
		}
	})
	s.done.Wait()
}
