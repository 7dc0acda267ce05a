//go:build !unix

package mcp

import (
	"os"
	"syscall"
)

// There are no groups of processes here, and no way to ask one to end: what a server has started itself is left to it.

func ownGroup() *syscall.SysProcAttr { return nil }
func terminateGroup(*os.Process)     {}
func killGroup(p *os.Process)        { _ = p.Kill() }
