//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// group puts a program into a process group of its own, all of which is killed when its time is over.
func group(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}

func killGroup(c *exec.Cmd) {
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // nothing is left where it ended well
	}
}
