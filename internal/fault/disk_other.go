//go:build !linux

package main

import (
	"context"
	"errors"
)

var errNotHere = errors.New("this experiment needs Linux")

func alone() (code int, again bool, err error) { return 0, false, nil }

func power(context.Context, *lab, *tally) error { return errNotHere }
func full(context.Context, *lab, *tally) error  { return errNotHere }
