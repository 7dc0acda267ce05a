package policy

import (
	"path"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/shell"
)

// commandPattern is a pattern of one simple command, word by word: "git push *". A * that stands alone is any number of words, none included.
type commandPattern struct {
	text  string
	words []commandWord
	fixed int // words before the first that stands for any number
}

type commandWord struct {
	text string // as it is written, quotes taken off
	glob *glob
	star bool // any number of words
	flag bool // it begins with - and has no special character
}

func newCommandPattern(s string) (*commandPattern, error) {
	c := &commandPattern{text: strings.TrimSpace(s), fixed: -1}
	for _, w := range fields(c.text) {
		u, err := unquote(w)
		if err != nil {
			return nil, err
		}
		g, err := newGlob(u)
		if err != nil {
			return nil, err
		}
		cw := commandWord{text: u, glob: g, star: w == "*" || w == "**"}
		if cw.flag = g.lit && len(u) > 1 && u[0] == '-'; cw.star && c.fixed < 0 {
			c.fixed = len(c.words)
		}
		c.words = append(c.words, cw)
	}
	if len(c.words) == 0 {
		return nil, agent.Errorf(agent.Invalid, "a command is missing: write a program and * for what may follow, as in shell.run(git push *)")
	}
	if c.fixed < 0 {
		c.fixed = len(c.words)
	}
	switch c.words[0].text {
	case "|", "&&", ";":
		return nil, agent.Errorf(agent.Invalid, "a rule is about one command of a line: write a rule for each")
	}
	for _, w := range c.words {
		switch w.text {
		case "|", "||", "&&", ";", "&":
			return nil, agent.Errorf(agent.Invalid, "%s joins commands, and each is judged alone: write a rule for each", w.text)
		}
	}
	return c, nil
}

