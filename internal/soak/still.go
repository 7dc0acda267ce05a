package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Whether the machine itself stands still: a virtual one does, for milliseconds, when the one under it has others to serve. What it says is
// beside the figures of latency, to tell such times from ours.
const (
	stillVerb = "still"
	stillLook = 2 * time.Millisecond
	stillLate = 2 * time.Millisecond // past which a wake-up is late; the kernel alone is late by much less
)

// Still is how long the machine stood still in a part of the time.
type Still struct {
	Seconds float64 `json:"seconds"`
	Longest float64 `json:"longest"` // at one stretch, in seconds
}

// add counts a stretch.
func (s *Still) add(late float64) {
	s.Seconds += late
	s.Longest = max(s.Longest, late)
}

// watchStill counts when the machine stood still until ctx ends. Nothing is counted where this is not allowed to look: a process that comes before
// all others is needed for that.
func (r *record) watchStill(ctx context.Context) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	cmd := exec.CommandContext(ctx, self, stillVerb)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var late float64
		n, _ := fmt.Sscan(lines.Text(), &late)
		r.mu.Lock()
		if r.stillKnown = true; n == 1 {
			r.still[r.phase].add(late)
		}
		r.mu.Unlock()
	}
	_ = cmd.Wait() // it was killed
}

// tellStill writes a line when it has begun, and then one for each time that the machine stood still, in seconds.
func tellStill(w io.Writer) error {
	if err := beFirst(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, "begun"); err != nil {
		return err
	}
	for {
		before := time.Now()
		rest(stillLook)
		if late := time.Since(before) - stillLook; late > stillLate {
			if _, err := fmt.Fprintln(w, late.Seconds()); err != nil {
				return err
			}
		}
	}
}

// stood says how long the machine stood still in the parts of a run.
func (r Report) stood() string {
	if r.Still == nil {
		return "whether the machine stood still is not known: to see that, this must be root"
	}
	part := func(s Still, of float64) string {
		return fmt.Sprintf("%.2f %% of the time, %s at the longest", 100*s.Seconds/max(of, 1e-9), seconds(s.Longest))
	}
	return "the machine stood still: in quiet " + part(r.Still[quiet], r.Quiet) + "; beside " + part(r.Still[loaded], r.Seconds-r.Quiet)
}
