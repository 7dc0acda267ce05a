package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// excerpt returns the line of source that pos points at with a caret below the column, or "" when the file cannot be read.
// base is the directory that relative names are below.
func excerpt(base string, pos agent.Pos) string {
	if pos.File == "" || pos.Line == 0 {
		return ""
	}
	name := pos.File
	if !filepath.IsAbs(name) {
		if _, err := os.Stat(name); err != nil {
			name = filepath.Join(base, name)
		}
	}
	line, ok := sourceLine(name, pos.Line)
	if !ok {
		return ""
	}
	number := fmt.Sprintf("%4d | ", pos.Line)
	out := number + line + "\n"
	if pos.Column > 0 {
		runes := []rune(line)
		lead := []rune(strings.Repeat(" ", len(number)-2) + "| ")
		for _, r := range runes[:min(pos.Column-1, len(runes))] {
			if r != '\t' {
				r = ' '
			}
			lead = append(lead, r)
		}
		out += string(lead) + "^\n"
	}
	return out
}

func sourceLine(name string, n int) (string, bool) {
	f, err := os.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for i := 1; lines.Scan(); i++ {
		if i == n {
			return lines.Text(), true
		}
	}
	return "", false
}
