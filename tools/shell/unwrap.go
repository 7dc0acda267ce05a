package shell

import "strings"

// wrapper tells where the command of a program that runs another begins.
type wrapper struct {
	values  string   // letters of short options that take a value
	flags   string   // letters of those that take none; one that takes a value only if it is attached counts as such, followed by '?'
	longs   []string // long options whose value is the next word
	bare    []string // long options without a value; those with = are known by that
	skip    int      // words before the command
	assigns bool     // NAME=VALUE words before the command
	digits  bool     // -5 is an option
	open    bool     // the command gets further words from elsewhere
	power   string   // why to ask
}

var wrappers = map[string]wrapper{
	"env": {values: "uCS", flags: "i0v", longs: []string{"--unset", "--chdir", "--split-string", "--argv0"},
		bare: []string{"--ignore-environment", "--null", "--debug", "--block-signal", "--default-signal", "--ignore-signal", "--list-signal-handling"}, assigns: true},
	"timeout":  {values: "sk", flags: "vfp", longs: []string{"--signal", "--kill-after"}, bare: []string{"--foreground", "--preserve-status", "--verbose"}, skip: 1},
	"gtimeout": {values: "sk", flags: "vfp", longs: []string{"--signal", "--kill-after"}, bare: []string{"--foreground", "--preserve-status", "--verbose"}, skip: 1},
	"nice":     {values: "n", longs: []string{"--adjustment"}, digits: true},
	"nohup":    {},
	"setsid":   {flags: "cfw", bare: []string{"--ctty", "--fork", "--wait"}},
	"stdbuf":   {values: "ioe", longs: []string{"--input", "--output", "--error"}},
	"ionice":   {values: "cnpPu", flags: "t", longs: []string{"--class", "--classdata"}, bare: []string{"--ignore"}},
	"chrt":     {values: "TPD", flags: "abdfiorv", skip: 1},
	"taskset":  {flags: "ac", bare: []string{"--all-tasks", "--cpu-list"}, skip: 1},
	"time":     {values: "fo", flags: "apvqV", longs: []string{"--format", "--output"}, bare: []string{"--append", "--portability", "--verbose", "--quiet"}},
	"command":  {flags: "p"},
	"builtin":  {},
	"exec":     {values: "a", flags: "cl"},
	"busybox":  {}, "toybox": {}, "unbuffer": {flags: "p"}, "fakeroot": {}, "chronic": {flags: "ve"}, "catchsegv": {}, "linux32": {}, "linux64": {}, "nocache": {},
	"caffeinate": {values: "tw", flags: "dimsu"},
	"setarch":    {skip: 1, flags: "RLXZ3BFIST"},
	"noglob":     {}, "nocorrect": {}, "-": {},
	"xargs": {values: "adEILnPs", flags: "0prtxoi?l?e?", longs: []string{"--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars", "--process-slot-var"},
		bare: []string{"--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--open-tty", "--replace", "--max-lines", "--eof"}, open: true},
	"sudo": {values: "ughpCTrtDRUac", flags: "AbEHknPSsVviB", assigns: true, power: "runs as another user",
		longs: []string{"--user", "--group", "--host", "--prompt", "--close-from", "--command-timeout", "--role", "--type", "--chdir", "--chroot", "--other-user"},
		bare:  []string{"--askpass", "--background", "--preserve-env", "--set-home", "--login", "--shell", "--non-interactive", "--reset-timestamp", "--stdin"}},
	"doas":    {values: "uC", flags: "Lns", power: "runs as another user"},
	"pkexec":  {longs: []string{"--user"}, bare: []string{"--disable-internal-agent", "--keep-cwd"}, power: "runs as another user"},
	"gosu":    {skip: 1, power: "runs as another user"},
	"su-exec": {skip: 1, power: "runs as another user"},
	"run0":    {longs: []string{"--user", "--group", "--chdir", "--unit"}, power: "runs as another user"},
	"chroot":  {longs: []string{"--userspec", "--groups"}, bare: []string{"--skip-chdir"}, skip: 1, power: "runs in another root folder"},
	"unshare": {values: "SGRw", flags: "imnpuUfrcCT", power: "runs in other namespaces",
		bare: []string{"--mount", "--uts", "--ipc", "--net", "--pid", "--user", "--cgroup", "--time", "--fork", "--map-root-user", "--map-current-user", "--mount-proc", "--keep-caps", "--kill-child"}},
	"nsenter": {values: "tSG", flags: "am?u?i?n?p?C?U?T?FZer?w?", longs: []string{"--target", "--setuid", "--setgid"}, power: "runs in the namespaces of another process",
		bare: []string{"--all", "--mount", "--uts", "--ipc", "--net", "--pid", "--user", "--cgroup", "--time", "--root", "--wd", "--no-fork", "--preserve-credentials"}},
	"strace": {values: "oeEpsuaIOPSbX", flags: "cCdfFiqrtTvwxyYzZk", power: "can run a program on what it traces"},
	"ltrace": {values: "oepsuanAFlx", flags: "bcCfirStTL", power: "can run a program on what it traces"},
}

