package sandboxtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

func testPrivileges(t *testing.T, s *suite) {
	s.has(t, sandbox.NoPrivileges)
	b := s.start(t, "boot", nil)
	facts := b.ask("look").Facts
	user := fmt.Sprint(sandbox.UserID)
	want := map[string]string{
		"uid": user, "gid": user, "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
	}
	for name, value := range want {
		if slices.Contains(s.o.Lacks, name) {
			t.Logf("not looked at here: %s", name)
			continue
		}
		if facts[name] != value {
			t.Errorf("%s is %q, want %q", name, facts[name], value)
		}
	}
	if groups := strings.Fields(facts["Groups"]); slices.Contains(groups, "0") {
		t.Errorf("it is in the group of root: %v", groups)
	}
	for _, got := range b.ask("gain").List {
		if !slices.Contains(s.o.Lacks, got) {
			t.Errorf("it could %s", got)
		}
	}
	for _, line := range b.ask("processes").List {
		if strings.Contains(line, "SKEP") || strings.Contains(line, "PATH=/root") {
			t.Errorf("it sees processes of the host: %.200s", line)
		}
	}
}

func testFiles(t *testing.T, s *suite) {
	s.has(t, sandbox.ReadOnlyRoot)
	b := s.start(t, "boot", nil)
	got := b.ask("writable").List
	for _, dir := range []string{"/tmp", sandbox.Workspace, sandbox.Home} {
		if !slices.Contains(got, dir) {
			t.Errorf("it cannot write %s; it can %v", dir, got)
		}
		if said := b.must("build", dir+"/program"); said != "out\n" {
			t.Errorf("a program in %s says %q", dir, said)
		}
	}
	for _, dir := range got {
		if !slices.Contains([]string{"/tmp", sandbox.Workspace, sandbox.Home, "/dev/shm", "/dev/mqueue"}, dir) {
			t.Errorf("it can write %s", dir)
		}
	}
	socket := sandbox.SocketDir + "/" + sandbox.Socket
	b.must("stat", socket)
	b.cannot("remove", socket)
	b.cannot("write", sandbox.Driver, "mine")
	b.cannot("remove", sandbox.Driver)
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/proc/kcore/x", "/dev/kmsg", "/dev/sda", "/dev/vda"} {
		b.cannot("stat", path)
	}
	b.must("write", sandbox.Workspace+"/kept", "text")
	if got := b.must("read", sandbox.Workspace+"/kept"); got != "text" {
		t.Errorf("read %q", got)
	}
}

// testNetwork dials what a host listens at: from a box that has a loopback interface alone, so that no packet leaves this machine.
func testNetwork(t *testing.T, s *suite) {
	s.has(t, sandbox.NoNetwork)
	b := s.start(t, "boot", nil)
	if nets := b.ask("look").List; !slices.Equal(nets, []string{"lo"}) {
		t.Fatalf("it has interfaces: %v", nets)
	}
	everywhere, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer everywhere.Close()
	abstract := "@skep-test-" + rand.Text()
	hidden, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer hidden.Close()
	for _, l := range []net.Listener{everywhere, hidden} {
		c, err := net.Dial(l.Addr().Network(), l.Addr().String())
		if err != nil {
			t.Fatalf("not even the host reaches it: %v", err)
		}
		c.Close()
	}
	_, port, _ := net.SplitHostPort(everywhere.Addr().String())
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	b.cannot("dial", "unix", abstract)
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			b.cannot("dial", "tcp", net.JoinHostPort(ip.IP.String(), port))
		}
	}
	for _, to := range []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "172.17.0.1:" + port, "10.0.2.2:" + port, "192.0.2.1:443", "localhost:" + port} {
		b.cannot("dial", "tcp", to)
	}
	for _, to := range []string{"192.0.2.53:53", "169.254.169.254:53", "[2001:db8::1]:53"} {
		b.cannot("dial", "udp", to)
	}
	b.cannot("dial", "tcp", "host.docker.internal:"+port)
	b.cannot("dial", "tcp", "example.com:443")
}

func testPids(t *testing.T, s *suite) {
	s.has(t, sandbox.LimitPids)
	b := s.start(t, "boot", nil)
	if s.o.Whole {
		b.last("run", "bomb")
		s.until(t, b.h, sandbox.Exited)
		return
	}
	got := b.ask("run", "bomb")
	if strings.Contains(got.Text, "no limit") || !strings.Contains(got.Text, "resource temporarily unavailable") && !strings.Contains(got.Text, "errno=11") {
		t.Errorf("a fork bomb was not held: %.400s %s", got.Text, got.Error)
	}
	b.must("stat", "/")
	s.phase(t, b.h, sandbox.Running)
}

