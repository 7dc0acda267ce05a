package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/dockertest"
)

// remapped starts an engine of its own whose containers have users of their own (userns-remap), until the test ends, and returns its address. Nothing of the
// machine is changed: the engine has files of subordinate ids that nobody else sees.
func remapped(t *testing.T) string {
	t.Helper()
	dockertest.Host(t) // where there is none, there is no dockerd either, and that is said
	dockerd, err := exec.LookPath("dockerd")
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("needs root and dockerd: user %d, %v", os.Geteuid(), err)
	}
	if most, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(most)) == "0" {
		t.Skipf("needs user namespaces: %q, %v", most, err)
	}
	if _, err := user.Lookup("daemon"); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "skep") // a short path, for the sake of the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"subuid", "subgid"} {
		if _, err := os.Stat("/etc/" + name); err != nil {
			t.Skipf("needs subordinate ids: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("daemon:100000:65536\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte("{}"), 0o644); err != nil { // instead of the machine's
		t.Fatal(err)
	}
	said := &bytes.Buffer{}
	cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount --bind $0/subuid /etc/subuid && mount --bind $0/subgid /etc/subgid && exec "$1" --host unix://$0/s \
		--data-root $0/data --exec-root $0/run --pidfile $0/pid --userns-remap daemon:daemon --bridge none --iptables=false --config-file $0/config`, dir, dockerd)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	host := "unix://" + filepath.Join(dir, "s")
	c := dockertest.Client(t, host)
	for end := time.After(time.Minute); ; {
		if _, err := c.Ping(t.Context(), client.PingOptions{}); err == nil {
			return host
		}
		select {
		case <-ended:
			t.Fatalf("dockerd has ended:\n%s", said)
		case <-end:
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("dockerd does not answer:\n%s", said)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestUserNamespace has a box of an engine with userns-remap: its users are none of the host's, and it reaches its socket all the same.
func TestUserNamespace(t *testing.T) {
	host := remapped(t)
	p := provider(t, "docker", host)
	defer p.Close()
	if got := p.Probe(t.Context()); !got.Ready || got.Isolation != "user-namespace" || !slices.Contains(got.Runtimes, "runc") || sandbox.Admit(got, []string{sandbox.SocketMount}) != nil {
		t.Errorf("probe: %+v", got)
	}
	r := request(t, dockertest.Image(t, host), dockertest.Static(t, boxProgram))
	dir, err := os.MkdirTemp("", "skep")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r.Sockets = dir
	l, err := net.Listen("unix", filepath.Join(dir, sandbox.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for file, mode := range map[string]os.FileMode{dir: 0o755, filepath.Join(dir, sandbox.Socket): 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	h, err := p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Delete(context.Background(), h)
	if err := p.Start(t.Context(), h, strings.NewReader("boot")); err != nil {
		t.Fatal(err)
	}
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute))
	conn, err := l.Accept()
	if err != nil {
		said, _ := p.Log(t.Context(), h, 1<<10)
		t.Fatalf("the box does not dial: %v\n%s", err, said)
	}
	defer conn.Close()
	var hello struct{ Boot string }
	if err := json.NewDecoder(conn).Decode(&hello); err != nil || hello.Boot != "boot" {
		t.Errorf("hello: %+v, %v", hello, err)
	}
	box, err := dockertest.Client(t, host).ContainerInspect(t.Context(), string(h), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	users, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", box.Container.State.Pid))
	if got := strings.Fields(string(users)); err != nil || !slices.Equal(got, []string{"0", "100000", "65536"}) {
		t.Errorf("the box has the users %q (%v)", got, err)
	}
	r.ID, r.Runtime = agent.NewSandboxID(time.Now()), "runsc"
	if _, err := p.Create(t.Context(), r); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), `has no runtime "runsc"; it has`) {
		t.Errorf("a runtime that is not there: %v", err)
	}
}
