// Command fault does to a store what disks, kernels and people do, for as long as it is told, and counts what that cost. Its
// tests do the same briefly.
//
//	go run ./internal/fault --engine badger --kind kill --for 5m
//
// The kinds: kill ends a writing process with SIGKILL again and again; power stops a loop-mounted ext4 without flushing it, as
// a power cut does; full fills such a disk up, slowly and at once, and makes room again; flip changes one bit somewhere in a
// closed data directory; torn cuts bytes off the end of the newest log; speed measures commits. power and full need root.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/store/engine"
)

// lab is where the experiments with one kind of database are made.
type lab struct {
	engine engine.Kind
	dir    string // empty, on a real disk
	rng    *rand.Rand
	logf   func(format string, args ...any)
	brief  bool // rounds are a quarter as long
	flips  int  // bits that one round of flip changes, each in a copy of its own
}

func (l *lab) times(n int) int {
	if l.brief {
		return max(1, n/4)
	}
	return n
}

// kinds are the experiments. Each makes one round and adds what came of it to the tally.
var kinds = map[string]func(context.Context, *lab, *tally) error{
	"kill": kill, "power": power, "full": full, "flip": flip, "torn": torn, "speed": speed,
}

func main() {
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fault", flag.ExitOnError)
	engines := flags.String("engine", "badger,pebble", "kinds of database")
	names := flags.String("kind", "kill,power,full,flip,torn,speed", "kinds of fault")
	long := flags.Duration("for", time.Minute, "how long, for each engine and each kind of fault")
	rounds := flags.Int("rounds", 0, "so many rounds of each, however long they take; power cuts come four to a round")
	base := flags.String("dir", "", "where to work; a temporary directory unless given")
	flips := flags.Int("flips", 30, "bits that one round of flip changes, each in a fresh copy of the directory")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choices")
	if err := flags.Parse(args); err != nil {
		return err
	}
	fmt.Println("seed", *seed)
	bad := false
	for _, name := range strings.Split(*names, ",") {
		round, ok := kinds[name]
		if !ok {
			return fmt.Errorf("there is no kind of fault %q", name)
		}
		for _, e := range strings.Split(*engines, ",") {
			var k engine.Kind
			if err := k.UnmarshalText([]byte(e)); err != nil {
				return err
			}
			dir, err := os.MkdirTemp(*base, "skep-fault-")
			if err != nil {
				return err
			}
			l := &lab{engine: k, dir: dir, flips: *flips, rng: rand.New(rand.NewPCG(*seed, 1)), logf: func(format string, args ...any) {
				fmt.Printf("  "+format+"\n", args...)
			}}
			t := tally{}
			began := time.Now()
			for n := 0; ctx.Err() == nil && err == nil && (n < *rounds || *rounds == 0 && time.Since(began) < *long); n++ {
				err = round(ctx, l, &t)
			}
			os.RemoveAll(dir)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s, %s: %w", name, e, err)
			}
			fmt.Printf("%-5s %-6s %s in %s\n", name, e, t, time.Since(began).Round(time.Second))
			bad = bad || t.bad()
		}
	}
	if bad {
		return fmt.Errorf("a promise was broken")
	}
	return nil
}

// tally counts outcomes by name.
type tally map[string]int

// broken are the outcomes that a store must not have.
var broken = []string{lost, wrong, unsound, undetected, died}

const (
	lost       = "acknowledged and lost in silence"
	wrong      = "wrong values"
	unsound    = "unsound stores"
	undetected = "damage that Verify missed"
	died       = "processes that died"
)

func (t tally) bad() bool {
	return slices.ContainsFunc(broken, func(what string) bool { return t[what] > 0 })
}

func (t tally) String() string {
	names := []string{}
	for name := range t {
		if !slices.Contains(broken, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []string
	for _, name := range append(names, broken...) {
		out = append(out, fmt.Sprintf("%s %d", name, t[name]))
	}
	return strings.Join(out, ", ")
}
