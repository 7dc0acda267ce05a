package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/skep-dev/skep/store/engine"
)

// flips is how many bits TestFlip changes, times four: -flips 800 makes 200 with each kind of database.
var flips = flag.Int("flips", 40, "a quarter of it is how many bits are flipped with each kind of database")

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	if code, again, err := alone(); again {
		if err != nil {
			fmt.Fprintln(os.Stderr, "fault:", err)
			code = 1
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// experiment makes a brief round with each kind of database, in which no promise may be broken.
func experiment(t *testing.T, round func(context.Context, *lab, *tally) error) {
	for _, k := range []engine.Kind{engine.Badger, engine.Pebble} {
		t.Run(k.String(), func(t *testing.T) {
			l := &lab{engine: k, dir: t.TempDir(), rng: rand.New(rand.NewPCG(1, 2)), logf: t.Logf, brief: true, flips: *flips}
			got := tally{}
			if err := round(t.Context(), l, &got); err != nil {
				t.Fatal(err)
			}
			t.Log(got)
			if got.bad() || len(got) == 0 {
				t.Errorf("a promise was broken: %s", got)
			}
		})
	}
}

func TestKill(t *testing.T) { experiment(t, kill) }
func TestFlip(t *testing.T) { experiment(t, flip) }

// What is cut off a log was acknowledged, so every cut must be noticed.
func TestTorn(t *testing.T) {
	experiment(t, func(ctx context.Context, l *lab, got *tally) error {
		err := torn(ctx, l, got)
		if (*got)["harmless"] > 0 {
			t.Errorf("a cut was not noticed: %s", got)
		}
		return err
	})
}

func TestPower(t *testing.T) { needsRoot(t); experiment(t, power) }
func TestFull(t *testing.T)  { needsRoot(t); experiment(t, full) }

// needsRoot skips the experiments that mount a file system of their own; CI runs them as root.
func needsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: power cuts and full disks need root, to mount a file system: sudo go test ./internal/fault")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Fatal("power cuts and full disks need mkfs.ext4 (package e2fsprogs)")
	}
}
