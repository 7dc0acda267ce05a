package shell

import "strings"

// sed doubts scripts that run a program or write a file, and those that cannot be followed.
func (w *walker) sed(i int, words []Word, o origin) {
	var scripts []Word
	given := false // by an option
	for at := 1; at < len(words); at++ {
		text := words[at].Text
		switch {
		case text == "--":
		case text == "-e" || text == "--expression" || strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "--") && strings.HasSuffix(text, "e"):
			if at++; at < len(words) {
				scripts, given = append(scripts, words[at]), true
			}
		case strings.HasPrefix(text, "--expression="):
			scripts, given = append(scripts, Word{Text: text[len("--expression="):], Known: words[at].Known}), true
		case strings.HasPrefix(text, "-e"):
			scripts, given = append(scripts, Word{Text: text[2:], Known: words[at].Known}), true
		case text == "-f" || strings.HasPrefix(text, "--f") || strings.HasPrefix(text, "-f"):
			w.doubt(Power, i, text, "sed runs a script that is in a file")
			given = true
		case strings.HasPrefix(text, "-"):
		case !given && len(scripts) == 0:
			scripts = append(scripts, words[at])
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
			for range 2 {
				if s, ok = sedUntil(s, d); !ok {
					return true
				}
			}
			flags := s[:len(s)-len(strings.TrimLeft(s, "gpiImMew0123456789"))]
			if strings.ContainsAny(flags, "ew") {
				return true
			}
			s = s[len(flags):]
		case 'a', 'i', 'c', 'r', 'R', '#':
			_, s, _ = strings.Cut(s, "\n")
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
			if s, ok = sedUntil(s[1:], '/'); !ok {
				return s, false
			}
			s = strings.TrimLeft(s, "IM")
		case c == '\\' && len(s) > 1:
			if s, ok = sedUntil(s[2:], s[1]); !ok {
				return s, false
			}
			s = strings.TrimLeft(s, "IM")
		default:
			return s, true
		}
	}
	return s, true
}

// sedUntil returns what follows the next d that has no backslash before it and stands in no brackets.
func sedUntil(s string, d byte) (rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case d:
			return s[i+1:], true
		}
	}
	return "", false
}
