package wiretest

import (
	"time"

	"golang.org/x/sys/unix"
)

// spent is the processor time of this thread until now: what else a machine does is not in it.
func spent() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
