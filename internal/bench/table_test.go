package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnits(t *testing.T) {
	for _, tt := range []struct {
		unit Unit
		x    float64
		want string
	}{
		{Seconds, 75e-9, "75.0 ns"}, {Seconds, 26.5e-6, "26.5 µs"}, {Seconds, 0.0051, "5.10 ms"}, {Seconds, 141, "141 s"},
		{Seconds, 0.9996e-3, "1.00 ms"}, {Seconds, 0, "0.00 ns"},
		{Bytes, 76_000, "76.0 kB"}, {Bytes, 1_580_000, "1.58 MB"}, {Bytes, 5e9, "5000 MB"},
		{PerSecond, 4810, "4810/s"}, {Times, 1.2, "1.20x"}, {Times, math.NaN(), "-"},
	} {
		if got := tt.unit.format(tt.x); got != tt.want {
			t.Errorf("%v %s: got %q, want %q", tt.x, tt.unit, got, tt.want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	figure := func(ours, ratio float64, target Target) Figure {
		return Figure{Ours: ours, Ratio: ratio, Target: target}
	}
	for _, tt := range []struct {
		name string
		f    Figure
		want Verdict
	}{
		{"no target", figure(1, 2, Target{}), Guide},
		{"at the bound", figure(1, 1.2, Target{Bound: 1.2}), Met},
		{"above", figure(1, 1.21, Target{Bound: 1.2}), NotMet},
		{"at least", figure(1, 2, Target{Bound: 2, AtLeast: true}), Met},
		{"less than at least", figure(1, 1.9, Target{Bound: 2, AtLeast: true}), NotMet},
		{"a value, whatever the ratio", figure(0.04, 9, Target{Bound: 0.05, Value: true}), Met},
		{"a value without a peer", figure(0.06, math.NaN(), Target{Bound: 0.05, Value: true}), NotMet},
		{"no ratio", figure(1, math.NaN(), Target{Bound: 1}), NoPeer},
	} {
		if got := tt.f.Verdict(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func sample() []Figure {
	first := compare("P1", "new text", Seconds, []float64{0.002}, []float64{0.005}, "workerd", Target{Bound: 1})
	first.Note = "under load"
	return []Figure{
		first,
		compare("P2", "rate", PerSecond, []float64{5000}, nil, "workerd", Target{Bound: 1, AtLeast: true}),
		alone("P4", "memory", Bytes, 200_000, Target{Bound: 150_000, Value: true}),
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := writeTable(&b, sample()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.TrimRight(line, " \n"))
	}
	want := []string{
		"id  figure    ours     peer or limit    ratio  target     verdict",
		"P1  new text  2.00 ms  5.00 ms workerd  0.40x  <= 1.00x   met",
		"P2  rate      5000/s   - workerd        -      >= 1.00x   peer not here",
		"P4  memory    200 kB   -                -      <= 150 kB  not met",
		"P1 new text: under load",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{
			"id": "P1", "figure": "new text", "unit": "s", "ours": 0.002, "peer": "workerd", "theirs": 0.005, "ratio": 0.4,
			"target": map[string]any{"bound": 1.0}, "verdict": "met", "note": "under load",
		},
		{
			"id": "P2", "figure": "rate", "unit": "per second", "ours": 5000.0, "peer": "workerd",
			"target": map[string]any{"bound": 1.0, "at_least": true}, "verdict": "peer not here",
		},
		{
			"id": "P4", "figure": "memory", "unit": "bytes", "ours": 200_000.0,
			"target": map[string]any{"bound": 150_000.0, "value": true}, "verdict": "not met",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Of several runs the table has medians, and says where verdicts differ.
func TestAgreed(t *testing.T) {
	run := func(newText, rate float64) []Figure {
		return []Figure{
			compare("P1", "new text", Seconds, []float64{newText}, []float64{2}, "workerd", Target{Bound: 1}),
			compare("P2", "rate", PerSecond, []float64{rate}, []float64{2}, "workerd", Target{Bound: 1, AtLeast: true}),
			alone("P4", "memory", Bytes, 7, Target{}),
		}
	}
	got := agreed([][]Figure{run(1, 1), run(3, 1.5), run(1.5, 1)[:2]})
	var rows []string
	for _, f := range got {
		rows = append(rows, strings.Join(f.cells(), "; "))
	}
	want := []string{
		"P1; new text; 1.50 s; 2.00 s workerd; 0.75x; <= 1.00x; met in 2 of 3",
		"P2; rate; 1.00/s; 2.00/s workerd; 0.50x; >= 1.00x; not met",
		"P4; memory; 7.00 B; -; -; -; guide",
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}
