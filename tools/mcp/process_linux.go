package mcp

import "syscall"

// ownGroup has the kernel kill the program when Skep dies, however that comes.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
