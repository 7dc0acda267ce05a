//go:build !linux

package backendtest

import (
	"errors"
	"net"
	"syscall"
)

type island struct{}

func newIsland() (*island, error)                   { return nil, errors.New("only Linux has network namespaces") }
func (*island) run(f func())                        { f() }
func (*island) listen(string) (net.Listener, error) { return nil, errors.ErrUnsupported }
func (*island) close()                              {}

func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