// command adds a command and, if it is a wrapper, what it wraps.
func (w *walker) command(words []Word, o origin) {
	if len(words) == 0 {
		return
	}
	if len(w.out.Commands) >= MaxCommands {
		w.opaque("there are more than %d commands", MaxCommands)
		return
	}
	c := Command{Words: words, Open: o.open, Via: o.via, Parent: -1}
	if o.inner {
		c.Parent, c.At = o.under, o.at
	}
	i := len(w.out.Commands)
	w.out.Commands = append(w.out.Commands, c)
	if o.depth > maxUnwrap {
		w.opaque("commands are wrapped in commands more than %d deep", maxUnwrap)
		return
	}
	if !words[0].Known || words[0].Text == "" || o.repl != "" && strings.Contains(words[0].Text, o.repl) {
		w.doubt(Opaque, i, "", "what is run is not known before it runs: %s", show(words[0].Text))
		return
	}
	name := c.Name()
	if strings.ContainsFunc(words[0].Text, func(r rune) bool { return r > 0x7e || r < ' ' }) {
		w.doubt(Opaque, i, "", "the name of the program %s has letters that look like others", show(words[0].Text))
		return
	}
	if f := runners()[name]; f != nil {
		f(w, i, words, o)
		return
	}
	if wr, ok := wrappers[name]; ok {
		w.unwrap(i, name, wr, words, o)
		return
	}
	w.program(i, name, words, o)
}

// unwrap finds the command that words run by way of wr.
func (w *walker) unwrap(i int, name string, wr wrapper, words []Word, o origin) {
	w.out.Commands[i].Wrapper = true
	if wr.power != "" {
		w.doubt(Power, i, name, "%s %s", name, wr.power)
	}
	at, opts, ok := wr.options(words)
	at = min(at, len(words))
	if !ok {
		w.doubt(Opaque, i, "", "%s is run with options that are not known, so what it runs is not", name)
		return
	}
	o = o.in(name)
	for _, opt := range opts {
		switch {
		case name == "env" && opt.is("-S", "--split-string"):
			rest := make([]string, 0, len(words)-at)
			for _, x := range words[at:] {
				rest = append(rest, x.Text)
			}
			if !opt.value.Known || !known(words[at:]) {
				w.doubt(Opaque, i, "", "env -S runs what is not known before it runs")
				return
			}
			w.script(opt.value.Text+" "+strings.Join(quoteAll(rest), " "), o)
			return
		case name == "xargs" && opt.is("-I", "--replace", "-i"):
			if o.repl = opt.value.Text; o.repl == "" {
				o.repl = "{}"
			}
		case name == "sudo" && opt.is("-e", "--edit"):
			return
		case name == "sudo" && opt.is("-s", "--shell", "-i", "--login") && at >= len(words), name == "doas" && opt.is("-s"):
			w.doubt(Opaque, i, "", "%s starts a shell, which runs what it is given", name)
			return
		}
	}
	at += wr.skip
	for wr.assigns && at < len(words) {
		variable, _, ok := strings.Cut(words[at].Text, "=")
		if !ok || strings.HasPrefix(variable, "$") {
			break
		}
		w.assigned(variable)
		at++
	}
	if at >= len(words) {
		w.out.Commands[i].Wrapper = name == "xargs" // without a command, it does something of its own
		return
	}
	o.open = o.open || wr.open
	o.inner, o.under, o.at = true, i, at
	w.command(words[at:], o)
}

// option is one that was read.
type option struct {
	name  string
	value Word
}

func (o option) is(names ...string) bool {
	for _, n := range names {
		if n == o.name || strings.HasPrefix(n, "--") && len(o.name) > 2 && strings.HasPrefix(n, o.name) {
			return true
		}
	}
	return false
}

// options reads the options of a wrapper, and returns where they end. ok is false where one is not known.
func (wr wrapper) options(words []Word) (at int, opts []option, ok bool) {
	for at = 1; at < len(words); at++ {
		word := words[at]
		text := word.Text
		switch {
		case !word.Known:
			// What begins with an unknown word may be an option: only a part behind a known beginning is safe.
			if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "$") || text == "" {
				return at, opts, wr.skip > 0 && !word.Split || wr.assigns && strings.Contains(text, "=") && !strings.HasPrefix(text, "$")
			}
			return at, opts, true
		case text == "--":
			return at + 1, opts, true
		case text == "-" && wr.assigns:
			continue
		case text == "" || text[0] != '-' || text == "-":
			return at, opts, true
		case wr.digits && strings.Trim(text[1:], "0123456789-+") == "":
			continue
		case strings.HasPrefix(text, "--"):
			name, value, attached := strings.Cut(text, "=")
			takes := prefixed(wr.longs, name)
			if !takes && !prefixed(wr.bare, name) {
				return at, opts, false
			}
			opt := option{name: name, value: Word{Text: value, Known: true}}
			if !attached && takes {
				if at++; at < len(words) {
					opt.value = words[at]
				}
			}
			opts = append(opts, opt)
		default:
			for j := 1; j < len(text); j++ {
				letter := text[j : j+1]
				opt := option{name: "-" + letter}
				k := strings.Index(wr.flags, letter)
				takes := strings.Contains(wr.values, letter)
				loose := k >= 0 && k+1 < len(wr.flags) && wr.flags[k+1] == '?'
				if k < 0 && !takes {
					return at, opts, false
				}
				if takes || loose {
					opt.value = Word{Text: text[j+1:], Known: true}
					j = len(text)
					if takes && opt.value.Text == "" {
						if at++; at < len(words) {
							opt.value = words[at]
						}
					}
				}
				opts = append(opts, opt)
			}
		}
	}
	return at, opts, true
}

// prefixed tells whether name is one of list, or the beginning of one, as getopt_long has it.
func prefixed(list []string, name string) bool {
	for _, l := range list {
		if strings.HasPrefix(l, name) && len(name) > 2 {
			return true
		}
	}
	return false
}

func known(words []Word) bool {
	for _, w := range words {
		if !w.Known {
			return false
		}
	}
	return true
}

func quoteAll(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = Quote(w)
	}
	return out
}

// show clips what is shown of a command in a reason.
func show(s string) string {
	if s == "" {
		return "''"
	}
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}
