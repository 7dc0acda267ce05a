package code

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// Finder finds tools by words. It ranks as BM25F does (Robertson and Zaragoza, 2009): a word counts by how rare it is, by how often it stands
// in a tool's name, description and names of arguments, of which the name counts most, and less in a tool that has many words. A Finder does not change once it is made.
type Finder struct {
	tools  []agent.Tool // sorted by name
	names  *Names
	words  map[string][]posting
	terms  []string // keys of words, sorted, for beginnings of words
	norm   []float32
	called [][]string // the words of each method's name
}

type posting struct {
	tool   int32
	weight float32
}

// How much a word counts by where it stands, and the constants of BM25.
const (
	inName, inServer, inTitle, inText, inArgs = 6, 2.5, 3, 1, 1.5
	saturation, lengthShare                   = 1.2, 0.5
	maxIndexed                                = 4 << 10 // of a description, in bytes
)

// NewFinder indexes tools, which are those that n was made of.
func NewFinder(tools []agent.Tool, n *Names) *Finder {
	f := &Finder{tools: slices.Clone(tools), names: n, words: make(map[string][]posting), norm: make([]float32, len(tools)),
		called: make([][]string, len(tools))}
	slices.SortFunc(f.tools, func(a, b agent.Tool) int { return strings.Compare(a.Name, b.Name) })
	var total float32
	weights := make(map[string]float32)
	for i := range f.tools {
		clear(weights)
		t := &f.tools[i]
		server, method, _ := agent.SplitTool(t.Name)
		count := func(text string, weight float32) {
			for _, w := range split(text) {
				if !stopWords[w] {
					weights[stem(w)] += weight
					f.norm[i]++
				}
			}
		}
		count(method, inName)
		count(server, inServer)
		for _, w := range split(method) {
			f.called[i] = append(f.called[i], stem(w))
		}
		count(t.Title, inTitle)
		count(t.Description[:min(len(t.Description), maxIndexed)], inText)
		for _, name := range argumentNames(t.Input) {
			count(name, inArgs)
		}
		total += f.norm[i]
		for w, weight := range weights {
			f.words[w] = append(f.words[w], posting{int32(i), weight})
		}
	}
	average := total / float32(max(len(tools), 1))
	for i, length := range f.norm {
		f.norm[i] = saturation * (1 - lengthShare + lengthShare*length/max(average, 1))
	}
	f.terms = make([]string, 0, len(f.words))
	for w := range f.words {
		f.terms = append(f.terms, w)
	}
	slices.Sort(f.terms)
	return f
}

// argumentNames are the names of the properties of a schema, unless it is long.
func argumentNames(schema []byte) []string {
	if len(schema) > 64<<10 {
		return nil
	}
	s, err := parse(schema)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range head(properties(follow(&document{root: s}, s)), 50) {
		names = append(names, p.name)
	}
	return names
}

// Search answers q with those of the tools that granted picks which its words speak of, best first, ten unless it says how many. The exact
// name of a tool comes first, and tools that are equally good come by name. A query without words lists tools by name. A nil granted
// picks all.
func (f *Finder) Search(q abi.ToolQuery, granted func(name string) bool) (abi.Tools, error) {
	pick, err := filterOf(q, f.names)
	if err != nil {
		return abi.Tools{}, err
	}
	limit := q.Limit
	if limit <= 0 {
		limit = searchLimit
	}
	query := strings.TrimSpace(q.Query[:min(len(q.Query), maxQuery)])
	score := f.scores(query)
	type hit struct {
		tool  int
		score float32
	}
	var hits []hit
	for i := range f.tools {
		if score != nil && score[i] <= 0 || !pick.match(&f.tools[i]) || granted != nil && !granted(f.tools[i].Name) {
			continue
		}
		h := hit{tool: i}
		if score != nil {
			h.score = score[i]
		}
		hits = append(hits, h)
	}
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Or(-cmp.Compare(a.score, b.score), cmp.Compare(a.tool, b.tool)) })
	out := abi.Tools{Tools: []abi.ToolInfo{}}
	for _, h := range hits[:min(len(hits), limit)] {
		out.Tools = append(out.Tools, infoFor(f.tools[h.tool], f.names, q))
	}
	out.More = len(hits) - len(out.Tools)
	return out, nil
}

// Search indexes tools and answers q. Whoever asks more than once keeps a Finder.
func Search(tools []agent.Tool, n *Names, q abi.ToolQuery) (abi.Tools, error) {
	return NewFinder(tools, n).Search(q, nil)
}

