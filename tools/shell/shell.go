// Package shell takes shell commands apart: into every simple command that would run, with the wrappers around it (bash -c, env, sudo, xargs, ...)
// taken off, what would be written to by redirection, and what cannot be known or does more than its name says. It runs nothing, and reads no files.
//
// The grammar is that of bash, parsed by mvdan.cc/sh. What it cannot follow it says (Doubt), so that a caller can ask a person; it never
// leaves a part of a command out in silence.
package shell

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds of one command. What is beyond them is Opaque.
const (
	MaxText     = 64 << 10 // bytes
	MaxCommands = 512      // simple commands
	maxUnwrap   = 12       // wrappers in wrappers
	maxNesting  = 100      // brackets in brackets
	maxBlocks   = 1000     // words that open a block
)

// Word is one argument.
type Word struct {
	Text  string // with quotes taken off. Of what is not known, as it is written
	Known bool   // it is exactly Text; else a variable, a substitution or a file name pattern is in it
	Split bool   // it may become any number of words
}

// Command is a simple command: a program, or a builtin of the shell, and its arguments.
type Command struct {
	Words   []Word // at least one
	Open    bool   // further words come from elsewhere, as those of xargs do
	Via     string // the wrappers that were taken off, such as "sudo xargs"
	Wrapper bool   // all it does is to run others, which follow, or are doubted
	Parent  int    // index of the wrapper whose words it is a part of; -1 for none
	At      int    // where in the words of Parent it begins
}

// Name is the program's name without its folder, in lower case; empty where it is not known.
func (c Command) Name() string {
	if len(c.Words) == 0 || !c.Words[0].Known {
		return ""
	}
	return baseName(c.Words[0].Text)
}

// Text is the command in one line.
func (c Command) Text() string {
	var b strings.Builder
	for i, w := range c.Words {
		if i > 0 {
			b.WriteByte(' ')
		}
		if w.Known && w.Text != "{}" && (w.Text == "" || strings.ContainsAny(w.Text, " \t\n'\"$`\\;&|<>(){}#")) {
			b.WriteString(Quote(w.Text))
			continue
		}
		b.WriteString(w.Text)
	}
	if c.Open {
		b.WriteString(" ...")
	}
	return b.String()
}

// DoubtKind says how much a doubt weighs.
type DoubtKind uint8

const (
	Power  DoubtKind = iota // it does more than its name says, by an option or a variable: a rule that names Word has meant it
	Opaque                  // nobody can tell what would run
)

// Doubt is a reason to ask a person, whatever the names of the commands are.
type Doubt struct {
	Kind    DoubtKind
	Word    string // of Power: the option, variable or program it is about
	Command int    // index of the command it is about; -1 for the whole
	Reason  string // "git -c can set a program to run"
}

// Script is a command that was taken apart.
type Script struct {
	Commands []Command
	Writes   []Word // that redirections, and options that name an output file, write to
	Reads    []Word // that redirections read from
	Doubts   []Doubt
	Moves    bool // it changes the folder: what is relative is not where it began
	Bomb     bool // a function calls itself in a pipe or in the background
}

// Opaque reports whether there is something that nobody can tell, and the first reason.
func (s *Script) Opaque() (reason string, ok bool) {
	for _, d := range s.Doubts {
		if d.Kind == Opaque {
			return d.Reason, true
		}
	}
	return "", false
}

// Parse takes a command line apart. It always returns a script: what does not parse is a doubt.
func Parse(text string) *Script {
	w := &walker{out: &Script{}}
	w.script(text, origin{})
	return w.out
}

// Argv takes a command apart that is run without a shell.
func Argv(words []string) *Script {
	w := &walker{out: &Script{}}
	if n := len(strings.Join(words, " ")); n > MaxText {
		w.opaque("the command has %d bytes, above %d", n, MaxText)
		return w.out
	}
	list := make([]Word, len(words))
	for i, s := range words {
		list[i] = Word{Text: s, Known: true}
		w.unseen(s)
	}
	if len(list) > 0 {
		w.command(list, origin{})
	}
	return w.out
}

