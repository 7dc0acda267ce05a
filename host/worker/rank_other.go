//go:build !linux

package worker

import (
	"errors"
	"time"
)

func mayRank() bool { return false }

func setRank(int, int) error { return errors.ErrUnsupported }

func processorTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
