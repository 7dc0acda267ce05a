package egress

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"golang.org/x/sys/unix"
)

const inNamespace = "SKEP_TEST_NETWORK_NAMESPACE"

// TestNoPacket dials by the system's dialer, in a network namespace of its own where every IPv4 address is one of this machine
// and a server listens on all of them. Refused addresses cause not one packet; a public one gets through.
func TestNoPacket(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		noPacket(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoPacket$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		if os.Getenv("CI") != "" && os.Geteuid() == 0 {
			t.Fatalf("no network namespace, though this is root: %v", err)
		}
		t.Skipf("no network namespace here: %v", err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "--- PASS: TestNoPacket") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func noPacket(t *testing.T) {
	everyAddress(t)
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int64
	s := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		ConnState: func(_ net.Conn, c http.ConnState) { accepted.Add(map[http.ConnState]int64{http.StateNew: 1}[c]) },
	}
	go func() { _ = s.Serve(l) }()
	defer s.Close()

	e := New(&Options{Limits: Limits{Connect: 5 * time.Second}})
	defer e.Close()
	before, refused := packets(t), 0
	for _, row := range addresses {
		addr := netip.MustParseAddr(row.addr)
		if row.kind == "" || row.kind == "this server" || !addr.Is4() && row.addr != "::1" {
			continue
		}
		host := row.addr
		if addr.Is6() {
			host = "[" + host + "]"
		}
		_, _, err := get(t, e, nil, &Request{URL: "http://" + host + "/"})
		wantError(t, err, agent.Denied, row.kind)
		refused++
	}
	_, _, err = get(t, e, nil, &Request{URL: "http://9.0.0.1/"})
	wantError(t, err, agent.Denied, "an address of this server")
	if n := packets(t) - before; n != 0 || accepted.Load() != 0 || refused < 25 {
		t.Errorf("%d refused addresses caused %d packets and %d connections", refused, n, accepted.Load())
	}

	res, _, err := get(t, e, nil, &Request{URL: "http://" + apiAddr + "/"})
	if err != nil || res.Status != http.StatusNoContent || accepted.Load() != 1 || packets(t) == before {
		t.Errorf("a public address: %+v, %v; %d connections, %d packets", res, err, accepted.Load(), packets(t)-before)
	}
	allowed := New(&Options{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	defer allowed.Close()
	if _, _, err = get(t, allowed, nil, &Request{URL: "http://10.1.2.3/"}); err != nil || accepted.Load() != 2 {
		t.Errorf("an allowed address: %v", err)
	}
}

// everyAddress starts the loopback device, with all IPv4 addresses on it: it takes a whole block for its own.
func everyAddress(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	set := func(name string, request uint, fill func(*unix.Ifreq)) {
		r, err := unix.NewIfreq(name)
		if err != nil {
			t.Fatal(err)
		}
		fill(r)
		if err := unix.IoctlIfreq(fd, request, r); err != nil {
			t.Fatalf("ioctl %#x on %s: %v", request, name, err)
		}
	}
	up := func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP) }
	set("lo", unix.SIOCSIFFLAGS, up)
	for i, prefix := range []string{"9.0.0.1/5", "17.0.0.1/4", "33.0.0.1/3", "65.0.0.1/2", "129.0.0.1/1"} { // but for 0.0.0.0/5
		ip, block, err := net.ParseCIDR(prefix)
		must(t, err)
		name := "lo:" + strconv.Itoa(i+1)
		set(name, unix.SIOCSIFADDR, func(r *unix.Ifreq) { must(t, r.SetInet4Addr(ip.To4())) })
		set(name, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) { must(t, r.SetInet4Addr(block.Mask)) })
	}
}

var loLine = regexp.MustCompile(`(?m)^\s*lo:\s*\d+\s+(\d+)`)

// packets is how many the loopback device has received (proc_net(5)).
func packets(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/net/dev")
	must(t, err)
	m := loLine.FindSubmatch(b)
	if m == nil {
		t.Fatalf("no loopback device in %s", b)
	}
	n, err := strconv.Atoi(string(m[1]))
	must(t, err)
	return n
}