// fields splits at blanks that stand in no quotes.
func fields(s string) []string {
	var out []string
	start := 0
	for i, c := range unquoted(s) {
		if c != ' ' && c != '\t' && c != '\n' {
			continue
		}
		if i > start {
			out = append(out, s[start:i])
		}
		start = i + 1
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// trusted are the folders in which a program is what its name says.
var trusted = map[string]bool{"/bin": true, "/usr/bin": true, "/sbin": true, "/usr/sbin": true, "/usr/local/bin": true, "/usr/local/sbin": true, "/opt/homebrew/bin": true}

// covers tells whether a command surely matches, word by word, with nothing left.
func (p *commandPattern) covers(c *shell.Command) bool {
	if len(c.Words) == 0 || !c.Words[0].Known || c.Open && !p.words[len(p.words)-1].star {
		return false
	}
	first := c.Words[0].Text
	if w := p.words[0]; w.glob.lit && !strings.ContainsRune(w.text, '/') && strings.ContainsRune(first, '/') {
		if dir, base := path.Split(first); base != w.text || !trusted[path.Clean(dir)] || strings.Contains(first, "..") {
			return false
		}
	} else if !w.star && !w.glob.surely(first) {
		return false
	}
	if p.words[0].star {
		return coverWords(p.words, c.Words)
	}
	return coverWords(p.words[1:], c.Words[1:])
}

func coverWords(p []commandWord, words []shell.Word) bool {
	pi, wi := 0, 0
	star, mark := -1, 0
	for wi < len(words) {
		switch {
		case pi < len(p) && p[pi].star:
			star, mark = pi, wi
			pi++
			continue
		case pi < len(p) && words[wi].Known && p[pi].glob.surely(words[wi].Text):
			pi++
			wi++
			continue
		case star < 0:
			return false
		}
		mark++
		pi, wi = star+1, mark
	}
	for pi < len(p) && p[pi].star {
		pi++
	}
	return pi == len(p)
}

// names tells whether the pattern writes a word out: then what that does beyond the program's name was meant.
func (p *commandPattern) names(word string) bool {
	if word == "" {
		return false
	}
	for _, w := range p.words {
		if w.star {
			continue
		}
		if head, _, _ := strings.Cut(w.text, "="); head == word || path.Base(word) == w.text {
			return true
		}
	}
	return false
}

// within tells whether any command of a script matches, for a rule that denies or asks. Options may stand anywhere, and be written in any of their
// ways.
func (p *commandPattern) within(s *shell.Script) truth {
	t := no
	for i := range s.Commands {
		if t = max(t, p.matches(&s.Commands[i])); t == yes {
			return yes
		}
	}
	if len(s.Commands) == 0 {
		if _, opaque := s.Opaque(); opaque {
			return maybe
		}
	}
	return t
}

func (p *commandPattern) matches(c *shell.Command) truth {
	if len(c.Words) == 0 {
		return no
	}
	name := c.Name()
	if name == "" {
		return maybe
	}
	if w := p.words[0]; !w.star && !w.glob.plain(name, true) && w.glob.perhaps(c.Words[0].Text) == no && !w.glob.plain(path.Base(c.Words[0].Text), true) {
		return no
	}
	t := yes
	var rest []commandWord
	for _, w := range p.words[1:] {
		if w.flag {
			if t = min(t, flagged(w.text, c)); t == no {
				return no
			}
			continue
		}
		rest = append(rest, w)
	}
	// A pattern that ends with options only does not say that nothing else may follow them.
	if len(rest) < len(p.words)-1 && (len(rest) == 0 || !rest[len(rest)-1].star) {
		rest = append(rest, commandWord{star: true})
	}
	return min(t, inOrder(rest, c.Words[1:], c.Open))
}

// inOrder tells whether words match in order; options in between may be passed over, alone or with the word that follows as their value.
func inOrder(p []commandWord, words []shell.Word, open bool) truth {
	type place struct{ p, w int }
	seen := map[place]truth{}
	var from func(pi, wi int) truth
	from = func(pi, wi int) (t truth) {
		at := place{pi, wi}
		if have, ok := seen[at]; ok {
			return have
		}
		seen[at] = no
		defer func() { seen[at] = t }()
		if pi < len(p) && p[pi].star {
			if pi+1 == len(p) {
				return yes
			}
			for k := wi; k <= len(words) && t != yes; k++ {
				t = max(t, from(pi+1, k))
			}
			return t
		}
		if wi == len(words) {
			switch {
			case pi == len(p):
				return yes
			case open:
				return maybe
			}
			return no
		}
		w := words[wi]
		if pi < len(p) {
			if w.Known {
				switch p[pi].glob.perhaps(w.Text) {
				case yes:
					t = from(pi+1, wi+1)
				case unclear, maybe:
					t = min(maybe, from(pi+1, wi+1))
				}
			} else {
				t = min(maybe, from(pi+1, wi+1))
				if w.Split && t == no {
					t = min(maybe, from(pi+1, wi))
				}
			}
			if t == yes {
				return t
			}
		}
		if !w.Known && w.Split {
			t = max(t, from(pi, wi+1))
		}
		if strings.HasPrefix(w.Text, "-") && w.Known {
			t = max(t, from(pi, wi+1))
			if t != yes && wi+2 <= len(words) {
				t = max(t, from(pi, wi+2))
			}
		}
		return t
	}
	if len(words) > 512 {
		return maybe
	}
	return from(0, 0)
}

// spellings are options with the same meaning nearly everywhere.
var spellings = map[string]string{"--force": "f", "--recursive": "rR", "--all": "a", "--delete": "dD", "--hard": "", "--no-verify": ""}

// flagged tells whether a command has an option, in any of its spellings.
func flagged(flag string, c *shell.Command) truth {
	t := no
	if c.Open {
		t = maybe
	}
	has := func(letter byte) bool {
		for _, w := range c.Words[1:] {
			if len(w.Text) > 1 && w.Text[0] == '-' && w.Text[1] != '-' && strings.IndexByte(w.Text[1:], letter) >= 0 {
				return true
			}
		}
		return false
	}
	long := func(name string) bool {
		for _, w := range c.Words[1:] {
			head, _, _ := strings.Cut(w.Text, "=")
			if strings.EqualFold(head, name) || len(head) > 3 && strings.HasPrefix(head, "--") && strings.HasPrefix(name, head) {
				return true
			}
		}
		return false
	}
	for _, w := range c.Words[1:] {
		if !w.Known {
			t = maybe
		}
		if w.Text == flag {
			return yes
		}
	}
	if strings.HasPrefix(flag, "--") {
		if long(flag) {
			return yes
		}
		for i := range len(spellings[flag]) {
			if has(spellings[flag][i]) {
				return yes
			}
		}
		if flag == "--force" && c.Name() == "git" {
			for _, w := range c.Words[1:] {
				if strings.HasPrefix(w.Text, "+") {
					return yes
				}
			}
		}
		return t
	}
	if len(flag) > 6 || strings.ContainsAny(flag, "=.,:/0123456789") { // one long option with a single dash
		return t
	}
	for i := 1; i < len(flag); i++ {
		if has(flag[i]) {
			continue
		}
		found := false
		for name, letters := range spellings {
			if strings.IndexByte(letters, flag[i]) < 0 {
				continue
			}
			for j := range len(letters) {
				found = found || has(letters[j])
			}
			found = found || long(name) || name == "--force" && flagged("--force", c) == yes && c.Name() == "git"
		}
		if !found {
			return t
		}
	}
	return yes
}
