package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"

	"github.com/skep-dev/skep/agent"
)

// isTTY reports whether w is a terminal.
func isTTY(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// printJSON writes v as indented JSON.
func (c *cli) printJSON(v any) error {
	out := json.NewEncoder(c.stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// printf writes for a person; with --json nothing but JSON goes to stdout, so it goes to stderr.
func (c *cli) printf(format string, args ...any) {
	w := c.stdout
	if c.json {
		w = c.stderr
	}
	fmt.Fprintf(w, format, args...)
}

// printBytes writes a call's output as it is, with a newline after text and JSON that end without one.
func (c *cli) printBytes(p agent.Payload) error {
	text := p.IsJSON() || p.IsText()
	if !text && isTTY(c.stdout) && !utf8.Valid(p.Body) {
		return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("the output is %d bytes of %s, not for a terminal", len(p.Body), p.Type), Hint: "send it to a file with > FILE"}
	}
	if _, err := c.stdout.Write(p.Body); err != nil {
		return err
	}
	if (text || utf8.Valid(p.Body)) && len(p.Body) > 0 && !bytes.HasSuffix(p.Body, []byte("\n")) {
		_, err := io.WriteString(c.stdout, "\n")
		return err
	}
	return nil
}

// printTable writes rows in aligned columns under a header. The last column is not padded.
func (c *cli) printTable(header []string, rows [][]string) {
	width := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range append([][]string{header}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		fmt.Fprintln(c.stdout, strings.TrimRight(line.String(), " "))
	}
}

// printFields writes name and value pairs, one a line, aligned; pairs without a value are left out.
func (c *cli) printFields(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(c.stdout, "%-*s  %s\n", width, pairs[i], pairs[i+1])
		}
	}
}

// printEmpty tells a person that a list has nothing in it.
func (c *cli) printEmpty(what, hint string) {
	fmt.Fprintf(c.stderr, "no %s yet; %s\n", what, hint)
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}

// short cuts a digest to what fits a table and still names it.
func short(d agent.Digest) string {
	if h := d.Hex(); h != "" {
		return h[:12]
	}
	return string(d)
}
