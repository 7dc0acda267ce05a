// Command crash kills servers. It starts skep serve, has clients call instances, set alarms, send messages and start runs, kills the
// server with SIGKILL at a random moment, starts it again, and after some kills holds what is there against what clients were told.
// docs/design/proofs.md tells more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// settings are the flags.
type settings struct {
	length    time.Duration
	kills     int // in all; 0 means until the time is over
	round     int // kills between two checks
	servers   int // side by side, each with a database and clients of its own
	stores    []string
	isolation []string
	memory    int64 // MiB that a server may use, 0 for no bound
	slowDisk  bool
	storm     int // alarms that are due within a while; then nothing else is done
	within    time.Duration
	flows     bool // runs that wait are among what clients do
	models    bool // clients ask models instead, with one kill in the middle
	code      bool // clients run scripts of code mode instead, and a person answers for their calls
	boxes     bool // clients have a command-line agent work in boxes instead, and those and their drivers are killed too
	seed      uint64
	program   string
	driver    string // of boxes
	dir       string
}

func main() {
	beLedger()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var s settings
	flag.DurationVar(&s.length, "for", time.Minute, "how long at most")
	flag.IntVar(&s.kills, "kills", 0, "how many kills at most; as many as there is time for unless given")
	flag.IntVar(&s.round, "round", 10, "kills between two checks")
	flag.IntVar(&s.servers, "servers", 1, "servers side by side")
	stores := flag.String("store", "badger,pebble", "databases, one round after the other")
	isolation := flag.String("isolation", "inline,process", "where cells run, one round after the other")
	flag.Int64Var(&s.memory, "memory", 0, "`MiB` that a server may use; needs root")
	flag.BoolVar(&s.slowDisk, "slow-disk", false, "have something else write to the disk all the time")
	flag.BoolVar(&s.flows, "flows", true, "have clients start runs with steps and waits, too")
	flag.BoolVar(&s.code, "code", false, "instead: have clients run scripts of code mode, whose calls of tools a person answers for")
	flag.BoolVar(&s.boxes, "boxes", false, "instead: have clients start runs in containers, and kill those and the drivers in them too; needs root and Docker")
	flag.BoolVar(&s.models, "models", false, "instead: have clients ask models, of whom a fifth go away in the middle, with a kill in the middle")
	flag.IntVar(&s.storm, "storm", 0, "instead: so many alarms that are due soon, with a kill in the middle")
	flag.DurationVar(&s.within, "within", time.Minute, "how long it is from the first alarm of the storm to the last")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "of what clients do and when servers die; nothing makes a crash repeat exactly")
	flag.StringVar(&s.program, "program", "", "`FILE` of skep; built unless given")
	flag.Parse()
	s.stores, s.isolation = strings.Split(*stores, ","), strings.Split(*isolation, ",")
	if err := run(ctx, s, os.Stdout); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

var errBroken = errors.New("a promise was broken")

func run(ctx context.Context, s settings, out io.Writer) (err error) {
	if s.dir, err = os.MkdirTemp("", "skep-crash-"); err != nil {
		return err
	}
	defer func() {
		if errors.Is(err, errBroken) {
			fmt.Fprintf(out, "the data is left in %s\n", s.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(s.dir))
	}()
	if s.program == "" {
		if err := s.build(ctx); err != nil {
			return err
		}
	}
	if s.boxes {
		if err := s.buildBox(ctx); err != nil {
			return err
		}
	}
	if s.slowDisk {
		busy, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); hogDisk(busy, filepath.Join(s.dir, "hog")) }()
		defer func() { stop(); <-ended }()
	}
	switch {
	case s.storm > 0:
		return s.storms(ctx, out)
	case s.models:
		return s.modelSoak(ctx, out)
	}
	return s.rounds(ctx, out)
}

// build builds skep.
func (s *settings) build(ctx context.Context) error {
	s.program = filepath.Join(s.dir, "skep")
	build := exec.CommandContext(ctx, "go", "build", "-o", s.program, "github.com/skep-dev/skep/cmd/skep")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build skep: %w: %s", err, said)
	}
	return nil
}

// tally counts outcomes by name.
type tally map[string]int

func (t tally) add(o tally) {
	for k, n := range o {
		if strings.HasPrefix(k, "slowest") {
			t[k] = max(t[k], n)
		} else {
			t[k] += n
		}
	}
}

func (t tally) String() string {
	var out []string
	for k, n := range t {
		out = append(out, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
