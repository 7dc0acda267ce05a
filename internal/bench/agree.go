package main

import (
	"fmt"
	"slices"
)

// agreed makes one figure of each that was made in several runs, in the order of the first: medians, and each run's verdict. The note is of
// the last run.
func agreed(runs [][]Figure) []Figure {
	if len(runs) == 1 {
		return runs[0]
	}
	var out []Figure
	for _, first := range runs[0] {
		var ours, theirs, ratios []float64
		f := first
		f.Verdicts = nil
		for _, run := range runs {
			i := slices.IndexFunc(run, first.same)
			if i < 0 {
				continue // a peer that could not be started this time
			}
			again := run[i]
			ours, theirs, ratios = append(ours, again.Ours), append(theirs, again.Theirs), append(ratios, again.Ratio)
			f.Note = again.Note
			f.Verdicts = append(f.Verdicts, again.Verdict())
		}
		f.Ours, f.Theirs, f.Ratio = median(ours), median(theirs), median(ratios)
		out = append(out, f)
	}
	return out
}

// same reports whether two runs' figures are of the same thing.
func (f Figure) same(other Figure) bool {
	return f.ID == other.ID && f.Name == other.Name && f.Peer == other.Peer && f.Unit == other.Unit
}

// verdict says what became of the target: in all runs, or in how many.
func (f Figure) verdict() string {
	if len(f.Verdicts) == 0 {
		return f.Verdict().String()
	}
	met := 0
	for _, v := range f.Verdicts {
		if v == Met {
			met++
		}
	}
	if met > 0 && met < len(f.Verdicts) {
		return fmt.Sprintf("met in %d of %d", met, len(f.Verdicts))
	}
	return f.Verdicts[0].String()
}
