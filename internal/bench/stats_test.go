package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // unsorted on purpose
	}
	for _, tt := range []struct {
		name string
		xs   []float64
		p    float64
		want float64
	}{
		{"median of an odd count", []float64{3, 1, 2}, 50, 2},
		{"median of an even count is the lower", []float64{4, 1, 3, 2}, 50, 2},
		{"99 of a hundred", hundred, 99, 99},
		{"all of them", hundred, 100, 100},
		{"none of them is the least", hundred, 0, 1},
		{"99 of one", []float64{7}, 99, 7},
	} {
		if got := percentile(tt.xs, tt.p); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the samples were sorted in place")
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of none: %v", got)
	}
}

func TestGeomean(t *testing.T) {
	if got := geomean([]float64{1, 2, 4}); math.Abs(got-2) > 1e-12 {
		t.Errorf("got %v, want 2", got)
	}
	if got := geomean(nil); !math.IsNaN(got) {
		t.Errorf("of none: %v", got)
	}
}

func TestRatiosPairRounds(t *testing.T) {
	// A machine that is twice as slow in the second round is so for both sides.
	f := compare("P0", "x", Seconds, []float64{1, 2, 1}, []float64{2, 4, 2}, "peer", Target{Bound: 1})
	if f.Ratio != 0.5 || f.Verdict() != Met {
		t.Errorf("ratio %v, %s", f.Ratio, f.Verdict())
	}
	f = compare("P0", "x", Seconds, []float64{1}, nil, "peer", Target{Bound: 1})
	if !math.IsNaN(f.Ratio) || f.Verdict() != NoPeer {
		t.Errorf("without a peer: ratio %v, %s", f.Ratio, f.Verdict())
	}
}
