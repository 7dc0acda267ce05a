//go:build !linux

package inside

import (
	"os"
	"syscall"

	"github.com/skep-dev/skep/driver"
)

// Boxes run Linux. Elsewhere the package is only built, so that what imports it is.

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitExit(int) {}

// Adopt is of Linux.
func Adopt() error { return nil }

func children() map[int]bool { return nil }

func reap(int) {}

func oomKills() int64 { return 0 }

func facts() driver.Facts { return driver.Facts{UID: os.Getuid()} }
