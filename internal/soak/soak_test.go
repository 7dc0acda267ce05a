package main

import (
	"context"
	"math"
	"os"
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
		})
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
