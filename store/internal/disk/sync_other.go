//go:build !linux

package disk

import "os"

// SyncsMaps says that SyncData makes durable also what was written through a memory map of the file.
const SyncsMaps = false

// SyncData makes the bytes of a file durable.
func SyncData(f *os.File) error { return f.Sync() }
