//go:build linux

package worker

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// The tests' workers are this program again, which tries from inside what a worker must not be able to do.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		if err := serveInherited(context.Background(), probe); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "hostile" {
		misbehave(os.Args[2])
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "parent" {
		parent(os.Args[2])
	}
	os.Exit(withCache(m.Run))
}

// probe tries something and says what came of it.
func probe(what string) string {
	verb, arg, _ := strings.Cut(what, " ")
	var err error
	switch verb {
	case "read":
		_, err = os.ReadFile(arg)
	case "write":
		err = os.WriteFile(arg, []byte("x"), 0o600)
	case "connect":
		var conn net.Conn
		if conn, err = net.Dial("tcp", arg); err == nil {
			conn.Close()
		}
	case "socket":
		_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	case "exec":
		err = syscall.Exec(arg, []string{arg}, nil)
	case "fork":
		_, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		err = errno(e)
	case "trace":
		err = syscall.PtraceAttach(os.Getppid())
	case "kill":
		err = syscall.Kill(os.Getppid(), 0)
	case "environment":
		return fmt.Sprint(len(os.Environ()))
	case "threads": // more work at once than there are threads yet
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() { runtime.LockOSThread(); defer runtime.UnlockOSThread(); runtime.Gosched() })
		}
		all.Wait()
	case "pid":
		return fmt.Sprint(os.Getpid())
	case "limit":
		var r unix.Rlimit
		err = unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
		if err == nil {
			return fmt.Sprint(r.Max)
		}
	default:
		return "what?"
	}
	if err == nil {
		return "ok"
	}
	return err.Error()
}

func errno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// ask has a tenant's worker try something.
func (p *Pool) ask(ctx context.Context, tenant agent.App, what string) (string, error) {
	w, err := p.acquire(ctx, tenant)
	if err != nil {
		return "", err
	}
	defer p.release(w)
	fl := newFlight(&host.Call{})
	id := w.add(fl)
	defer w.remove(id)
	if err := w.link.send(ctx, frameProbe, id, func(e *encoder) { *e = append(*e, what...) }); err != nil {
		return "", err
	}
	select {
	case <-fl.wake:
		res, err := decodeResult(fl.queued()[0].body)
		if err != nil {
			return "", err
		}
		return string(res.output.Body), nil
	case <-w.link.dead:
		return "", w.gone()
	}
}

// shelf is where a test keeps code, by digest.
type shelf struct {
	mu   sync.Mutex
	code map[agent.Digest]agent.Source
}

func (s *shelf) load(_ context.Context, d agent.Digest) (agent.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src, ok := s.code[d]
	if !ok {
		return agent.Source{}, agent.Errorf(agent.NotFound, "no code %s", d)
	}
	return src, nil
}

// put keeps code and names it.
func (s *shelf) put(src agent.Source) agent.Digest {
	d := agent.DigestOf(src.Files[src.Main])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code == nil {
		s.code = map[agent.Digest]agent.Source{}
	}
	s.code[d] = src
	return d
}

func script(text string) agent.Source {
	return agent.Source{Kind: agent.Script, Main: "agent.ts", Files: map[string][]byte{"agent.ts": []byte(text)}}
}

// open returns a pool whose compiled code is shared by all tests.
func open(t testing.TB, o Options) (*Pool, *shelf) {
	t.Helper()
	s := &shelf{}
	o.Host.Load = s.load
	if o.Host.CacheDir == "" {
		o.Host.CacheDir = cacheDir(t)
	}
	p, err := New(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, s
}

const testCache = "SKEP_TEST_CACHE"

// withCache runs the tests with one directory for compiled code.
func withCache(run func() int) int {
	if os.Getenv(testCache) != "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "skep-worker-")
	if err == nil {
		err = os.Setenv(testCache, dir)
	}
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	return run()
}

func cacheDir(testing.TB) string { return os.Getenv(testCache) }
