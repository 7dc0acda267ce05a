package code

import (
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// InfoWidth is how long the first sentence of a tool gets in lists, in bytes.
const InfoWidth = 200

// Bounds of a query. A longer one is cut.
const (
	maxQuery    = 1 << 10
	maxNames    = 1000
	searchLimit = 10
)

// Info is what lists say of a tool of n.
func Info(t agent.Tool, n *Names) abi.ToolInfo {
	text := t.Description
	if strings.TrimSpace(text) == "" {
		text = t.Title
	}
	return abi.ToolInfo{Name: t.Name, Path: n.Path(t.Name), Effect: t.Effect.String(), Description: Sentence(text, InfoWidth)}
}

// infoFor is Info with what q asks for besides.
func infoFor(t agent.Tool, n *Names, q abi.ToolQuery) abi.ToolInfo {
	out := Info(t, n)
	if q.Schemas {
		out.Schema = abi.Raw(t.Input)
		if t.Description != "" {
			out.Description = clip(t.Description, maxWhole)
		}
	}
	return out
}

// maxWhole is the most of a description that is told whole, in bytes.
const maxWhole = 4 << 10

// filter picks by server and by effect, as queries say.
type filter struct {
	server string // as it is
	all    bool   // of any server
	upTo   agent.Effect
}

// filterOf reads what q picks by. A server is written as it is or as its identifier.
func filterOf(q abi.ToolQuery, n *Names) (filter, error) {
	f := filter{all: q.Server == "", upTo: agent.Execute}
	if q.Server != "" {
		s, ok := n.byName[strings.TrimPrefix(q.Server, Root+".")]
		if !ok {
			return f, &agent.Error{Kind: agent.NotFound, Msg: "there is no tool server " + quote(clip(line(q.Server), 100)), Hint: didYouMean(n.nearServers(q.Server))}
		}
		f.server = s.name
	}
	if q.Effect != "" {
		if err := f.upTo.UnmarshalText([]byte(q.Effect)); err != nil {
			return f, &agent.Error{Kind: agent.Invalid, Msg: "unknown effect " + quote(clip(line(q.Effect), 40)),
				Hint: "effects are read, modify, modify_execute and execute"}
		}
	}
	return f, nil
}

func (f filter) match(t *agent.Tool) bool {
	server, _, _ := agent.SplitTool(t.Name)
	return (f.all || server == f.server) && (t.Effect.Grade() <= f.upTo.Grade())
}

// List answers q with the tools that it picks by server and effect, by name. Limit 0 means all.
func List(tools []agent.Tool, n *Names, q abi.ToolQuery) (abi.Tools, error) {
	f, err := filterOf(q, n)
	if err != nil {
		return abi.Tools{}, err
	}
	out := abi.Tools{Tools: []abi.ToolInfo{}}
	var picked []*agent.Tool
	for i := range tools {
		if f.match(&tools[i]) {
			picked = append(picked, &tools[i])
		}
	}
	slices.SortFunc(picked, func(a, b *agent.Tool) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range picked {
		if q.Limit > 0 && len(out.Tools) >= q.Limit {
			break
		}
		out.Tools = append(out.Tools, infoFor(*t, n, q))
	}
	out.More = len(picked) - len(out.Tools)
	return out, nil
}

// Describe answers q with declarations of the tools that it names, each as SERVER.METHOD, as its path, as SERVER.* or as SERVER, and
// of all that it picks by server and effect when it names none. A name that is none of tools is a NotFound error.
func Describe(tools []agent.Tool, n *Names, q abi.ToolQuery) (string, error) {
	var level Level
	if err := level.UnmarshalText([]byte(q.Level)); err != nil {
		return "", err
	}
	f, err := filterOf(q, n)
	if err != nil {
		return "", err
	}
	if len(q.Names) > maxNames {
		return "", agent.Errorf(agent.Invalid, "%d names are too many to describe at once; at most %d are", len(q.Names), maxNames)
	}
	wanted := make(map[string]bool)
	for _, written := range q.Names {
		if err := want(tools, n, written, wanted); err != nil {
			return "", err
		}
	}
	var picked []agent.Tool
	for i := range tools {
		if f.match(&tools[i]) && (len(q.Names) == 0 || wanted[tools[i].Name]) {
			picked = append(picked, tools[i])
		}
	}
	return Declare(picked, n, level), nil
}

// want adds what written names.
func want(tools []agent.Tool, n *Names, written string, to map[string]bool) error {
	missing := func() error { return NotFound(n, written, tools) }
	if name, ok := n.Find(written); ok {
		for i := range tools {
			if tools[i].Name == name {
				to[name] = true
				return nil
			}
		}
		return missing()
	}
	server := strings.TrimPrefix(strings.TrimSuffix(written, ".*"), Root+".")
	s, ok := n.byName[server]
	if !ok {
		return missing()
	}
	found := false
	for i := range tools {
		if of, _, _ := agent.SplitTool(tools[i].Name); of == s.name {
			to[tools[i].Name], found = true, true
		}
	}
	if !found {
		return missing()
	}
	return nil
}

// NotFound is the error for a tool that is not there, with those of tools that come near.
func NotFound(n *Names, written string, tools []agent.Tool) error {
	var near []string
	for _, name := range n.Near(written) {
		if slices.ContainsFunc(tools, func(t agent.Tool) bool { return t.Name == name }) {
			near = append(near, name)
		}
	}
	return &agent.Error{Kind: agent.NotFound, Msg: "there is no tool " + quote(clip(line(written), 200)), Hint: didYouMean(near)}
}

// didYouMean is the hint with names that come near, or "".
func didYouMean(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "did you mean " + names[0] + "?"
	}
	return "did you mean " + strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1] + "?"
}

// nearServers are the servers that written may have meant.
func (n *Names) nearServers(written string) []string {
	var names []string
	for _, s := range n.servers {
		names = append(names, s.name)
	}
	return nearest(names, written)
}

// nearest are those of names that differ from written in a few letters, nearest first, at most three.
func nearest(names []string, written string) []string { return phrase.Near(written, names, maxNear) }

// Index writes a list for a model: for each server its path, and below it for each tool its method, its effect unless it only reads, and
// the beginning of its first sentence.
func Index(list abi.Tools) string {
	var b strings.Builder
	var open string
	for _, t := range list.Tools {
		server, method, _ := strings.Cut(strings.TrimPrefix(t.Path, Root+"."), ".")
		if server != open {
			b.WriteString(Root + "." + server + "\n")
			open = server
		}
		b.WriteString(method)
		if e := t.Effect; e != agent.Read.String() && e != agent.Unclassified.String() {
			b.WriteString(" [" + e + "]")
		}
		if d := brief(t.Description, method); d != "" {
			b.WriteString(": " + d)
		}
		b.WriteByte('\n')
	}
	if list.More > 0 {
		b.WriteString("and " + plural(list.More, "more tool") + "\n")
	}
	return b.String()
}

// indexWidth is how long the sentences of an index get, in bytes.
const indexWidth = 48

// brief is a sentence in few words, or "" when it says no more than the method's name does.
func brief(sentence, method string) string {
	s := strings.TrimSuffix(clip(sentence, indexWidth), ".")
	words := 0
	for _, w := range split(s) {
		if !stopWords[w] && !strings.Contains(phrase.Fold(method), stem(w)) {
			words++
		}
	}
	if words == 0 {
		return ""
	}
	return s
}