// Quote writes a word so that a shell reads it back.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// walker collects what is found.
type walker struct{ out *Script }

// origin is where a command stands.
type origin struct {
	depth int    // texts within texts and wrappers within wrappers
	open  bool   // further words come from elsewhere
	repl  string // what a wrapper replaces in it by what comes from elsewhere
	via   string
	input *Word // here-document
	inner bool  // it is a part of the words of the command under, from at
	under int
	at    int
}

func (o origin) in(wrapper string) origin {
	o.depth++
	o.via = strings.TrimSpace(o.via + " " + wrapper)
	o.inner, o.input = false, nil
	return o
}

func (w *walker) doubt(kind DoubtKind, command int, word, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	for _, d := range w.out.Doubts {
		if d.Reason == reason && d.Command == command && d.Word == word {
			return
		}
	}
	if len(w.out.Doubts) < MaxCommands {
		w.out.Doubts = append(w.out.Doubts, Doubt{Kind: kind, Word: word, Command: command, Reason: reason})
	}
}

func (w *walker) opaque(format string, args ...any) {
	w.doubt(Opaque, -1, "", format, args...)
}

// script parses text and collects what is in it.
func (w *walker) script(text string, o origin) {
	switch {
	case len(text) > MaxText:
		w.opaque("the command has %d bytes, above %d", len(text), MaxText)
		return
	case o.depth > maxUnwrap:
		w.opaque("commands are wrapped in commands more than %d deep", maxUnwrap)
		return
	case strings.ContainsRune(text, 0) || !utf8.ValidString(text):
		w.opaque("the command holds bytes that are no text")
		return
	case o.repl != "" && strings.Contains(text, o.repl):
		w.opaque("%s puts what it reads into the text of a command", o.via)
		return
	}
	w.unseen(text)
	if deep(text) {
		w.opaque("the command is nested too deeply to be followed")
		return
	}
	file, err := parse(text)
	if err != nil {
		w.opaque("the command does not parse: %s", err)
		return
	}
	w.walk(file, o)
}

// unseen doubts characters that a person would not see, or see in another place.
func (w *walker) unseen(text string) {
	for _, r := range text {
		if r > 0x7e && (unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || unicode.IsControl(r)) || r == 0x1b || r == '\b' {
			w.opaque("the command holds the invisible character %U", r)
			return
		}
	}
}

// parse guards the foreign parser: what would end it counts as not parsed.
func parse(text string) (file *syntax.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("the parser gave up")
		}
	}()
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

// deep tells whether brackets or blocks nest beyond what is worth following. It counts more than there are, as it knows no quotes.
func deep(text string) bool {
	depth, ticks := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(', '{', '[':
			if depth++; depth > maxNesting {
				return true
			}
		case ')', '}', ']':
			depth = max(0, depth-1)
		case '`':
			ticks++
		}
	}
	if ticks > maxNesting {
		return true
	}
	n := 0
	for _, word := range [...]string{"if", "while", "until", "for", "case", "!", "select", "coproc", "time", "function"} {
		if n += strings.Count(text, word); n > maxBlocks {
			return true
		}
	}
	return false
}

func baseName(s string) string {
	s = strings.ReplaceAll(s, `\`, "/")
	if s == "" || strings.HasSuffix(s, "/") {
		return strings.ToLower(s)
	}
	if s == "." {
		return s
	}
	return strings.TrimSuffix(strings.ToLower(path.Base(s)), ".exe")
}

// Add puts the parts of another script behind those of s.
func (s *Script) Add(o *Script) {
	n := len(s.Commands)
	for _, c := range o.Commands {
		if c.Parent >= 0 {
			c.Parent += n
		}
		s.Commands = append(s.Commands, c)
	}
	for _, d := range o.Doubts {
		if d.Command >= 0 {
			d.Command += n
		}
		s.Doubts = append(s.Doubts, d)
	}
	s.Writes, s.Reads = append(s.Writes, o.Writes...), append(s.Reads, o.Reads...)
	s.Moves, s.Bomb = s.Moves || o.Moves, s.Bomb || o.Bomb
}
