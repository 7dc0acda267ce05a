package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is what a soak came to. Failures is empty when all was as wanted.
type Report struct {
	Seconds  float64           `json:"seconds"`
	Quiet    float64           `json:"quiet_seconds"`
	Process  bool              `json:"worker_processes"`
	Work     []Latency         `json:"work"`
	Attacks  map[string]Attack `json:"attacks"`
	Kills    int               `json:"workers_killed"`
	Failed   int               `json:"calls_failed_with_their_worker"`
	Memory   Memory            `json:"memory"`
	Before   holdings          `json:"held_before"`
	After    holdings          `json:"held_after"`
	Errors   []string          `json:"errors"`
	Failures []string          `json:"failures"`
}

// Attack is how often one was made, and how short calls of others fared beside it, in seconds.
type Attack struct {
	Times int     `json:"times"`
	P50   float64 `json:"others_p50"`
	P99   float64 `json:"others_p99"`
}

// Latency is how long one kind of work took, in seconds.
type Latency struct {
	Name        string  `json:"name"`
	Quiet       int     `json:"quiet"` // how often
	Loaded      int     `json:"loaded"`
	QuietP50    float64 `json:"quiet_p50"`
	LoadedP50   float64 `json:"loaded_p50"`
	QuietP99    float64 `json:"quiet_p99"`
	LoadedP99   float64 `json:"loaded_p99"`
	LongestLoad float64 `json:"loaded_longest"`
}

// Memory is resident memory in bytes. Slope is what it grew by in an hour, by regression over the second half.
type Memory struct {
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	First float64 `json:"first"` // mean of the first fifth of the second half
	Last  float64 `json:"last"`  // and of the last
	Slope float64 `json:"slope_per_hour"`
}

const (
	within   = 2.0             // how much slower the slowest percent may be than in quiet
	enough   = 200             // pieces of work of a kind in quiet, for its slowest percent to mean something
	mayGrow  = 16 << 20        // bytes, from the first fifth of the second half to the last
	mayGrowX = 1.15            // the same as a ratio; what is larger
	settled  = 5 * time.Minute // of load, after which memory should not grow
	slack    = 8               // goroutines and files that may come and go
)

func (r *record) report(s settings, attacks map[string]int, before, after holdings) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Report{
		Seconds: s.length.Seconds(), Quiet: s.quiet.Seconds(), Process: s.apart, Attacks: map[string]Attack{}, Failed: r.failed, Memory: memoryOf(r.memory),
		Before: before, After: after, Errors: r.errors,
	}
	for name, times := range attacks {
		beside := slices.Sorted(slices.Values(r.beside[name]))
		out.Attacks[name] = Attack{times, percentile(beside, 50), percentile(beside, 99)}
	}
	for _, times := range r.kills {
		out.Kills += len(times)
	}
	fail := func(format string, args ...any) { out.Failures = append(out.Failures, fmt.Sprintf(format, args...)) }
	all := op{name: "all"}
	for _, op := range append(slices.Clone(ops), all) {
		l := latencyOf(op.name, r.times(quiet, op.name), r.times(loaded, op.name))
		out.Work = append(out.Work, l)
		if l.Loaded == 0 {
			fail("%s: nothing was done", l.Name)
		}
		if s.times && l.Quiet >= enough && l.LoadedP99 > within*l.QuietP99 {
			fail("%s: the slowest percent took %s, in quiet %s", l.Name, seconds(l.LoadedP99), seconds(l.QuietP99))
		}
	}
	if len(r.errors) > 0 {
		fail("%d or more pieces of work failed, the first at %s", len(r.errors), r.errors[0])
	}
	if m := out.Memory; s.length >= settled && m.Last-m.First > max(mayGrow, (mayGrowX-1)*m.First) {
		fail("memory grew from %.0f MB to %.0f MB", m.First/1e6, m.Last/1e6)
	}
	if after.Goroutines > before.Goroutines+slack || after.Files > before.Files+slack {
		fail("%d goroutines and %d files stay, of %d and %d before", after.Goroutines, after.Files, before.Goroutines, before.Files)
	}
	return out
}