func testMemory(t *testing.T, s *suite) {
	s.has(t, sandbox.LimitMemory)
	b := s.start(t, "boot", func(r *sandbox.Request) { r.Size.Memory = 96 << 20 })
	if s.o.Whole {
		b.last("run", "eat")
		s.until(t, b.h, sandbox.Exited)
		return
	}
	if got := b.ask("run", "eat"); !strings.Contains(got.Error, "killed") {
		t.Errorf("a process that wants a gigabyte of 96 MB: %.400s %s", got.Text, got.Error)
	}
	b.must("stat", "/")
}

func testOOM(t *testing.T, s *suite) {
	s.has(t, sandbox.LimitMemory)
	b := s.start(t, "boot", func(r *sandbox.Request) { r.Size.Memory = 96 << 20 })
	b.last("eat")
	if got := s.until(t, b.h, sandbox.Exited); got.Code != 137 || !got.OOM && !slices.Contains(s.o.Lacks, "OOM") {
		t.Errorf("a driver that wants a gigabyte of 96 MB: %+v", got)
	}
}

func testDisk(t *testing.T, s *suite) {
	s.has(t, sandbox.LimitDisk)
	b := s.start(t, "boot", nil)
	total := 0
	for dir, most := range map[string]int64{"/tmp": b.r.Size.Disk / 4, sandbox.Workspace: b.r.Size.Disk / 2, sandbox.Home: b.r.Size.Disk / 4} {
		got := b.ask("fill", dir+"/full")
		n, _ := strconv.Atoi(got.Text)
		if !strings.Contains(got.Error, "no space left") || int64(n) > most || int64(n) < most/2 {
			t.Errorf("%s held %d bytes of %d: %s", dir, n, most, got.Error)
		}
		total += n
	}
	t.Logf("%d bytes of %d", total, b.r.Size.Disk)
}

// testPet has a second generation of a pet find what the first left, and nothing else of it.
func testPet(t *testing.T, s *suite) {
	s.has(t, sandbox.Persistent)
	v := s.p.(sandbox.Volumes)
	name := s.owner + "-pet"
	pet := func(generation int64) func(*sandbox.Request) {
		return func(r *sandbox.Request) { r.Volume, r.Generation = name, generation }
	}
	t.Cleanup(func() {
		if err := v.DeleteVolume(context.Background(), name); err != nil {
			t.Errorf("delete the volume: %v", tell(err))
		}
	})
	b := s.start(t, "boot", pet(1))
	for _, dir := range []string{sandbox.Workspace, sandbox.Home, "/tmp"} {
		b.must("write", dir+"/left", "over")
	}
	kind := agent.AsError(v.DeleteVolume(t.Context(), name))
	if kind == nil || kind.Kind != agent.Conflict {
		t.Errorf("delete a volume that a box has: %v", kind)
	}
	s.remove(t, b.h)
	if got, err := v.ListVolumes(t.Context(), s.owner); err != nil || !slices.Equal(got, []string{name}) {
		t.Errorf("volumes: %v, %v", got, tell(err))
	}
	if got, err := v.ListVolumes(t.Context(), s.owner+"0"); err != nil || len(got) != 0 {
		t.Errorf("volumes of another: %v, %v", got, tell(err))
	}

	b = s.start(t, "boot", pet(2))
	for _, dir := range []string{sandbox.Workspace, sandbox.Home} {
		if got := b.must("read", dir+"/left"); got != "over" {
			t.Errorf("%s: %q", dir, got)
		}
	}
	b.cannot("stat", "/tmp/left")
	if got := b.ask("writable").List; slices.ContainsFunc(got, func(dir string) bool {
		return !slices.Contains([]string{"/tmp", sandbox.Workspace, sandbox.Home, "/dev/shm", "/dev/mqueue"}, dir)
	}) {
		t.Errorf("a pet can write %v", got)
	}
	s.remove(t, b.h)
	for range 2 {
		if err := v.DeleteVolume(t.Context(), name); err != nil {
			t.Errorf("delete the volume: %v", tell(err))
		}
	}
	if got, err := v.ListVolumes(t.Context(), s.owner); err != nil || len(got) != 0 {
		t.Errorf("volumes: %v, %v", got, tell(err))
	}
	b = s.start(t, "boot", pet(3))
	b.cannot("stat", sandbox.Workspace+"/left")
	s.remove(t, b.h)
	if err := v.DeleteVolume(t.Context(), name); err != nil {
		t.Errorf("delete the volume: %v", tell(err))
	}
}
