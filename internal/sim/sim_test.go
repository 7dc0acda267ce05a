package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Uint64("seeds", 300, "how many seeds are run, from the first on")
	first = flag.Uint64("first", 1, "the first seed")
	seed  = flag.Uint64("seed", 0, "run this one alone, and tell all that happens")
)

func TestSeeds(t *testing.T) {
	if *seed != 0 {
		runSeed(t, *seed, true)
		return
	}
	workers := uint64(runtime.GOMAXPROCS(0))
	for w := range workers {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			t.Parallel()
			total := tally{}
			for s := *first + w; s < *first+*seeds && !t.Failed(); s += workers {
				total.add(runSeed(t, s, false))
			}
			t.Logf("%v", total)
			if *seeds >= 100 {
				total.complete(t)
			}
		})
	}
}

// runSeed runs one world to its end and checks it.
func runSeed(t *testing.T, seed uint64, tell bool) (done tally) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		w.run()
		w.check()
		if len(w.wrong) > 0 || tell {
			for _, line := range w.trace {
				t.Log(line)
			}
		}
		for _, what := range w.wrong {
			t.Errorf("seed %d: %s", seed, what)
		}
		if len(w.wrong) > 0 {
			t.Errorf("reproduce with: make sim SEED=%d", seed)
		}
		done = w.tally
	})
	return done
}

// tally counts what happened, so that a simulation in which nothing goes wrong is seen to be one.
type tally map[string]int

func (t tally) add(o tally) {
	for k, n := range o {
		t[k] += n
	}
}

// complete fails the test unless all that is to be simulated was.
func (t tally) complete(tt *testing.T) {
	for _, what := range []string{
		"crash", "zombie", "stop", "clock jump", "fault", "unknown, made", "unknown, not made", "unknown, made late", "acknowledged", "refused",
		"perhaps", "fenced", "alarm", "repeated alarm", "message", "thrown", "child", "child deleted", "died inside a commit",
	} {
		if t[what] == 0 {
			tt.Errorf("of %q there was none in %d seeds: %v", what, *seeds, t)
		}
	}
}

// draw is a random source of its own for each thing that draws, so that none disturbs another.
func draw(seed uint64, of string) *rand.Rand {
	h := uint64(14695981039346656037)
	for i := range len(of) {
		h = (h ^ uint64(of[i])) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

func pass(d time.Duration) { <-time.NewTimer(d).C }
