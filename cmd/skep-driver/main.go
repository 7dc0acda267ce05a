// Command skep-driver is the main process of a sandbox: it reads its boot payload from standard input and is the driver of package inside from then on.
//
//	skep-driver             be the driver
//	skep-driver --version   print the version
//	skep-driver backends    print which command-line agents it knows, as JSON
package main

import (
	"os"

	"github.com/skep-dev/skep/driver/program"
)

// version is the release that this binary is; the linker sets it (-X main.version=...).
var version = "0.1.0-dev"

func main() {
	os.Exit(program.Main(version, program.Backends(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
