package shell

import (
	"maps"
	"strings"
	"sync"
)

// runner reads the words of a program that needs more than a table to tell what it runs. i is the index of the command.
type runner = func(w *walker, i int, words []Word, o origin)

var special struct {
	once  sync.Once
	table map[string]runner
}

// runners returns the special programs. The table refers to itself by way of its functions, so it is made when it is first needed.
func runners() map[string]runner {
	special.once.Do(func() { special.table = runnerTable() })
	return special.table
}

func runnerTable() map[string]runner {
	out := map[string]runner{
		"eval": (*walker).eval, "trap": (*walker).trap, "alias": (*walker).alias, "find": (*walker).find, "fd": (*walker).fd, "fdfind": (*walker).fd,
		"watch": (*walker).watch, "su": (*walker).su, "runuser": (*walker).su, "flock": (*walker).flock, "script": (*walker).typescript, "ssh": (*walker).ssh,
		"tee": (*walker).tee, "dd": (*walker).dd, "cd": (*walker).cd, "pushd": (*walker).cd, "popd": (*walker).cd, "command": (*walker).which, "builtin": (*walker).which,
	}
	maps.Copy(out, shellTable())
	maps.Copy(out, subscriptTable())
	maps.Copy(out, opaqueTable())
	return out
}

// eval runs its words as a command.
func (w *walker) eval(i int, words []Word, o origin) {
	w.out.Commands[i].Wrapper = true
	w.doubt(Power, i, "eval", "eval runs text as a command")
	if !known(words[1:]) || o.open {
		w.doubt(Opaque, i, "", "eval runs what is not known before it runs")
		return
	}
	w.script(join(words[1:]), o.in("eval"))
}

// trap runs its first word later.
func (w *walker) trap(i int, words []Word, o origin) {
	if len(words) < 3 || strings.HasPrefix(words[1].Text, "-") {
		return
	}
	w.doubt(Power, i, "trap", "trap runs text as a command later")
	if !words[1].Known {
		w.doubt(Opaque, i, "", "trap runs what is not known before it runs")
		return
	}
	w.script(words[1].Text, o.in("trap"))
}

func (w *walker) alias(i int, words []Word, o origin) {
	for _, word := range words[1:] {
		_, text, ok := strings.Cut(word.Text, "=")
		if !word.Known || ok {
			w.doubt(Opaque, i, "", "an alias gives a name another meaning")
		}
		if ok && word.Known {
			w.script(text, o.in("alias"))
		}
	}
}

// find runs what follows -exec, once for each file or once for many.
func (w *walker) find(i int, words []Word, o origin) {
	if o.open {
		w.doubt(Power, i, "find", "find gets options from elsewhere")
	}
	for at := 1; at < len(words); at++ {
		switch text := words[at].Text; text {
		case "-exec", "-execdir", "-ok", "-okdir":
			end := at + 1
			for end < len(words) && words[end].Text != ";" && !(words[end].Text == "+" && words[end-1].Text == "{}") {
				end++
			}
			w.each(words[at+1:end], "find", o)
			at = end
		case "-delete":
			w.doubt(Power, i, text, "find -delete deletes what it finds")
		case "-fprint", "-fprint0", "-fls", "-fprintf":
			if at++; at < len(words) {
				w.out.Writes = append(w.out.Writes, words[at])
			}
		default:
			if words[at].Split && !strings.ContainsAny(text, "*?[") {
				w.doubt(Power, i, "find", "find may get options from %s", show(text))
			}
		}
	}
}

// fd runs what follows -x or -X.
func (w *walker) fd(i int, words []Word, o origin) {
	for at := 1; at < len(words); at++ {
		text := words[at].Text
		if text == "-x" || text == "-X" || prefixed([]string{"--exec", "--exec-batch"}, text) {
			w.each(words[at+1:], "fd", o)
			return
		}
		if strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "--") && strings.ContainsAny(text, "xX") || strings.HasPrefix(text, "--exec") {
			w.doubt(Opaque, i, "", "fd runs what is not known")
		}
	}
}

// each adds a command that is run for files: {} stands for their names.
func (w *walker) each(words []Word, name string, o origin) {
	if len(words) == 0 {
		return
	}
	inner := make([]Word, len(words))
	for j, word := range words {
		if strings.Contains(word.Text, "{}") && j > 0 {
			word.Known = false
		}
		inner[j] = word
	}
	o = o.in(name)
	o.repl = "{}"
	w.command(inner, o)
}

// watch hands its words to sh -c, or runs them with -x.
func (w *walker) watch(i int, words []Word, o origin) {
	w.out.Commands[i].Wrapper = true
	wr := wrapper{values: "nq", flags: "bcd?egtprxwCf", longs: []string{"--interval", "--equexit"},
		bare: []string{"--beep", "--color", "--differences", "--errexit", "--chgexit", "--no-title", "--precise", "--exec", "--no-wrap"}}
	at, _, ok := wr.options(words)
	if !ok || !known(words[min(at, len(words)):]) || o.open {
		w.doubt(Opaque, i, "", "watch runs what is not known before it runs")
		return
	}
	if at < len(words) {
		w.script(join(words[at:]), o.in("watch"))
	}
}

