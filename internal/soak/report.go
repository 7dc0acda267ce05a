package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
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
	Still    *[phases]Still    `json:"machine_stood_still"` // in quiet and beside; nil when it could not be seen
	Before   holdings          `json:"held_before"`
	After    holdings          `json:"held_after"`
	Errors   []string          `json:"errors"`
	Promises []Promise         `json:"promises"`
	Failures []string          `json:"failures"`
}

// Attack is how often one was made, and how the work of others fared beside it, by kind and over all.
type Attack struct {
	Times  int                `json:"times"`
	Others map[string]Percent `json:"others"`
}

// Percent is how long work took, in seconds.
type Percent struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
}

// Promise is one thing that was to be, and whether it was.
type Promise struct {
	Name    string  `json:"name"`
	Verdict verdict `json:"verdict"`
	Found   string  `json:"found"`
}

type verdict string

const (
	holds    verdict = "holds"
	broken   verdict = "DOES NOT HOLD"
	unjudged verdict = "not judged"
)

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
		out.Attacks[name] = Attack{times, percents(r.beside[name])}
	}
	if r.stillKnown {
		still := r.still
		out.Still = &still
	}
	for _, times := range r.kills {
		out.Kills += len(times)
	}
	for _, op := range kindsOfWork() {
		out.Work = append(out.Work, latencyOf(op, timesOf(r.took[quiet], op), timesOf(r.took[loaded], op)))
	}
	out.judge(s)
	return out
}

// judge says of each promise whether it was kept.
func (r *Report) judge(s settings) {
	judge := func(name string, v verdict, format string, args ...any) {
		p := Promise{name, v, fmt.Sprintf(format, args...)}
		r.Promises = append(r.Promises, p)
		if v == broken {
			r.Failures = append(r.Failures, p.Name+": "+p.Found)
		}
	}
	if n := len(r.Errors); n > 0 {
		judge("no error of others", broken, "%d or more, the first at %s", n, r.Errors[0])
	} else {
		judge("no error of others", holds, "%d calls failed with a worker that was killed", r.Failed)
	}
	for _, l := range r.Work {
		name, found := "p99 of "+l.Name, fmt.Sprintf("%s, in quiet %s: %.2fx", seconds(l.LoadedP99), seconds(l.QuietP99), l.ratio())
		switch {
		case l.Loaded == 0:
			judge(name, broken, "nothing was done")
		case !s.times:
			judge(name, unjudged, "%s", found)
		case l.Quiet < enough:
			judge(name, unjudged, "%s; %d in quiet are too few", found, l.Quiet)
		case l.ratio() > within:
			judge(name, broken, "%s", found)
		default:
			judge(name, holds, "%s", found)
		}
	}
	m := r.Memory
	switch found := fmt.Sprintf("from %.0f MB to %.0f MB in the second half", m.First/1e6, m.Last/1e6); {
	case s.length < settled:
		judge("memory is flat", unjudged, "%s; less than %s is too short", found, settled)
	case m.Last-m.First > max(mayGrow, (mayGrowX-1)*m.First):
		judge("memory is flat", broken, "%s", found)
	default:
		judge("memory is flat", holds, "%s", found)
	}
	held := holds
	if r.After.Goroutines > r.Before.Goroutines+slack || r.After.Files > r.Before.Files+slack {
		held = broken
	}
	judge("nothing stays behind", held, "%d goroutines and %d files, of %d and %d before", r.After.Goroutines, r.After.Files, r.Before.Goroutines, r.Before.Files)
}

// all is all kinds of work together but push.
const all = "all"

func kindsOfWork() (names []string) {
	for _, op := range ops {
		names = append(names, op.name)
	}
	return append(names, all)
}

func percents(took map[string][]float64) map[string]Percent {
	out := map[string]Percent{}
	for _, name := range kindsOfWork() {
		xs := timesOf(took, name)
		out[name] = Percent{len(xs), percentile(xs, 50), percentile(xs, 99)}
	}
	return out
}

// timesOf returns how long one kind of work took, or all, in order.
func timesOf(took map[string][]float64, name string) (xs []float64) {
	if name != all {
		return slices.Sorted(slices.Values(took[name]))
	}
	for name, more := range took {
		if name != "push" {
			xs = append(xs, more...)
		}
	}
	slices.Sort(xs)
	return xs
}

func latencyOf(name string, calm, busy []float64) Latency {
	return Latency{
		Name: name, Quiet: len(calm), Loaded: len(busy), QuietP50: percentile(calm, 50), LoadedP50: percentile(busy, 50),
		QuietP99: percentile(calm, 99), LoadedP99: percentile(busy, 99), LongestLoad: percentile(busy, 100),
	}
}

// ratio is the slowest percent beside the hostile app to that in quiet.
func (l Latency) ratio() float64 {
	if l.QuietP99 == 0 {
		return 0
	}
	return l.LoadedP99 / l.QuietP99
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
			seconds(l.QuietP99), seconds(l.LoadedP99), l.ratio(), seconds(l.LongestLoad))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	m := r.Memory
	_, err := fmt.Fprintf(w, "memory %.0f to %.0f MB; in the second half from %.0f to %.0f MB, %+.1f MB an hour\n", m.Least/1e6, m.Most/1e6, m.First/1e6, m.Last/1e6, m.Slope/1e6)
	_, _ = fmt.Fprintln(w, r.stood())
	_, _ = fmt.Fprintln(t, "\np99 of others beside\ttimes\t"+strings.Join(kindsOfWork(), "\t"))
	for _, name := range slices.Sorted(maps.Keys(r.Attacks)) {
		_, _ = fmt.Fprintf(t, "%s\t%d", name, r.Attacks[name].Times)
		for _, kind := range kindsOfWork() {
			_, _ = fmt.Fprintf(t, "\t%s", seconds(r.Attacks[name].Others[kind].P99))
		}
		_, _ = fmt.Fprintln(t)
	}
	err = errors.Join(err, t.Flush())
	_, _ = fmt.Fprintf(w, "\n%d workers killed\n", r.Kills)
	for _, e := range r.Errors {
		_, _ = fmt.Fprintln(w, "error:", e)
	}
	for _, p := range r.Promises {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", p.Verdict, p.Name, p.Found)
	}
	err = errors.Join(err, t.Flush())
	if len(r.Failures) > 0 {
		_, _ = fmt.Fprintf(w, "%d of %d promises do not hold\n", len(r.Failures), len(r.Promises))
	}
	return err
}
