// Command probe tries to reach what it is told to, and says what it reached. It is what runs in the box of TestNothingElse, and for comparison outside of one.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Plan is read from standard input.
type Plan struct {
	Socket string   // of the door, where the result is posted
	TCP    []string // addresses with ports
	UDP    []string
	ICMP   []string // addresses
	Unix   []string // paths, or names with @
	VSock  []uint32 // ports, of all context ids that mean this machine
	Names  []string
	Proxy  []string // what to ask the door for, by a whole URL and by CONNECT
}

// Result is what came of it.
type Result struct {
	Reached    []string
	Interfaces []string
	Routes     int
	Sockets    []string       // in the folder of the door's
	Statuses   map[string]int // of Proxy
	Bodies     map[string]string
	UID        int
}

var (
	mu  sync.Mutex
	res = Result{Statuses: map[string]int{}, Bodies: map[string]string{}}
)

func reached(format string, args ...any) {
	mu.Lock()
	defer mu.Unlock()
	res.Reached = append(res.Reached, fmt.Sprintf(format, args...))
}

func main() {
	var p Plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		fail(err)
	}
	var all sync.WaitGroup
	each(&all, p.TCP, func(to string) { dial("tcp", to) })
	each(&all, p.UDP, datagram)
	each(&all, p.ICMP, ping)
	each(&all, p.Unix, func(to string) { dial("unix", to) })
	each(&all, p.Names, lookup)
	for _, port := range p.VSock {
		for _, cid := range []uint32{unix.VMADDR_CID_HYPERVISOR, unix.VMADDR_CID_LOCAL, unix.VMADDR_CID_HOST} {
			all.Go(func() { vsock(cid, port) })
		}
	}
	all.Wait()
	sockets()
	facts(p.Socket)
	for _, to := range p.Proxy {
		proxy(p.Socket, "GET", "http://"+to+"/")
		proxy(p.Socket, "CONNECT", to)
	}
	post(p.Socket)
}

func each(all *sync.WaitGroup, list []string, f func(string)) {
	for _, to := range list {
		all.Go(func() { f(to) })
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "probe:", err)
	os.Exit(1)
}

const within = 2 * time.Second

func dial(network, to string) {
	if c, err := net.DialTimeout(network, to, within); err == nil {
		_ = c.Close()
		reached("%s %s", network, to)
	}
}

// datagram counts what the kernel takes: with a way, it does whoever listens. Loopback, which everything has, counts when it answers.
func datagram(to string) {
	c, err := net.DialTimeout("udp", to, within)
	if err != nil {
		return
	}
	defer c.Close()
	if _, err := c.Write([]byte("probe")); err != nil {
		return
	}
	if host, _, _ := net.SplitHostPort(to); own(host) {
		_ = c.SetReadDeadline(time.Now().Add(within))
		if _, err := c.Read(make([]byte, 16)); err != nil {
			return
		}
	}
	reached("udp %s", to)
}

func own(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsLoopback() || ip.IsUnspecified()
}

func ping(to string) {
	ip := net.ParseIP(to).To4()
	if ip == nil || own(to) {
		return
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 1, 0, 1}, 0, &unix.SockaddrInet4{Addr: [4]byte(ip)}) == nil {
		reached("icmp %s", to)
	}
}

func lookup(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if a, err := net.DefaultResolver.LookupHost(ctx, name); err == nil {
		reached("name %s is %v", name, a)
	}
}

func vsock(cid, port uint32) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2})
	if unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: port}) == nil {
		reached("vsock %d:%d", cid, port)
	}
}

// sockets tries what would get around the network, by its kind.
func sockets() {
	for name, s := range map[string][3]int{
		"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, "raw 6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_TCP}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0},
	} {
		if fd, err := unix.Socket(s[0], s[1], s[2]); err == nil {
			_ = unix.Close(fd)
			reached("a %s socket", name)
		}
	}
	for _, pid := range []string{"1", "self"} {
		f, err := os.Open("/proc/" + pid + "/ns/net")
		if err != nil {
			continue
		}
		if unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) == nil {
			reached("another network namespace")
		}
		_ = f.Close()
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0); errno == 0 {
		reached("a user namespace")
	}
}

func facts(socket string) {
	res.UID = os.Getuid()
	ifs, err := net.Interfaces()
	if err != nil {
		fail(err)
	}
	for _, i := range ifs {
		res.Interfaces = append(res.Interfaces, i.Name)
	}
	if b, err := os.ReadFile("/proc/net/route"); err == nil {
		res.Routes = bytes.Count(b, []byte("\n")) - 1
	}
	dir := filepath.Dir(socket)
	list, err := os.ReadDir(dir)
	if err != nil {
		fail(err)
	}
	for _, e := range list {
		res.Sockets = append(res.Sockets, e.Name())
	}
	if os.WriteFile(filepath.Join(dir, "probe"), nil, 0o600) == nil {
		reached("the folder of the socket can be written")
		_ = os.Remove(filepath.Join(dir, "probe"))
	}
	if os.Chmod(socket, 0o600) == nil {
		reached("the socket can be changed")
		_ = os.Chmod(socket, 0o666)
	}
}

// proxy asks the door, and keeps what it answers.
func proxy(socket, method, target string) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		fail(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, target)
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		fail(fmt.Errorf("%s %s: %w", method, target, err))
	}
	res.Statuses[method+" "+target] = r.StatusCode
	if r.StatusCode == http.StatusOK { // a tunnel has no body
		return
	}
	b := make([]byte, 300)
	n, _ := r.Body.Read(b)
	res.Bodies[method+" "+target] = string(b[:n])
}

func post(socket string) {
	b, err := json.Marshal(res)
	if err != nil {
		fail(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := client.Post("http://box/probe", "application/json", strings.NewReader(string(b)))
	if err != nil {
		fail(err)
	}
	_ = r.Body.Close()
}
