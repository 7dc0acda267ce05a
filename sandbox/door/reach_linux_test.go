package door

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/dockertest"
)

// probePlan and probeResult are those of testdata/probe.
type probePlan struct {
	Socket                             string
	TCP, UDP, ICMP, Unix, Names, Proxy []string
	VSock                              []uint32
}

type probeResult struct {
	Reached, Interfaces, Sockets []string
	Routes, UID                  int
	Statuses                     map[string]int
	Bodies                       map[string]string
}

// TestNothingElse puts a program into a box, as providers harden it, and has it try to reach what is on this machine and what machines in clouds have: by TCP,
// UDP, ICMP, Unix sockets, vsock, names, and by the door, where everything is granted. It has a loopback interface and the door, so what it sends goes nowhere.
// The same program outside of a box reaches the services of this machine, which shows that it would tell.
func TestNothingElse(t *testing.T) {
	host := dockertest.Host(t)
	probe := dockertest.Static(t, "./testdata/probe")
	p, err := docker.New(&docker.Options{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w := newReach(t)
	plan := w.plan()

	t.Logf("%d Unix sockets, vsock %v", len(plan.Unix), plan.VSock)
	outside := w.outside(probe, plan)
	for _, must := range []string{"tcp 127.0.0.1:" + w.port, "udp 127.0.0.1:" + w.port, "unix @" + w.abstract} {
		if !slices.Contains(outside.Reached, must) {
			t.Errorf("outside of a box the probe does not reach %s, but %q", must, outside.Reached)
		}
	}
	w.accepted.Store(0)

	res := w.inside(p, dockertest.Image(t, host), probe, plan)
	if len(res.Reached) > 0 {
		t.Errorf("reached from the box: %q", res.Reached)
	}
	if n := w.accepted.Load(); n > 0 {
		t.Errorf("services of this machine had %d visits", n)
	}
	if !slices.Equal(res.Interfaces, []string{"lo"}) || res.Routes != 0 || !slices.Equal(res.Sockets, []string{sandbox.Socket}) || res.UID != sandbox.UserID {
		t.Errorf("the box has interfaces %q, %d routes, sockets %q, user %d", res.Interfaces, res.Routes, res.Sockets, res.UID)
	}
	if len(res.Statuses) != 2*len(plan.Proxy) {
		t.Errorf("the door was asked %d times, not %d", len(res.Statuses), 2*len(plan.Proxy))
	}
	for ask, status := range res.Statuses {
		get := strings.HasPrefix(ask, "GET")
		if get && status != 403 || !get && status != 200 && status != 403 { // what is in a tunnel is judged there: see TestAddresses
			t.Errorf("%s: %d %s", ask, status, res.Bodies[ask])
		}
	}
	if dialled := w.dials(); len(dialled) > 0 {
		t.Errorf("the door dialled %q", dialled)
	}
}

// reach is this machine, with a service on each of its addresses.
type reach struct {
	*testing.T
	port     string
	abstract string // name of a Unix socket
	vport    uint32
	accepted atomic.Int64
	results  chan probeResult
	dir      string // of the box's socket

	mu      sync.Mutex
	dialled []string
}

func newReach(t *testing.T) *reach {
	w := &reach{T: t, results: make(chan probeResult, 1), abstract: fmt.Sprintf("skep-test-%d", os.Getpid())}
	tcp, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_, w.port, _ = net.SplitHostPort(tcp.Addr().String())
	udp, err := net.ListenPacket("udp", ":"+w.port)
	if err != nil {
		t.Fatal(err)
	}
	name, err := net.Listen("unix", "@"+w.abstract)
	if err != nil {
		t.Fatal(err)
	}
	w.listenVSock()
	var all sync.WaitGroup
	for _, l := range []net.Listener{tcp, name} {
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				w.accepted.Add(1)
				_ = c.Close()
			}
		})
	}
	all.Go(func() {
		for {
			_, from, err := udp.ReadFrom(make([]byte, 16))
			if err != nil {
				return
			}
			w.accepted.Add(1)
			_, _ = udp.WriteTo([]byte("here"), from)
		}
	})
	t.Cleanup(func() {
		_, _, _ = tcp.Close(), name.Close(), udp.Close()
		all.Wait()
	})
	w.serveDoor()
	return w
}

// listenVSock listens where machines speak to each other past the network, if this one can.
func (w *reach) listenVSock() {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	w.Cleanup(func() { _ = unix.Close(fd) })
	if unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: unix.VMADDR_PORT_ANY}) != nil || unix.Listen(fd, 1) != nil {
		return
	}
	if at, err := unix.Getsockname(fd); err == nil {
		w.vport = at.(*unix.SockaddrVM).Port
	}
}

