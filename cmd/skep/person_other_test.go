//go:build !linux

package main

func person() { panic("a terminal for scripts is made on Linux alone") }
