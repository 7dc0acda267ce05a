//go:build !linux

package wiretest

import "time"

var start = time.Now()

// spent is the time until now.
func spent() time.Duration { return time.Since(start) }
