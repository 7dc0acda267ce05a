package wiretest

import (
	"math"
	"runtime"
	"testing"
)

// Linear checks that what costs some time for one thing costs n times that for n, and not with the square of n. f makes what is measured, of n things.
func Linear(t *testing.T, f func(n int) func()) {
	t.Helper()
	const few, many, most = 2000, 50000, 4
	one := func(n, times int) float64 { // nanoseconds for one of n
		run, least := f(n), math.Inf(1)
		for range times {
			start := spent()
			run()
			least = min(least, float64(spent()-start)/float64(n))
		}
		return least
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var a, b float64
	for range 4 { // a busy machine may spoil a measurement
		if a, b = one(few, 5), one(many, 1); b < most*a {
			return
		}
	}
	t.Errorf("%.0f ns for one of %d, and %.0f ns for one of %d", a, few, b, many)
}
