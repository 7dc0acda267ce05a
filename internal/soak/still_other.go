//go:build !linux

package main

import (
	"errors"
	"time"
)

func beFirst() error { return errors.ErrUnsupported }

func rest(time.Duration) {}
