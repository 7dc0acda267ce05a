//go:build !linux

package inside

import (
	"errors"
	"os"
	"syscall"

	"github.com/skep-dev/skep/driver"
)

// Boxes run Linux. Elsewhere the package is only built, so that what imports it is.

var signals = map[string]syscall.Signal{}

func sendSignal(int, syscall.Signal) error { return errors.ErrUnsupported }

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func awaitExit(int) {}

// Adopt is of Linux.
func Adopt() error { return nil }

func children() map[int]bool { return nil }

func reap(int) {}

func oomKills() int64 { return 0 }

func facts() driver.Facts { return driver.Facts{UID: os.Getuid()} }

func preferToEnd(int) {}