// scores says how well each tool answers a query, or nil when the query has no words.
func (f *Finder) scores(query string) []float32 {
	if query == "" {
		return nil
	}
	score := make([]float32, len(f.tools))
	terms := make(map[string]bool)
	var order []string
	for _, w := range split(query) {
		if s := stem(w); !stopWords[w] && !terms[s] {
			terms[s] = true
			order = append(order, s)
		}
	}
	matched := make([]uint16, len(f.tools))
	for _, term := range head(order, 64) {
		f.add(score, matched, term, 1)
		if len(term) >= 3 {
			f.addBeginnings(score, matched, term)
		}
	}
	for i, n := range matched {
		score[i] *= float32(n) // one that speaks of all words stands before one that repeats a single one
		if n > 0 && !slices.ContainsFunc(f.called[i], func(w string) bool { return !terms[w] }) {
			score[i] *= 1.5 // all of its name was said
		}
	}
	exact := func(written string) {
		if name, ok := f.names.Find(written); ok {
			if i, ok := slices.BinarySearchFunc(f.tools, name, func(t agent.Tool, name string) int { return strings.Compare(t.Name, name) }); ok {
				score[i] += 1e6
			}
		}
	}
	exact(query)
	for word := range strings.FieldsSeq(query) {
		exact(strings.Trim(word, "`'\"(),"))
	}
	folded := phrase.Fold(query)
	for i := range f.tools {
		if _, m, _ := agent.SplitTool(f.tools[i].Name); folded != "" && phrase.Fold(m) == folded {
			score[i] += 1e5
		}
	}
	return score
}

func (f *Finder) add(score []float32, matched []uint16, term string, share float32) {
	list := f.words[term]
	if len(list) == 0 {
		return
	}
	n := float64(len(f.tools))
	idf := float32(math.Log(1 + (n-float64(len(list))+0.5)/(float64(len(list))+0.5)))
	for _, p := range list {
		score[p.tool] += share * idf * p.weight / (p.weight + f.norm[p.tool])
		if share == 1 {
			matched[p.tool]++
		}
	}
}

// addBeginnings counts words that begin with term, less than the word itself.
func (f *Finder) addBeginnings(score []float32, matched []uint16, term string) {
	from, _ := slices.BinarySearch(f.terms, term)
	seen := 0
	for _, w := range f.terms[from:] {
		if !strings.HasPrefix(w, term) || seen >= 20 {
			return
		}
		if w == term {
			continue
		}
		seen++
		for _, p := range f.words[w] {
			if matched[p.tool] == 0 {
				matched[p.tool] = 1
			}
		}
		f.add(score, matched, w, 0.4)
	}
}

// stopWords say nothing of what a tool does.
var stopWords = words("a an and are as at be by can for from has have if in into is it its of on or that the their them then this to use used using was when which will with you your i me my we our how do does what")

// split returns the words of a text in lower case: at whatever is neither letter nor digit, and where case changes within a name.
func split(text string) []string {
	var out []string
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 && b.Len() <= 64 {
			out = append(out, b.String())
		}
		b.Reset()
	}
	runes := []rune(text)
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		if unicode.IsUpper(r) && i > 0 {
			next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			plural := next && runes[i+1] == 's' && (i+2 == len(runes) || !unicode.IsLower(runes[i+2])) // as in PRs
			if unicode.IsLower(runes[i-1]) || unicode.IsUpper(runes[i-1]) && next && !plural {
				flush()
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	flush()
	return out
}

// stem takes the commonest endings of English off a word, so that its forms meet. It is a key, not a word.
func stem(w string) string {
	switch n := len(w); {
	case n > 4 && strings.HasSuffix(w, "ies"):
		return w[:n-3] + "y"
	case n > 5 && strings.HasSuffix(w, "ing"):
		return undouble(w[:n-3])
	case n > 4 && strings.HasSuffix(w, "ed") && w[n-3] != 'e':
		return undouble(w[:n-2])
	case n > 4 && (strings.HasSuffix(w, "ches") || strings.HasSuffix(w, "shes") || strings.HasSuffix(w, "sses") || strings.HasSuffix(w, "xes")):
		return w[:n-2]
	case n > 3 && strings.HasSuffix(w, "s") && w[n-2] != 's' && w[n-2] != 'u' && w[n-2] != 'i':
		return stem(w[:n-1])
	case n > 3 && strings.HasSuffix(w, "e"):
		return w[:n-1]
	}
	return w
}

func undouble(w string) string {
	if n := len(w); n > 3 && w[n-1] == w[n-2] && !strings.ContainsRune("lsz", rune(w[n-1])) {
		return w[:n-1]
	}
	return strings.TrimSuffix(w, "e")
}

func plural(n int, what string) string {
	s := strconv.Itoa(n) + " " + what
	if n != 1 {
		s += "s"
	}
	return s
}
