package shell

import "strings"

// sed doubts scripts that run a program or write a file, and those that cannot be followed. Where sed of GNU and of BSD read options in two ways, it
// looks at what is a script in either.
func (w *walker) sed(i int, words []Word, o origin) {
	var scripts []Word
	given, first := false, true // a script by an option; the first word that is none is one otherwise
	for at := 1; at < len(words); at++ {
		word := words[at]
		name, value, attached := strings.Cut(word.Text, "=")
		long := func(option string) bool { return prefixed([]string{option}, name) }
		next := func() (v Word) { // the value of the option that ends with the word
			if at++; at < len(words) {
				v = words[at]
			}
			return v
		}
		switch {
		case word.Text == "" && strings.HasPrefix(words[at-1].Text, "-") && strings.HasSuffix(words[at-1].Text, "i"): // of -i, with BSD
		case word.Split && strings.HasPrefix(word.Text, "$"):
			w.doubt(Power, i, word.Text, "%s may be an option of sed that runs a program", show(word.Text))
			fallthrough
		case !strings.HasPrefix(word.Text, "-") || word.Text == "-":
			if first && !given {
				scripts = append(scripts, word)
			}
			first = false
		case strings.HasPrefix(name, "--f"):
			w.doubt(Power, i, word.Text, "sed runs a script that is in a file")
			given = true
		case long("--expression"), long("--line-length"):
			v := Word{Text: value, Known: word.Known}
			if !attached {
				v = next()
			}
			scripts, given = append(scripts, v), given || long("--expression")
		case strings.HasPrefix(name, "--"):
		default:
			if !word.Known {
				w.doubt(Power, i, word.Text, "%s may be an option of sed that runs a program", show(word.Text))
			}
			given = w.sedShort(i, word, next, &scripts) || given
		}
	}
	if len(scripts) == 0 && o.open {
		w.doubt(Power, i, "sed", "sed gets its script from elsewhere")
	}
	for _, s := range scripts {
		if !s.Known {
			w.doubt(Power, i, s.Text, "the script of sed is not known before it runs")
		} else if sedRuns(s.Text) {
			w.doubt(Power, i, s.Text, "sed may run a program or write a file by %s", show(s.Text))
		}
	}
}

// sedShort reads short options in one word, and reports whether they give a script.
func (w *walker) sedShort(i int, word Word, next func() Word, scripts *[]Word) bool {
	for j, letter := range word.Text {
		v := Word{Text: word.Text[min(j+1, len(word.Text)):], Known: word.Known}
		switch letter {
		case 'e', 'l': // with BSD, -l has no value, and a script may follow
			if v.Text == "" {
				v = next()
			}
			*scripts = append(*scripts, v)
			return letter == 'e'
		case 'f':
			w.doubt(Power, i, word.Text, "sed runs a script that is in a file")
			return true
		case 'i', 'I':
			return false // the rest is a suffix
		}
	}
	return false
}

// sedRuns reads a script of sed as GNU sed does. It is true for the commands e, w and W, the flags e and w of s, and what it does not know.
func sedRuns(s string) bool {
	for {
		s = strings.TrimLeft(s, " \t\n;}")
		var ok bool
		if s, ok = sedAddress(s); !ok {
			return true
		}
		if s == "" {
			return false
		}
		c := s[0]
		s = s[1:]
		switch c {
		case '{', '=', 'd', 'D', 'g', 'G', 'h', 'H', 'l', 'n', 'N', 'p', 'P', 'x', 'F', 'z':
		case 'q', 'Q', 'L':
			s = strings.TrimLeft(s, " 0123456789")
		case 's', 'y':
			if s == "" {
				return true
			}
			d := s[0]
			s = s[1:]
			for _, regex := range [...]bool{c == 's', false} {
				if s, ok = sedUntil(s, d, regex); !ok {
					return true
				}
			}
			flags := s[:len(s)-len(strings.TrimLeft(s, "gpiImMew0123456789"))]
			if strings.ContainsAny(flags, "ew") {
				return true
			}
			s = s[len(flags):]
		case 'a', 'i', 'c', 'r', 'R', '#':
			var rest string
			if rest, s, _ = strings.Cut(s, "\n"); strings.HasSuffix(rest, `\`) {
				return true // it goes on in the next line
			}
		case 'b', 't', 'T', ':':
			if end := strings.IndexAny(s, "\n;}"); end >= 0 {
				s = s[end:]
			} else {
				s = ""
			}
		default:
			return true
		}
	}
}

func sedAddress(s string) (rest string, ok bool) {
	for s != "" {
		switch c := s[0]; {
		case c >= '0' && c <= '9', strings.IndexByte("$,~+! \t", c) >= 0:
			s = s[1:]
		case c == '/':
			if s, ok = sedUntil(s[1:], '/', true); !ok {
				return s, false
			}
			s = strings.TrimLeft(s, "IM")
		case c == '\\' && len(s) > 1:
			if s, ok = sedUntil(s[2:], s[1], true); !ok {
				return s, false
			}
			s = strings.TrimLeft(s, "IM")
		default:
			return s, true
		}
	}
	return s, true
}

// sedUntil returns what follows the next d that has no backslash before it. In a regular expression, one in brackets ends it or not, depending on
// the version of sed: then ok is false.
func sedUntil(s string, d byte, regex bool) (rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case c == d:
			return s[i+1:], true
		case c == '[' && regex:
			n := bracket(s[i:])
			if n < 0 || strings.IndexByte(s[i:i+n], d) >= 0 {
				return "", false
			}
			i += n - 1
		}
	}
	return "", false
}

// bracket is the length of the bracket expression that s begins with (POSIX XBD 9.3.5), or -1 where it has no end or readers may differ in where
// that is.
func bracket(s string) int {
	i := 1
	if strings.HasPrefix(s[i:], "^") {
		i++
	}
	if strings.HasPrefix(s[i:], "]") {
		i++
	}
	for ; i < len(s); i++ {
		switch s[i] {
		case ']':
			return i + 1
		case '\\':
			if i+1 < len(s) && s[i+1] == ']' {
				return -1
			}
		case '[':
			if i+1 < len(s) && strings.IndexByte(":.=", s[i+1]) >= 0 {
				n := strings.Index(s[i+2:], s[i+1:i+2]+"]")
				if n < 0 {
					return -1
				}
				i += n + 3
			}
		}
	}
	return -1
}
