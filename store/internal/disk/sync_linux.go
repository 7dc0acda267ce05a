package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncsMaps says that SyncData makes durable also what was written through a memory map of the file.
const SyncsMaps = true

// SyncData makes the bytes of a file durable.
func SyncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
