//go:build !linux

package main

func dropProgram() error { return nil }
