//go:build !unix

package badgerkv

import "math"

// freeBytes does not know here.
func freeBytes(string) (int64, error) { return math.MaxInt64, nil }
