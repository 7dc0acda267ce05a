// Package crashtest kills a test's own program while it works, to see what it leaves behind.
package crashtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// What a child finds in its environment.
const (
	envWork = "SKEP_TEST_CRASH"
	envDir  = "SKEP_TEST_CRASH_DIR"
	envArg  = "SKEP_TEST_CRASH_ARG"
)

// Work works in dir until it is killed, and prints a line for each thing that was acknowledged. It returns only when it failed.
type Work func(dir, arg string) error

// Main is a TestMain. In a child that Kill has started it does the work of that name, else it runs the tests.
func Main(m *testing.M, works map[string]Work) {
	name, child := os.LookupEnv(envWork)
	if !child {
		os.Exit(m.Run())
	}
	if work := works[name]; work == nil {
		fmt.Fprintf(os.Stderr, "there is no work called %q\n", name)
	} else if err := work(os.Getenv(envDir), os.Getenv(envArg)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

// Kill starts a child that does the work of that name, and kills it when it has printed some lines. Each whole line is passed on,
// without its end, also those that had been printed by then; what was cut short was not acknowledged. A child that ends by itself
// fails the test.
func Kill(t *testing.T, work, dir, arg string, after int, line func(string)) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), envWork+"="+work, envDir+"="+dir, envArg+"="+arg)
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Signal(syscall.SIGKILL)
		_ = child.Wait() // it was killed
	}()
	n := 0
	for lines := bufio.NewReader(stdout); ; {
		text, err := lines.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		line(text[:len(text)-1])
		if n++; n == after {
			if err := child.Process.Signal(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	if n < after {
		t.Fatalf("the child ended by itself, after %d lines", n)
	}
}
