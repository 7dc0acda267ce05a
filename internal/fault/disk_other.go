//go:build !linux

package main

import (
	"context"
	"errors"
)

var errNotHere = errors.New("this experiment needs Linux")

func power(context.Context, *lab, *tally) error { return errNotHere }
func full(context.Context, *lab, *tally) error  { return errNotHere }
