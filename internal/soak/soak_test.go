package main

import (
	"bufio"
	"context"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/host/worker"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerVerb {
		if worker.Main(context.Background()) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == stillVerb {
		_ = tellStill(os.Stdout)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A few seconds of it: nobody's work fails, and nothing stays behind. How long it takes says nothing here.
func TestSample(t *testing.T) {
	for name, s := range map[string]settings{
		"inline":                  {length: 4 * time.Second, quiet: time.Second},
		"workers that are killed": {length: 6 * time.Second, quiet: time.Second, apart: true, kill: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := run(t.Context(), s, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Failures {
				t.Error(f)
			}
			if known, want := r.Still != nil, mayBeFirst(t); known != want {
				t.Errorf("whether the machine stood still is known: %v, want %v", known, want)
			}
		})
	}
}

// mayBeFirst tells whether a process of ours may come before others.
func mayBeFirst(t *testing.T) bool {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], stillVerb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	stop()
	_ = cmd.Wait()
	return err == nil && line == "begun\n"
}

func TestStood(t *testing.T) {
	var all [phases]Still
	all[quiet].add(0.25)
	all[loaded].add(0.5)
	all[loaded].add(0.003)
	r := Report{Seconds: 110, Quiet: 10, Still: &all}
	want := "the machine stood still: in quiet 2.50 % of the time, 250ms at the longest; beside 0.50 % of the time, 500ms at the longest"
	if got := r.stood(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Report{}).stood(); !strings.Contains(got, "not known") {
		t.Error(got)
	}
}

func TestFiguresOfMemory(t *testing.T) {
	var all []sample
	for n := range 100 {
		all = append(all, sample{float64(n), 1e6 + 10*float64(n)})
	}
	m := memoryOf(all)
	if m.Least != 1e6 || m.Most != 1e6+990 || math.Abs(m.Slope-36_000) > 1e-6 || math.Abs(m.Last-m.First-400) > 1e-6 {
		t.Errorf("%+v", m)
	}
	if p := percentile([]float64{1, 2, 3, 4}, 50); p != 2 {
		t.Error(p)
	}
	if p := percentile(nil, 99); p != 0 {
		t.Error(p)
	}
}
