package main

import (
	"debug/elf"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver/program"
	"github.com/skep-dev/skep/sandbox"
)

// isDriver reports whether this process is the main process of a sandbox: then the program was mounted there as the driver.
func isDriver() bool { return os.Args[0] == sandbox.Driver }

// beDriver is the driver of a sandbox until its end. It returns the exit code.
func beDriver(args []string) int {
	return program.Main(version, program.Backends(), args, os.Stdin, os.Stdout, os.Stderr)
}

// newDriver is for who wants to see what the driver is. A sandbox starts it by its path.
func newDriver() *cobra.Command {
	return &cobra.Command{
		Use:    "driver [backends]",
		Short:  "Be the driver of a sandbox, which a server has started; or print which command-line agents it knows",
		Hidden: true,
		Args:   cobra.MaximumNArgs(1),
		Run:    func(_ *cobra.Command, args []string) { os.Exit(beDriver(args)) },
	}
}

// driverFile finds the driver: the file that was named, skep-driver beside this program or in ../lib/skep, or this program itself.
func driverFile(named string) (string, error) {
	if named != "" {
		file, err := filepath.Abs(named)
		if err == nil {
			err = checkDriver(file)
		}
		return file, err
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", agent.Wrap(agent.Invalid, err, "where this program is cannot be told, so it cannot be the driver of sandboxes")
	}
	for _, file := range []string{filepath.Join(filepath.Dir(self), "skep-driver"), filepath.Join(filepath.Dir(self), "..", "lib", "skep", "skep-driver")} {
		if exists(file) {
			return file, checkDriver(file)
		}
	}
	return self, checkDriver(self)
}

// checkDriver makes sure that a program runs in a box whatever is in its image: it is for Linux, and needs neither an interpreter nor libraries.
func checkDriver(file string) error {
	bad := func(why string, err error) error {
		return &agent.Error{
			Kind: agent.Invalid, Msg: file + " cannot be the driver of sandboxes: it " + why, Err: err,
			Hint: "build it with CGO_ENABLED=0 GOOS=linux go build ./cmd/skep-driver and put it beside skep, or name it: skep serve --sandbox-driver FILE",
		}
	}
	st, err := os.Stat(file)
	if err != nil {
		return bad("is not there", err)
	}
	if st.IsDir() || st.Mode().Perm()&0o005 != 0o005 {
		return bad("may not be read and run by everybody, and the user of a sandbox may be anybody", nil)
	}
	f, err := elf.Open(file)
	if err != nil {
		return bad("is no program for Linux", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return bad("is not static: it needs libraries that an image may not have", nil)
		}
	}
	if want := machines[goruntime.GOARCH]; f.Machine != want && goruntime.GOOS == "linux" {
		return bad("is for another kind of processor", nil)
	}
	return nil
}

// machines are the kinds of processors, by Go's names.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "loong64": elf.EM_LOONGARCH, "386": elf.EM_386, "arm": elf.EM_ARM,
}