// times returns how long one kind of work took, or all of them but push.
func (r *record) times(p phase, name string) (all []float64) {
	if name != "all" {
		return slices.Sorted(slices.Values(r.took[p][name]))
	}
	for name, took := range r.took[p] {
		if name != "push" {
			all = append(all, took...)
		}
	}
	slices.Sort(all)
	return all
}

func latencyOf(name string, calm, busy []float64) Latency {
	return Latency{
		Name: name, Quiet: len(calm), Loaded: len(busy), QuietP50: percentile(calm, 50), LoadedP50: percentile(busy, 50),
		QuietP99: percentile(calm, 99), LoadedP99: percentile(busy, 99), LongestLoad: percentile(busy, 100),
	}
}

// percentile returns the smallest of sorted numbers that p percent do not exceed, or 0 of none.
func percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	return xs[max(0, int(math.Ceil(p/100*float64(len(xs))))-1)]
}

func memoryOf(all []sample) (m Memory) {
	if len(all) == 0 {
		return m
	}
	m.Least = math.Inf(1)
	for _, s := range all {
		m.Least, m.Most = min(m.Least, s.bytes), max(m.Most, s.bytes)
	}
	half := all[len(all)/2:]
	fifth := max(1, len(half)/5)
	m.First, m.Last = mean(half[:fifth]), mean(half[len(half)-fifth:])
	m.Slope = slope(half) * time.Hour.Seconds()
	return m
}

func mean(all []sample) (sum float64) {
	for _, s := range all {
		sum += s.bytes
	}
	return sum / float64(len(all))
}

// slope is that of the line through the samples, by least squares.
func slope(all []sample) float64 {
	at := 0.0
	for _, s := range all {
		at += s.at
	}
	at /= float64(len(all))
	height, up, across := mean(all), 0.0, 0.0
	for _, s := range all {
		up += (s.at - at) * (s.bytes - height)
		across += (s.at - at) * (s.at - at)
	}
	if across == 0 {
		return 0
	}
	return up / across
}

func seconds(x float64) string {
	return time.Duration(x * float64(time.Second)).Round(time.Microsecond).String()
}

func (r Report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "work\tin quiet\tbeside\tp50 in quiet\tp50 beside\tp99 in quiet\tp99 beside\tratio\tlongest")
	for _, l := range r.Work {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%.2f\t%s\n", l.Name, l.Quiet, l.Loaded, seconds(l.QuietP50), seconds(l.LoadedP50),
			seconds(l.QuietP99), seconds(l.LoadedP99), l.LoadedP99/l.QuietP99, seconds(l.LongestLoad))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	m := r.Memory
	_, err := fmt.Fprintf(w, "memory %.0f to %.0f MB; in the second half from %.0f to %.0f MB, %+.1f MB an hour\n", m.Least/1e6, m.Most/1e6, m.First/1e6, m.Last/1e6, m.Slope/1e6)
	for _, name := range slices.Sorted(maps.Keys(r.Attacks)) {
		a := r.Attacks[name]
		_, _ = fmt.Fprintf(w, "attack %s: %d times; others' short calls beside it p50 %s, p99 %s\n", name, a.Times, seconds(a.P50), seconds(a.P99))
	}
	_, _ = fmt.Fprintf(w, "%d workers killed, %d calls failed with them; goroutines %d -> %d, files %d -> %d\n",
		r.Kills, r.Failed, r.Before.Goroutines, r.After.Goroutines, r.Before.Files, r.After.Files)
	for _, e := range r.Errors {
		_, _ = fmt.Fprintln(w, "error:", e)
	}
	for _, f := range r.Failures {
		_, _ = fmt.Fprintln(w, "NOT AS WANTED:", f)
	}
	return err
}