// su runs what follows -c.
func (w *walker) su(i int, words []Word, o origin) {
	name := w.out.Commands[i].Name()
	w.out.Commands[i].Wrapper = true
	w.doubt(Power, i, name, "%s runs as another user", name)
	for at := 1; at < len(words)-1; at++ {
		if text := words[at].Text; (text == "-c" || text == "--command") && words[at+1].Known {
			w.script(words[at+1].Text, o.in(name))
			return
		} else if text == "--" && name == "runuser" {
			w.command(words[at+1:], o.in(name))
			return
		}
	}
	w.doubt(Opaque, i, "", "what %s runs cannot be read from its words", name)
}

// flock runs a command, or what follows -c.
func (w *walker) flock(i int, words []Word, o origin) {
	w.out.Commands[i].Wrapper = true
	wr := wrapper{values: "wE", flags: "sxenuoFv", longs: []string{"--timeout", "--conflict-exit-code", "--wait"},
		bare: []string{"--shared", "--exclusive", "--unlock", "--nonblock", "--nb", "--close", "--no-fork", "--verbose"}}
	at, _, ok := wr.options(words)
	if !ok || at >= len(words) {
		w.doubt(Opaque, i, "", "flock is run with options that are not known, so what it runs is not")
		return
	}
	if w.out.Writes = append(w.out.Writes, words[at]); at+1 >= len(words) {
		return
	}
	if rest := words[at+1:]; rest[0].Text == "-c" || rest[0].Text == "--command" {
		if len(rest) < 2 || !rest[1].Known {
			w.doubt(Opaque, i, "", "flock -c runs what is not known before it runs")
			return
		}
		w.script(rest[1].Text, o.in("flock"))
		return
	}
	o = o.in("flock")
	o.inner, o.under, o.at = true, i, at+1
	w.command(words[at+1:], o)
}

// typescript is script, which records a terminal.
func (w *walker) typescript(i int, words []Word, o origin) {
	w.out.Commands[i].Wrapper = true
	w.doubt(Power, i, "script", "script runs a shell and writes down what it shows")
	for at := 1; at < len(words)-1; at++ {
		text := words[at].Text
		if (text == "--command" || strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "--") && strings.HasSuffix(text, "c")) && words[at+1].Known {
			w.script(words[at+1].Text, o.in("script"))
			return
		}
	}
	w.doubt(Opaque, i, "", "what script runs cannot be read from its words")
}

// ssh runs its further words on another machine.
func (w *walker) ssh(i int, words []Word, o origin) {
	w.doubt(Power, i, "ssh", "ssh runs commands on another machine")
	wr := wrapper{values: "BbcDEeFIiJLlmOopQRSWw", flags: "46AaCfGgKkMNnqsTtVvXxYy"}
	at, opts, ok := wr.options(words)
	for _, opt := range opts {
		if opt.is("-o", "-F", "-S") {
			w.doubt(Power, i, opt.name, "ssh %s can set a program to run", opt.name)
		}
	}
	at++ // the host
	if !ok || at > len(words) || !known(words[at:]) || o.open || at == len(words) && o.input != nil && !o.input.Known {
		w.doubt(Opaque, i, "", "what ssh runs is not known before it runs")
		return
	}
	text := join(words[at:])
	if at == len(words) {
		if o.input == nil {
			w.doubt(Opaque, i, "", "ssh runs what it is given")
			return
		}
		text = o.input.Text
	}
	w.script(text, o.in("ssh"))
}

func (w *walker) tee(_ int, words []Word, _ origin) {
	for _, word := range words[1:] {
		if !strings.HasPrefix(word.Text, "-") {
			w.out.Writes = append(w.out.Writes, word)
		}
	}
}

func (w *walker) dd(_ int, words []Word, _ origin) {
	for _, word := range words[1:] {
		if to, ok := strings.CutPrefix(word.Text, "of="); ok {
			w.out.Writes = append(w.out.Writes, Word{Text: to, Known: word.Known})
		}
	}
}

func (w *walker) cd(int, []Word, origin) { w.out.Moves = true }

// which is command and builtin: with -v they only say what a name means.
func (w *walker) which(i int, words []Word, o origin) {
	if len(words) > 1 && strings.HasPrefix(words[1].Text, "-") && strings.ContainsAny(words[1].Text, "vV") {
		return
	}
	name := w.out.Commands[i].Name()
	w.unwrap(i, name, wrappers[name], words, o)
}

func join(words []Word) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w.Text
	}
	return strings.Join(out, " ")
}