// serveDoor serves a door to a box that is granted everything, and has names that resolve to this machine. It looks up no name and dials no address that is
// not of this machine.
func (w *reach) serveDoor() {
	var err error
	if w.dir, err = os.MkdirTemp("", "skepg"); err != nil {
		w.Fatal(err)
	}
	if err := os.Chmod(w.dir, 0o755); err != nil {
		w.Fatal(err)
	}
	inner := newWorld(w.T, everything)
	inner.out = egress.New(&egress.Options{
		Resolver: inner,
		Dial: func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.dialled = append(w.dialled, to.String())
			return nil, net.ErrClosed
		},
	})
	for i, a := range w.addresses() {
		inner.names[fmt.Sprintf("n%d.example.com", i)] = []string{a}
	}
	l, err := net.Listen("unix", filepath.Join(w.dir, sandbox.Socket))
	if err != nil {
		w.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(w.dir, sandbox.Socket), 0o666); err != nil {
		w.Fatal(err)
	}
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/probe" || r.URL.Host != "" {
			inner.door.ServeHTTP(rw, r)
			return
		}
		var res probeResult
		if err := json.NewDecoder(r.Body).Decode(&res); err != nil {
			w.Error(err)
		}
		w.results <- res
	})}
	var all sync.WaitGroup
	all.Go(func() { _ = s.Serve(l) })
	w.Cleanup(func() {
		_ = s.Close()
		all.Wait()
		_ = os.RemoveAll(w.dir)
	})
}

func (w *reach) dials() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialled)
}

// addresses are those of this machine, on every interface, and of what answers machines in clouds.
func (w *reach) addresses() []string {
	list := []string{"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "0.0.0.0", "::"}
	own, err := net.InterfaceAddrs()
	if err != nil {
		w.Fatal(err)
	}
	for _, a := range own {
		host, _, _ := strings.Cut(a.String(), "/")
		if addr, err := netip.ParseAddr(host); err == nil && !addr.IsLinkLocalUnicast() {
			list = append(list, addr.String())
		}
	}
	return list
}

func (w *reach) plan() probePlan {
	p := probePlan{Names: []string{"localhost.localdomain.example.com", "host.docker.internal", "gateway.docker.internal", "metadata.google.internal", "example.com"}}
	for i, a := range w.addresses() {
		for _, port := range []string{w.port, "53", "80", "2375"} {
			at := net.JoinHostPort(a, port)
			p.TCP, p.Proxy = append(p.TCP, at), append(p.Proxy, at)
			if port == w.port || port == "53" {
				p.UDP = append(p.UDP, at)
			}
		}
		p.ICMP = append(p.ICMP, a)
		p.Proxy = append(p.Proxy, fmt.Sprintf("n%d.example.com:%s", i, w.port))
	}
	p.TCP = append(p.TCP, "127.0.0.11:53") // Docker's name server in a box that has a network
	p.UDP = append(p.UDP, "9.9.9.9:53")
	p.Unix = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/systemd/private", "/run/dbus/system_bus_socket"}
	known, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.SplitSeq(string(known), "\n") {
		if _, name, ok := strings.Cut(line, " @"); ok { // names without a place in the file system
			p.Unix = append(p.Unix, "@"+name)
		}
	}
	if w.vport != 0 {
		p.VSock = []uint32{w.vport}
	}
	return p
}

// outside runs the probe on this machine. It does not try names and addresses that are not of this machine: what it sends would leave it.
func (w *reach) outside(probe string, plan probePlan) probeResult {
	w.Helper()
	loopback := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s != "127.0.0.1:"+w.port })
	}
	plan.TCP, plan.UDP, plan.ICMP, plan.Names, plan.Proxy = loopback(plan.TCP), loopback(plan.UDP), nil, nil, nil
	plan.Unix = []string{"@" + w.abstract}
	plan.Socket = filepath.Join(w.dir, sandbox.Socket)
	cmd := exec.Command(probe)
	in, err := json.Marshal(plan)
	if err != nil {
		w.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("the probe: %v\n%s", err, out)
	}
	return <-w.results
}

// inside runs the probe as the main process of a box.
func (w *reach) inside(p *docker.Provider, image, probe string, plan probePlan) probeResult {
	w.Helper()
	plan.Socket = sandbox.SocketDir + "/" + sandbox.Socket
	in, err := json.Marshal(plan)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
	defer cancel()
	h, err := p.Create(ctx, &sandbox.Request{
		Owner: "skep-test-g", ID: agent.NewSandboxID(time.Now()), Generation: 1, Image: image, Sockets: w.dir, Driver: probe,
		Size: agent.SandboxSize{Memory: 256 << 20, CPUs: 2, Pids: 64, Disk: 64 << 20},
	})
	if err != nil {
		w.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Delete(ctx, h); err != nil {
			w.Error(err)
		}
	}()
	if err := p.Start(ctx, h, bytes.NewReader(append(in, '\n'))); err != nil {
		w.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case res := <-w.results:
			return res
		case <-tick.C:
			st, err := p.Inspect(ctx, h)
			if err == nil && st.Phase == sandbox.Exited && len(w.results) == 0 {
				said, _ := p.Log(ctx, h, 4<<10)
				w.Fatalf("the probe ended with %d: %s", st.Code, said)
			}
		case <-ctx.Done():
			said, _ := p.Log(context.WithoutCancel(ctx), h, 4<<10)
			w.Fatalf("the probe says nothing: %s", said)
		}
	}
}
