package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// Unit is what a figure counts.
type Unit uint8

const (
	NoUnit Unit = iota
	Seconds
	Bytes
	PerSecond
	Times // a plain ratio
)

func (u Unit) String() string {
	return [...]string{"", "s", "bytes", "per second", "times"}[u]
}

func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// format writes x with three significant digits.
func (u Unit) format(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	scaled := func(steps ...string) string {
		for i, step := range steps {
			if math.Abs(x) < 999.5 || i == len(steps)-1 {
				return digits(x) + " " + step
			}
			x /= 1000
		}
		return ""
	}
	switch u {
	case Seconds:
		x *= 1e9
		return scaled("ns", "µs", "ms", "s")
	case Bytes:
		return scaled("B", "kB", "MB")
	case PerSecond:
		return digits(x) + "/s"
	case Times:
		return digits(x) + "x"
	}
	return digits(x)
}

func digits(x float64) string {
	switch a := math.Abs(x); {
	case a >= 99.95:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// Target is the bound that a figure should keep. The zero Target has none: the figure is a guide.
type Target struct {
	Bound   float64 `json:"bound"`
	AtLeast bool    `json:"at_least,omitempty"` // else at most
	Value   bool    `json:"value,omitempty"`    // the bound is for our value, not for the ratio
}

func (t Target) format(u Unit) string {
	if t == (Target{}) {
		return "-"
	}
	if !t.Value {
		u = Times
	}
	sign := "<= "
	if t.AtLeast {
		sign = ">= "
	}
	return sign + u.format(t.Bound)
}

// Verdict is what became of a target.
type Verdict uint8

const (
	Guide Verdict = iota // there is no target
	Met
	NotMet
	NoPeer // the other side could not be measured here
)

func (v Verdict) String() string { return [...]string{"guide", "met", "not met", "peer not here"}[v] }

func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Figure is one row. A figure without another side has Theirs NaN and no Peer.
type Figure struct {
	ID, Name     string
	Unit         Unit
	Ours, Theirs float64
	Peer         string  // what Theirs is of
	Ratio        float64 // Ours/Theirs, by rounds; NaN without the other side
	Target       Target
	Note         string
	Verdicts     []Verdict // of each run, where there was more than one
}

// Verdict compares the figure with its target.
func (f Figure) Verdict() Verdict {
	x := f.Ratio
	if f.Target.Value {
		x = f.Ours
	}
	switch {
	case f.Target == (Target{}):
		return Guide
	case math.IsNaN(x):
		return NoPeer
	case f.Target.AtLeast && x >= f.Target.Bound, !f.Target.AtLeast && x <= f.Target.Bound:
		return Met
	}
	return NotMet
}

// compare makes a figure of what alternating rounds measured on both sides. The ratio is the median of the rounds' own.
func compare(id, name string, u Unit, ours, theirs []float64, peer string, t Target) Figure {
	return Figure{
		ID: id, Name: name, Unit: u, Ours: median(ours), Theirs: median(theirs), Peer: peer,
		Ratio: median(ratios(ours, theirs)), Target: t,
	}
}

// alone makes a figure that is compared with nothing, or whose target is a value.
func alone(id, name string, u Unit, ours float64, t Target) Figure {
	return Figure{ID: id, Name: name, Unit: u, Ours: ours, Theirs: math.NaN(), Ratio: math.NaN(), Target: t}
}

// MarshalJSON leaves out what was not measured.
func (f Figure) MarshalJSON() ([]byte, error) {
	known := func(x float64) *float64 {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
		return &x
	}
	return json.Marshal(struct {
		ID      string   `json:"id"`
		Name    string   `json:"figure"`
		Unit    Unit     `json:"unit"`
		Ours    *float64 `json:"ours"`
		Peer    string   `json:"peer,omitempty"`
		Theirs  *float64 `json:"theirs,omitempty"`
		Ratio   *float64 `json:"ratio,omitempty"`
		Target  Target   `json:"target,omitzero"`
		Verdict string   `json:"verdict"`
		Note    string   `json:"note,omitempty"`
	}{f.ID, f.Name, f.Unit, known(f.Ours), f.Peer, known(f.Theirs), known(f.Ratio), f.Target, f.verdict(), f.Note})
}

var columns = []string{"id", "figure", "ours", "peer or limit", "ratio", "target", "verdict"}

// cells are the columns of one row.
func (f Figure) cells() []string {
	other := "-"
	if f.Peer != "" {
		other = f.Unit.format(f.Theirs) + " " + f.Peer
	}
	return []string{
		f.ID, f.Name, f.Unit.format(f.Ours), other, Times.format(f.Ratio), f.Target.format(f.Unit), f.verdict(),
	}
}

// writeTable prints the figures in columns, with each one's note on a line of its own.
func writeTable(w io.Writer, fs []Figure) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		for _, c := range cells {
			_, _ = fmt.Fprintf(tw, "%s\t", c)
		}
		_, _ = fmt.Fprintln(tw)
	}
	line(columns)
	for _, f := range fs {
		line(f.cells())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, f := range fs {
		if f.Note != "" {
			if _, err := fmt.Fprintf(w, "%s %s: %s\n", f.ID, f.Name, f.Note); err != nil {
				return err
			}
		}
	}
	return nil
}
