package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// bar shows how far a long step has come, on a terminal only. It is not safe for use by several goroutines.
type bar struct {
	w     io.Writer
	label string
	shown time.Time
	drawn bool
}

// newBar returns a bar on stderr, or one that shows nothing when stderr is no terminal or --json was given.
func (c *cli) newBar(label string) *bar {
	if c.json || !isTTY(c.stderr) {
		return &bar{w: nil}
	}
	return &bar{w: c.stderr, label: label}
}

const barWidth = 30

// set draws the bar at done of total, at most ten times a second and always at the end.
func (b *bar) set(done, total int64) {
	if b.w == nil || total <= 0 || (done < total && time.Since(b.shown) < 100*time.Millisecond) {
		return
	}
	b.shown, b.drawn = time.Now(), true
	full := int(min(done, total) * barWidth / total)
	fmt.Fprintf(b.w, "\r%s [%s%s] %3d%%", b.label, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), min(done, total)*100/total)
}

// step replaces the bar by a line without figures, for work whose length is not known.
func (b *bar) step(text string) {
	if b.w == nil {
		return
	}
	b.drawn = true
	fmt.Fprintf(b.w, "\r\x1b[K%s: %s ...", b.label, text)
}

// clear takes the bar off the terminal.
func (b *bar) clear() {
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.drawn = false
	}
}
