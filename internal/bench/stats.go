package main

import (
	"math"
	"slices"
)

// percentile returns the smallest of xs that at least p percent of them do not exceed, or NaN of none.
func percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	at := int(math.Ceil(p/100*float64(len(s)))) - 1
	return s[min(max(at, 0), len(s)-1)]
}

func median(xs []float64) float64 { return percentile(xs, 50) }

// minimum returns the least of xs, or NaN of none.
func minimum(xs []float64) float64 { return percentile(xs, 0) }

// geomean returns the geometric mean, or NaN of none.
func geomean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(xs)))
}

// ratios divides pairwise: what was measured in the same round under the same load.
func ratios(ours, theirs []float64) []float64 {
	var rs []float64
	for i := range min(len(ours), len(theirs)) {
		rs = append(rs, ours[i]/theirs[i])
	}
	return rs
}
