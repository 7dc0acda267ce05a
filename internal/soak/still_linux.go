package main

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// beFirst has this process come before all that have no fixed priority (sched(7), SCHED_FIFO). It must be the only goroutine that runs.
func beFirst() error {
	runtime.LockOSThread()
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0); err != nil {
		return fmt.Errorf("come before other processes: %w", err)
	}
	return nil
}

// rest sleeps in the kernel, without Go's scheduler.
func rest(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
