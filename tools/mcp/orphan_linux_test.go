package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/mcp"
)

// parent is a process that has a server and says which one.
func parent() {
	self, _ := os.Executable()
	rec := agent.ToolServer{App: "default", Name: "it", Kind: agent.MCPStdio, Command: []string{self}, Env: map[string]string{"HOSTILE": "stays"}}
	s, err := mcp.Open(context.Background(), rec, &mcp.Options{Dir: os.Getenv("ORPHAN")}, nil)
	if err != nil {
		panic(err)
	}
	res, err := s.Call(context.Background(), "pid", nil, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(res.Value))
	select {}
}

// TestNoOrphan: a server does not outlive a Skep that was killed, whatever it does at the end of its input.
func TestNoOrphan(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "ORPHAN="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, bad := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the server is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid) })
}
