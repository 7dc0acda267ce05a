//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// part makes the figures of one id.
type part struct {
	id  string
	run func(context.Context, *bench) ([]Figure, error)
}

var parts = []part{
	{"P1", newText}, {"P2", storedImage}, {"P3", freshCell}, {"P4", liveMemory}, {"P5", sleeping}, {"P6", waking}, {"P7", stopping}, {"P8", metering},
	{"P9", hostCalls}, {"P10", durableCalls}, {"P11", listening}, {"P12", codeMode}, {"P13", declared}, {"P14", models}, {"P15", modelStreams}, {"P16", boxes}, {"P17", outbound}, {"P18", starting}, {"P19", sizes},
	{"T1", fiftyFiles}, {"T2", toolRates}, {"U1", writing}, {"U2", checking}, {"U3", scrubbing},
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == proxyVerb {
		fmt.Fprintln(os.Stderr, "bench:", serveProxy(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	only := flag.String("only", "", "ids of the figures to make, such as P1,P7; all unless given")
	quick := flag.Bool("quick", false, "fewer rounds: to see that it works, not for figures to cite")
	runs := flag.Int("runs", 1, "how often to make all of them, to see whether verdicts agree: the table has medians")
	file := flag.String("json", "", "`FILE` to write the figures to as JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *quick, *runs, *file, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, quick bool, runs int, file string, out, progress io.Writer) (err error) {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if runs < 1 {
		return fmt.Errorf("--runs %d: at least one is made", runs)
	}
	began, before := time.Now(), loadAverage()
	made := make([][]Figure, runs)
	for i := range made {
		if runs > 1 {
			fmt.Fprintf(progress, "run %d of %d\n", i+1, runs)
		}
		if made[i], err = once(ctx, chosen, quick, progress); err != nil {
			made = made[:i+1] // what was made before is worth knowing
			break
		}
	}
	figures := agreed(made)
	if err := errors.Join(err, writeTable(out, figures)); err != nil {
		return err
	}
	at := conditionsNow(quick, began, before)
	fmt.Fprintf(out, "\n%s\n", at)
	if file == "" {
		return nil
	}
	report, err := json.MarshalIndent(struct {
		Conditions conditions `json:"conditions"`
		Figures    []Figure   `json:"figures"`
	}{at, figures}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(report, '\n'), 0o644)
}

// once makes the figures of some parts.
func once(ctx context.Context, chosen []part, quick bool, progress io.Writer) (figures []Figure, err error) {
	b, err := newBench(ctx, quick, progress)
	if err != nil {
		return nil, err
	}
	defer b.close()
	for _, p := range chosen {
		fmt.Fprintf(progress, "%s...\n", p.id)
		start := time.Now()
		fs, err := p.run(ctx, b)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", p.id, err)
		}
		fmt.Fprintf(progress, "%s took %.1f s\n", p.id, time.Since(start).Seconds())
		figures = append(figures, fs...)
	}
	return figures, nil
}

func choose(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	var chosen []part
	for id := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return strings.EqualFold(p.id, strings.TrimSpace(id)) })
		if i < 0 {
			return nil, fmt.Errorf("--only %s: no such figure", id)
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}
