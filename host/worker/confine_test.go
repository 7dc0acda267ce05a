//go:build linux

package worker

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// What a worker could do if a guest had broken out into it, tried from inside.
func TestConfinement(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	outside := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(outside, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, s := open(t, Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Setenv("SECRET", "x")
	res, err := p.Call(t.Context(), host.Call{Plugin: s.put(script(`export function f() { return 1 }`)), Tenant: "a", Function: "f"})
	if err != nil || string(res.Output.Body) != "1" {
		t.Fatal(res, err)
	}
	for _, what := range []string{
		"read /etc/passwd", "read " + outside, "read /proc/self/environ", "read /proc/self/mem", "write " + outside,
		"write " + filepath.Join(p.opts.Host.CacheDir, "x"), "connect " + ln.Addr().String(), "socket", "exec /bin/true", "fork", "trace", "kill",
	} {
		got, err := p.ask(t.Context(), "a", what)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !strings.Contains(got, "not permitted") && !strings.Contains(got, "permission denied") && !strings.Contains(got, "no such file") {
			t.Errorf("%s: %s", what, got)
		}
	}
	for what, want := range map[string]string{"environment": "0", "threads": "ok", "limit": "1024"} {
		if got, err := p.ask(t.Context(), "a", what); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", what, got, err, want)
		}
	}
	pid, err := p.ask(t.Context(), "a", "pid")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "every thread gives way to the server's", func() bool { return priority(t, n) == politeness })
	threads, err := filepath.Glob("/proc/" + pid + "/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
			if !strings.Contains(string(b), set+":\t0000000000000000\n") {
				t.Errorf("%s: a thread has capabilities: %s", name, b)
			}
		}
	}
	if _, err := p.Call(t.Context(), host.Call{Plugin: "sha256:other", Tenant: "a"}); agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
}

// Where the kernel has no landlock, a worker opens no file at all, and runs what it is given all the same.
func TestWithoutLandlock(t *testing.T) {
	p, s := open(t, Options{noFiles: true})
	if got, err := p.ask(t.Context(), "a", "read /etc/passwd"); err != nil || !strings.HasSuffix(got, "no such file or directory") {
		t.Error(got, err)
	}
	for _, src := range []agent.Source{script(`export function f() { return 1 }`), wasmBody()} {
		if _, err := p.Call(t.Context(), host.Call{Plugin: s.put(src), Tenant: "a", Function: "f"}); err != nil {
			t.Error(err)
		}
	}
}

// A process that prepares may write compiled code until it runs code, and not from then on.
func TestCompiledCodeIsWrittenBeforeCodeRuns(t *testing.T) {
	p, _ := open(t, Options{Host: host.Options{CacheDir: t.TempDir()}})
	c, err := p.launch()
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	l := newLink(c.conn)
	var writer sync.WaitGroup
	writer.Go(l.write)
	probe := func(id uint64, file string) {
		what := "write " + filepath.Join(p.opts.Host.CacheDir, file)
		_ = l.post(frameProbe, id, func(e *encoder) { *e = append(*e, what...) })
	}
	_ = l.post(frameHello, 0, p.hello(rolePrepare))
	probe(1, "before")
	var said []string
	_ = l.read(func(f frame) error {
		if f.kind != frameResult {
			return nil
		}
		res, err := decodeResult(f.body)
		if err != nil {
			return err
		}
		switch f.id {
		case 1:
			said = append(said, string(res.output.Body))
			return l.post(framePrepare, 2, (call{&callMessage{source: wasmBody()}, framePrepare}).encode)
		case 2:
			if res.err != nil {
				return res.err
			}
			probe(3, "after")
		case 3:
			said = append(said, string(res.output.Body))
			return errDone
		}
		return nil
	})
	writer.Wait()
	if len(said) != 2 || said[0] != "ok" || !strings.HasSuffix(said[1], "operation not permitted") {
		t.Errorf("%q: %v", said, l.reason())
	}
}

// parent is a server that will be killed: it prints its worker's process and waits.
func parent(cache string) {
	p, err := New(&Options{Host: host.Options{CacheDir: cache}})
	if err != nil {
		panic(err)
	}
	pid, err := p.ask(context.Background(), "a", "pid")
	if err != nil {
		panic(err)
	}
	fmt.Println(pid)
	select {}
}

func TestWorkersEndWithTheirServer(t *testing.T) {
	cmd := exec.Command(os.Args[0], "parent", cacheDir(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	for {
		b, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("it lives on")
		}
		runtime.Gosched()
	}
}
