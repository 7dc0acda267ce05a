package worker

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// mayRank tells whether this process may raise what it has lowered, its own politeness included: by a capability, or by its limit
// (setpriority(2), getrlimit(2): RLIMIT_NICE 20 stands for priority 0).
func mayRank() bool {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NICE, &l) == nil && l.Cur >= 20-politeness {
		return true
	}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]) != nil {
		return false
	}
	return sets[0].Effective&(1<<unix.CAP_SYS_NICE) != 0
}

// setRank gives a worker's process a priority, with all its threads: they are its process group.
func setRank(pid, nice int) error {
	if err := unix.Setpriority(unix.PRIO_PGRP, pid, nice); err != nil {
		return fmt.Errorf("set the priority of a worker process: %w", err)
	}
	return nil
}

// processorTime returns what a process has used. The clock's number is made of the process's (clock_getcpuclockid(3)).
func processorTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: user and system time
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
