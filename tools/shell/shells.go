package shell

import "strings"

// shellTable has the shells whose grammar is near enough to bash's for what is given to them to be parsed.
func shellTable() map[string]runner {
	out := map[string]runner{"source": (*walker).source, ".": (*walker).source}
	for _, name := range []string{"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "rbash", "lksh", "yash"} {
		out[name] = (*walker).shell
	}
	return out
}

func (w *walker) source(i int, words []Word, _ origin) {
	file := "a file"
	if len(words) > 1 {
		file = show(words[1].Text)
	}
	w.doubt(Opaque, i, "", "what is in %s is run, and not known here", file)
}

// shell parses what a shell is given to run: by -c, or on its input where that stands in the text.
func (w *walker) shell(i int, words []Word, o origin) {
	name := w.out.Commands[i].Name()
	wrap := &w.out.Commands[i].Wrapper
	at, inline, stdin := 1, false, false
	for ; at < len(words); at++ {
		text := words[at].Text
		if !words[at].Known || len(text) < 2 || text[0] != '-' && text[0] != '+' {
			break
		}
		if text == "--" {
			at++
			break
		}
		if strings.HasPrefix(text, "--") {
			switch text {
			case "--rcfile", "--init-file":
				w.doubt(Opaque, i, "", "%s %s runs a file, and what is in it is not known here", name, text)
				at++
			case "--login", "--noprofile", "--norc", "--posix", "--verbose", "--noediting", "--restricted", "--version", "--help":
			default:
				w.doubt(Opaque, i, "", "%s is run with the option %s, which is not known", name, show(text))
			}
			continue
		}
		inline = inline || text[0] == '-' && strings.ContainsRune(text, 'c')
		stdin = stdin || strings.ContainsRune(text, 's')
		for range strings.Count(text, "o") + strings.Count(text, "O") {
			at++
		}
		if strings.ContainsRune(text, 'i') || strings.ContainsRune(text, 'l') {
			w.doubt(Power, i, text, "%s %s runs start-up files", name, show(text))
		}
	}
	rest := words[min(at, len(words)):]
	switch {
	case inline && len(rest) > 0 && rest[0].Known:
		*wrap = true
		w.script(rest[0].Text, o.in(name+" -c"))
	case inline:
		*wrap = true
		w.doubt(Opaque, i, "", "%s -c runs what is not known before it runs", name)
	case len(rest) > 0 && rest[0].Text != "-" && !stdin:
		if rest[0].Known && !strings.HasPrefix(rest[0].Text, "/dev/") && !strings.HasPrefix(rest[0].Text, "/proc/") {
			w.doubt(Power, i, rest[0].Text, "what is in %s is run, and not known here", show(rest[0].Text))
		} else {
			w.doubt(Opaque, i, "", "%s runs what is not known before it runs", name)
		}
	case o.input != nil && o.input.Known && !o.open:
		*wrap = true
		w.script(o.input.Text, o.in(name))
	default:
		*wrap = true
		w.doubt(Opaque, i, "", "%s runs what it is given on its input", name)
	}
}

// subscriptTable has the builtins that run commands which stand in subscripts, quoted or not.
func subscriptTable() map[string]runner {
	out := map[string]runner{}
	for _, name := range []string{"test", "[", "printf", "read", "unset", "mapfile", "readarray", "let", "getopts", "wait"} {
		out[name] = func(w *walker, i int, words []Word, _ origin) {
			for j, word := range words[1:] {
				if hidesCode(word.Text) && word.Known {
					w.doubt(Opaque, i, "", "a subscript in quotes may run a command")
				}
				if name == "read" || name == "printf" && j > 0 && words[j].Text == "-v" {
					w.assigned(word.Text)
				}
				if (name == "mapfile" || name == "readarray") && word.Text == "-C" {
					w.doubt(Opaque, i, "", "%s -C runs a command for each line", name)
				}
			}
		}
	}
	return out
}

// opaqueTable has the programs that run what they are given, in ways or languages that are not followed.
func opaqueTable() map[string]runner {
	out := map[string]runner{}
	for reason, names := range map[string][]string{
		"makes commands of what it reads":                        {"parallel", "rush", "entr"},
		"runs commands later":                                    {"at", "batch", "systemd-run"},
		"starts a terminal of its own, and runs commands in it":  {"tmux", "screen", "expect", "dtach", "abduco", "zellij"},
		"runs commands in a language that is not followed":       {"fish", "csh", "tcsh", "nu", "elvish", "xonsh", "rc", "pwsh", "powershell", "cmd", "wsl", "osascript", "gdb", "lldb", "m4", "bpftrace", "dtrace", "stap"},
		"can give a name another meaning":                        {"hash", "enable", "bind", "complete", "shopt"},
		"can give a connection to a program":                     {"socat", "ncat", "nc", "netcat", "telnet"},
		"edits, and runs what its own commands tell it to":       {"ed", "ex", "vi", "vim", "nvim", "vimdiff", "view", "emacs", "nano", "pico", "joe"},
		"runs a program with a name that is looked up elsewhere": {"fc", "coproc", "run-parts", "start-stop-daemon", "rlwrap", "bwrap", "firejail", "proot"},
	} {
		for _, name := range names {
			out[name] = func(w *walker, i int, words []Word, _ origin) {
				if len(words) == 1 && (name == "hash" || name == "shopt" || name == "enable" || name == "complete") {
					return
				}
				w.doubt(Opaque, i, "", "%s %s", name, reason)
			}
		}
	}
	return out
}
