package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// walk collects every simple command of a file, wherever it stands: in lists, pipes, blocks, functions, substitutions and here-documents.
func (w *walker) walk(file *syntax.File, o origin) {
	syntax.Walk(file, func(n syntax.Node) bool {
		if len(w.out.Commands) >= MaxCommands {
			w.opaque("there are more than %d commands", MaxCommands)
			return false
		}
		switch n := n.(type) {
		case *syntax.Stmt:
			w.stmt(n, o)
		case *syntax.DeclClause:
			w.decl(n)
		case *syntax.FuncDecl:
			w.function(n)
		case *syntax.ExtGlob:
			w.doubt(Power, -1, "", "an extended pattern can run code in some shells")
		case *syntax.ParamExp:
			w.param(n)
		case *syntax.TestClause, *syntax.LetClause, *syntax.ArithmCmd, *syntax.ArithmExp:
			w.arithmetic(n)
		case *syntax.ForClause:
			if iter, ok := n.Loop.(*syntax.WordIter); ok && !n.Select {
				w.assigned(iter.Name.Value)
			}
		}
		return true
	})
}

func (w *walker) stmt(s *syntax.Stmt, o origin) {
	for _, r := range s.Redirs {
		w.redirect(r, &o)
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok {
		return
	}
	for _, a := range call.Assigns {
		w.assign(a)
	}
	if len(call.Args) == 0 {
		return
	}
	words := make([]Word, len(call.Args))
	for i, a := range call.Args {
		words[i] = literal(a)
	}
	w.command(words, o)
}

func (w *walker) redirect(r *syntax.Redirect, o *origin) {
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		if r.Hdoc != nil {
			text := literal(r.Hdoc)
			o.input = &text
		} else {
			o.input = &Word{Known: true}
		}
	case syntax.WordHdoc:
		text := literal(r.Word)
		o.input = &text
	case syntax.RdrIn:
		w.out.Reads = append(w.out.Reads, literal(r.Word))
	case syntax.DplIn:
	case syntax.DplOut:
		if to := literal(r.Word); !to.Known || strings.Trim(to.Text, "0123456789-") != "" {
			w.out.Writes = append(w.out.Writes, to)
		}
	default: // >, >>, >|, <>, &>, &>> and those of other shells
		w.out.Writes = append(w.out.Writes, literal(r.Word))
	}
}

func (w *walker) decl(d *syntax.DeclClause) {
	for _, a := range d.Args {
		if a.Naked && a.Value != nil { // declare "$x", which may assign anything
			if v := literal(a.Value); !v.Known || strings.ContainsAny(v.Text, "=[$`") {
				w.opaque("%s %s sets what cannot be read from the text", d.Variant.Value, v.Text)
			}
			continue
		}
		if a.Name != nil && a.Value != nil {
			w.assign(a)
		}
	}
}

func (w *walker) assign(a *syntax.Assign) {
	if a.Name != nil {
		w.assigned(a.Name.Value)
	}
}

// assigned doubts the setting of variables by which other programs are run, or the same ones otherwise.
func (w *walker) assigned(name string) {
	if why := steers(name); why != "" {
		w.doubt(Power, -1, name, "setting %s %s", name, why)
	}
}

func (w *walker) function(f *syntax.FuncDecl) {
	name := ""
	if f.Name != nil {
		name = f.Name.Value
	}
	w.doubt(Power, -1, name, "a function %s is defined, whose name may hide a program", name)
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.BinaryCmd:
			if (n.Op == syntax.Pipe || n.Op == syntax.PipeAll) && calls(n, name) {
				w.out.Bomb = true
			}
		case *syntax.Stmt:
			if n.Background && calls(n, name) {
				w.out.Bomb = true
			}
		}
		return true
	})
}

func calls(n syntax.Node, name string) (found bool) {
	syntax.Walk(n, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 && c.Args[0].Lit() == name {
			found = true
		}
		return !found
	})
	return found
}

func (w *walker) param(p *syntax.ParamExp) {
	if p.Exp != nil && (p.Exp.Op == syntax.AssignUnset || p.Exp.Op == syntax.AssignUnsetOrNull) && p.Param != nil {
		w.assigned(p.Param.Value)
	}
	if p.Exp != nil && p.Exp.Op == syntax.OtherParamOps && p.Exp.Word != nil {
		if op := literal(p.Exp.Word); op.Text == "P" {
			w.opaque("${...@P} runs what is in a variable")
		}
	}
}

// arithmetic doubts words in which a subscript may hide a command: a[$(...)] is run even where it is quoted.
func (w *walker) arithmetic(n syntax.Node) {
	syntax.Walk(n, func(n syntax.Node) bool {
		if q, ok := n.(*syntax.SglQuoted); ok && hidesCode(q.Value) {
			w.opaque("a subscript in quotes may run a command")
		}
		return true
	})
}

func hidesCode(s string) bool { return strings.Contains(s, "$(") || strings.ContainsRune(s, '`') }

// literal takes a word's quotes off.
func literal(word *syntax.Word) Word {
	if word == nil {
		return Word{Known: true}
	}
	w := Word{Known: true}
	var b strings.Builder
	for i, p := range word.Parts {
		part(&b, &w, p, i == 0, false)
	}
	w.Text = b.String()
	return w
}

func part(b *strings.Builder, w *Word, p syntax.WordPart, first, quoted bool) {
	unknown := func(as string) {
		w.Known = false
		w.Split = w.Split || !quoted
		b.WriteString(as)
	}
	switch p := p.(type) {
	case *syntax.Lit:
		text, pattern := unescape(p.Value, quoted)
		if pattern {
			w.Known, w.Split = false, true
		}
		b.WriteString(text)
	case *syntax.SglQuoted:
		if p.Dollar && strings.ContainsRune(p.Value, '\\') {
			w.Known = false
		}
		b.WriteString(p.Value)
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			part(b, w, q, first, true)
		}
	case *syntax.ParamExp:
		name := ""
		if p.Param != nil {
			name = p.Param.Value
		}
		if name == "HOME" && first && b.Len() == 0 && p.Exp == nil && !p.Length && !p.Excl && p.Index == nil && p.Slice == nil && p.Repl == nil {
			b.WriteByte('~')
			return
		}
		unknown("$" + name)
	case *syntax.CmdSubst:
		unknown("$(...)")
	case *syntax.ProcSubst:
		quoted = true
		unknown("<(...)")
	case *syntax.ArithmExp:
		quoted = true
		unknown("$((...))")
	default:
		unknown("?(...)")
	}
}

// unescape takes backslashes off and tells whether the text is a pattern of file names, or one of braces.
func unescape(s string, quoted bool) (text string, pattern bool) {
	if !quoted && strings.ContainsAny(s, "*?[{") {
		for i := 0; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '*', '?', '[':
				pattern = true
			case '{':
				pattern = pattern || i+1 == len(s) || s[i+1] != '}'
			}
		}
	}
	if !strings.ContainsRune(s, '\\') {
		return s, pattern
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte("$`\"\\\n", s[i+1]) >= 0) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), pattern
}
