package script

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// The names under which code runs in the guest. Authors see neither: frames of the module are mapped back to their files,
// frames of the prelude are left out.
const (
	moduleName  = "skep:agent"
	preludeName = "skep:web"
)

var place = regexp.MustCompile(regexp.QuoteMeta(moduleName) + `:(\d+)(?::(\d+))?`)

// mapText replaces each place of the bundle in text by the author's, and drops lines that are frames of the prelude.
func mapText(m *SourceMap, text string) string {
	if !strings.Contains(text, "skep:") {
		return text
	}
	text = dropFrames(text)
	if m == nil {
		return text
	}
	return place.ReplaceAllStringFunc(text, func(s string) string {
		if p, ok := find(m, s); ok {
			return p.String()
		}
		return s
	})
}

// find maps one place as it stands in a trace.
func find(m *SourceMap, s string) (agent.Pos, bool) {
	f := place.FindStringSubmatch(s)
	if f == nil {
		return agent.Pos{}, false
	}
	line, _ := strconv.Atoi(f[1])
	column := 1
	if f[2] != "" {
		column, _ = strconv.Atoi(f[2])
	}
	p, ok := m.Find(line, column)
	if ok && f[2] == "" {
		p.Column = 0
	}
	return p, ok
}

// dropFrames leaves out the lines that are frames of the prelude, and of what it called the author's code through.
func dropFrames(text string) string {
	if !strings.Contains(text, preludeName) {
		return text
	}
	lines := strings.Split(text, "\n")
	kept := lines[:0]
	for _, l := range lines {
		if !isFrame(l) || !strings.Contains(l, preludeName+":") {
			kept = append(kept, l)
			continue
		}
		for n := len(kept); n > 0 && isFrame(kept[n-1]) && strings.HasSuffix(kept[n-1], "(native)"); n-- {
			kept = kept[:n-1]
		}
	}
	return strings.Join(kept, "\n")
}

func isFrame(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), "at ") }

// topOf returns the first place in a trace that is the author's.
func topOf(m *SourceMap, trace string) agent.Pos {
	if m == nil {
		return agent.Pos{}
	}
	for _, s := range place.FindAllString(trace, 8) {
		if p, ok := find(m, s); ok {
			return p
		}
	}
	return agent.Pos{}
}

// tidy returns a trace of the guest as the author should read it: one frame a line, in the author's files.
func tidy(m *SourceMap, trace string) string {
	const most = 32
	lines := strings.Split(strings.TrimSpace(mapText(m, trace)), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	if len(lines) > most {
		lines = append(lines[:most], "...")
	}
	return strings.Join(lines, "\n")
}
