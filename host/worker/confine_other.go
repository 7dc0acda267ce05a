//go:build !linux

package worker

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
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

func peakMemory(*os.ProcessState) int64        { return 0 }
func writeRaw(_ syscall.RawConn, _ []byte) int { return 0 }

type confiner struct{}

func (*confiner) start(hello) ([]string, error) { return nil, errNotHere }
func (*confiner) run() error                    { return errNotHere }
