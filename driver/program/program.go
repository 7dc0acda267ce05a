// Package program is the driver as a program: cmd/skep-driver is nothing else, and cmd/skep is it, too, where it is the main process of a box.
package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/inside"
)

const (
	bootWithin = 24 * time.Hour // a box of a pool waits for who will have it; its input ends with the server that has it
	bootMost   = 1 << 20        // bytes of the payload
)

// Main is the program: version is its own, args are without its name. It returns the exit code.
func Main(version string, backends []backend.Backend, args []string, in *os.File, out, errOut io.Writer) int {
	err := run(version, backends, args, in, out, errOut)
	if err == nil {
		return 0
	}
	e := agent.AsError(err)
	fmt.Fprintln(errOut, "skep-driver:", e)
	if e.Hint != "" {
		fmt.Fprintln(errOut, "hint:", e.Hint)
	}
	return 1
}

func run(version string, backends []backend.Backend, args []string, in *os.File, out, errOut io.Writer) error {
	switch {
	case len(args) == 0:
		return drive(version, backends, in, errOut)
	case len(args) == 1 && (args[0] == "--version" || args[0] == "version"):
		_, err := fmt.Fprintf(out, "skep-driver %s, protocol %d\n", version, driver.Version)
		return err
	case len(args) == 1 && args[0] == "backends":
		return printBackends(backends, out)
	}
	return agent.Errorf(agent.Invalid, "usage: skep-driver [--version | backends]; without arguments it reads a boot payload from standard input")
}

func printBackends(backends []backend.Backend, out io.Writer) error {
	specs := []backend.Spec{}
	for _, b := range backends {
		specs = append(specs, b.Spec())
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(specs)
}

func drive(version string, backends []backend.Backend, in *os.File, errOut io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGPIPE)
	log := slog.New(slog.NewJSONHandler(errOut, nil))
	if err := inside.Adopt(); err != nil {
		log.Warn("the driver cannot adopt what its programs leave behind", "error", err)
	}
	boot, err := readBoot(ctx, in)
	if err != nil {
		return err
	}
	_ = in.Close()
	log.Info("begins", "version", version, "sandbox", boot.Sandbox, "generation", boot.Generation, "trace", boot.TraceID)
	return inside.Run(ctx, &inside.Options{Boot: *boot, Version: version, Backends: backends, Log: log, Reap: true})
}

// readBoot reads the one line that the driver is given.
func readBoot(ctx context.Context, in io.Reader) (*driver.Boot, error) {
	type result struct {
		boot *driver.Boot
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the process at the latest
		line, err := bufio.NewReaderSize(io.LimitReader(in, bootMost), 64<<10).ReadBytes('\n')
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			done <- result{err: agent.Wrap(agent.Invalid, err, "there is no boot payload on standard input")}
			return
		}
		boot := &driver.Boot{}
		if json.Unmarshal(line, boot) != nil { // its error could show the token
			done <- result{err: agent.Errorf(agent.Invalid, "the boot payload is no JSON")}
			return
		}
		done <- result{boot: boot}
	}()
	select {
	case r := <-done:
		return r.boot, r.err
	case <-time.After(bootWithin):
		return nil, agent.Errorf(agent.Unavailable, "no boot payload came within %s", bootWithin)
	case <-ctx.Done():
		return nil, agent.Errorf(agent.Cancelled, "ended before a boot payload came")
	}
}
