//go:build !linux

package worker

import (
	"errors"
	"net"
	"os"
	"os/exec"
)

const confinable = false

var errNotHere = errors.New("worker processes need Linux")

type child struct {
	cmd    *exec.Cmd
	conn   net.Conn
	stderr *complaints
}

type starter struct{}

func (*starter) close()               {}
func (*Pool) launch() (*child, error) { return nil, errNotHere }
func (*child) pid() int               { return 0 }
func (*child) end() *os.ProcessState  { return nil }
func inherited() (net.Conn, error)    { return nil, errNotHere }

type confiner struct{}

func (*confiner) start(hello) ([]string, error) { return nil, errNotHere }
func (*confiner) run() error                    { return errNotHere }
