package shell

import (
	"regexp"
	"strings"
)

// power tells which words of a program make it do more than its name says: options that run a program, or write a file.
type power struct {
	options []string // as long options, in any beginning that is theirs alone; as short ones, in clusters too
	words   []string // subcommands
	writes  []string // options whose value is a file that is written
	values  string   // letters of short options that take a value, where clusters matter
	stdin   bool     // without further words, it runs what it is given
	always  string   // why to ask in any case
}

var powers = map[string]power{
	"git": {options: []string{"--config-env", "--exec-path", "--git-dir", "--work-tree", "--upload-pack", "--receive-pack", "--exec", "--ext-diff",
		"--open-files-in-pager", "--template", "--extcmd", "--config", "--tool", "--to-cmd", "--sendmail-cmd", "--separate-git-dir"},
		words: []string{"bisect", "submodule", "filter-branch", "difftool", "mergetool", "config", "send-email", "instaweb", "daemon", "shell", "hook", "web--browse",
			"credential", "remote-ext", "for-each-repo", "cvsserver", "p4", "svn", "gui", "citool"},
		writes: []string{"--output", "--output-directory"}},
	"tar":    {options: []string{"--checkpoint-action", "--to-command", "-I", "--use-compress-program", "--rsh-command", "-F", "--info-script", "--new-volume-script", "--rmt-command", "-P", "--absolute-names"}, values: "fCbIFTXKNVgHL"},
	"bsdtar": {options: []string{"--use-compress-program"}},
	"rsync":  {options: []string{"-e", "--rsh", "--rsync-path", "--daemon", "--config", "--early-input"}, values: "efMTB"},
	"scp":    {options: []string{"-S", "-o", "-F", "-D"}, values: "SoFDJPilcX"},
	"sftp":   {options: []string{"-S", "-o", "-F", "-D", "-b"}, values: "SoFDJPilcXb"},
	"curl":   {options: []string{"-K", "--config", "--engine", "--proxy-command"}, writes: []string{"-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii", "--stderr", "--output-dir", "--etag-save", "--hsts", "--alt-svc", "--libcurl"}, values: "KoDcAbdeEFHmPQrtTuUwxXyYzC"},
	"wget":   {options: []string{"--use-askpass", "--config", "-e", "--execute"}, writes: []string{"-O", "--output-document", "-o", "--output-file", "-a", "--append-output", "-P", "--directory-prefix", "--save-cookies"}, values: "OoaPeiBtTwQUlARDIXn"},
	"sort":   {options: []string{"--compress-program"}, writes: []string{"-o", "--output"}, values: "okStT"},
	"zip":    {options: []string{"-TT", "--unzip-command"}},
	"man":    {options: []string{"-P", "--pager", "-H", "--html"}, values: "PHCLmMSsReEpr"},
	"less":   {always: "can run commands from within"}, "more": {always: "can run commands from within"},
	"rg":      {options: []string{"--pre", "--hostname-bin"}},
	"bat":     {options: []string{"--pager", "--diff"}},
	"tcpdump": {options: []string{"-z"}, writes: []string{"-w"}, values: "zwirFCGWsBcejMTyE"},
	"nmap":    {options: []string{"--script", "--interactive"}, writes: []string{"-oN", "-oX", "-oG", "-oA"}},
	"go":      {options: []string{"-exec", "-toolexec", "-overlay"}, words: []string{"run", "generate", "tool"}, writes: []string{"-o"}},
	"cargo":   {options: []string{"--config"}},
	"npm":     {options: []string{"--script-shell", "--node-options", "--prefix", "-C"}, words: []string{"exec", "x", "explore", "edit", "config", "init", "create"}},
	"pnpm":    {options: []string{"--script-shell", "-C", "--dir"}, words: []string{"exec", "dlx", "create"}},
	"yarn":    {options: []string{"--cwd"}, words: []string{"exec", "dlx", "create", "node"}},
	"npx":     {always: "fetches a package and runs it"}, "bunx": {always: "fetches a package and runs it"}, "uvx": {always: "fetches a package and runs it"},
	"pipx": {words: []string{"run"}},
	"uv":   {words: []string{"run", "tool"}},
	"bun":  {options: []string{"-e", "--eval", "-p", "--print", "-r", "--preload"}, words: []string{"x", "run", "exec"}, stdin: true},
	"deno": {words: []string{"eval", "repl", "run"}, stdin: true},
	"make": {options: []string{"--eval", "-E"}}, "gmake": {options: []string{"--eval", "-E"}},
	"cmake":   {options: []string{"-E", "-P"}},
	"docker":  {options: []string{"-v", "--volume", "--mount", "--privileged", "--pid", "--device", "--cap-add", "-H", "--host", "--security-opt"}, words: []string{"exec", "run", "cp", "plugin"}, values: "vHepwultmchf"},
	"podman":  {options: []string{"-v", "--volume", "--mount", "--privileged", "--pid", "--device", "--cap-add", "--url"}, words: []string{"exec", "run", "cp", "unshare"}, values: "vepwultmchf"},
	"kubectl": {options: []string{"--kubeconfig", "--as"}, words: []string{"exec", "cp", "debug", "attach", "proxy", "edit", "plugin"}},
	"psql":    {options: []string{"-c", "--command", "-f", "--file"}, writes: []string{"-o", "--output", "-L", "--log-file"}, values: "cfdhpUvPFRTLo", stdin: true},
	"mysql":   {options: []string{"-e", "--execute", "--pager"}, stdin: true}, "mariadb": {options: []string{"-e", "--execute", "--pager"}, stdin: true},
	"sqlite3": {options: []string{"-cmd", "-init"}, stdin: true},
	"openssl": {options: []string{"-engine", "-provider-path"}, writes: []string{"-out"}},
	"python":  {options: []string{"-c", "-m", "-i"}, stdin: true, values: "cmWX"},
	"node":    {options: []string{"-e", "--eval", "-p", "--print", "-r", "--require", "--import", "--loader", "--experimental-loader", "-i", "--interactive"}, stdin: true, values: "eprC"},
	"perl":    {options: []string{"-e", "-E", "-n", "-p", "-M", "-m"}, stdin: true, values: "eEMmIFVlCDxiT"},
	"ruby":    {options: []string{"-e", "-n", "-p", "-r"}, stdin: true, values: "erICEFKTWx"},
	"php":     {options: []string{"-r", "-B", "-R", "-E", "-d", "-a", "--run"}, stdin: true, values: "rBREdzcfFSt"},
	"lua":     {options: []string{"-e", "-l", "-i"}, stdin: true, values: "el"},
	"luajit":  {options: []string{"-e", "-l", "-i"}, stdin: true, values: "el"},
	"r":       {options: []string{"-e"}, stdin: true}, "rscript": {options: []string{"-e"}}, "julia": {options: []string{"-e", "-E", "--eval", "--print"}, stdin: true},
	"tclsh": {stdin: true}, "guile": {options: []string{"-c", "-e", "-l"}, stdin: true}, "ghc": {options: []string{"-e", "-F", "-pgmF"}}, "jshell": {always: "runs what it is given"},
	"awk": {options: []string{"-f", "-i", "-l", "-E", "--file", "--include", "--load", "--exec"}, values: "fvFilE"}, "sed": {},
	"xdg-open": {always: "opens a file with a program that is looked up elsewhere"}, "open": {always: "opens a file with a program that is looked up elsewhere"},
	"crontab": {always: "sets commands that run later"},
	"ansible": {always: "runs commands on other machines"}, "salt": {always: "runs commands on other machines"},
	"split": {options: []string{"--filter"}},
	"dpkg":  {options: []string{"--pre-invoke", "--post-invoke"}}, "apt": {options: []string{"-o", "--option", "-c", "--config-file"}, values: "otca"},
	"apt-get":   {options: []string{"-o", "--option", "-c", "--config-file"}, values: "otca"},
	"rpm":       {options: []string{"--eval", "--pipe", "-E"}},
	"pip":       {options: []string{"--python"}, words: []string{"config"}},
	"systemctl": {options: []string{"-H", "--host", "-M", "--machine"}, words: []string{"edit", "link", "set-environment", "import-environment"}},
	"ld.so":     {always: "runs the program that it is given"}, "qemu-x86_64": {always: "runs the program that it is given"}, "valgrind": {always: "runs the program that it is given"}, "perf": {always: "runs the program that it is given"},
}

var aliases = map[string]string{
	"python2": "python", "python3": "python", "pypy": "python", "pypy3": "python", "ipython": "python", "nodejs": "node", "gawk": "awk", "mawk": "awk", "nawk": "awk", "gsed": "sed", "gtar": "tar",
	"gfind": "find", "egrep": "grep", "fgrep": "grep", "pip3": "pip", "lua5.4": "lua", "lua5.3": "lua",
}

var (
	versioned = regexp.MustCompile(`^(python|perl|ruby|php|lua|node|tclsh)-?[0-9][0-9.]*$`)
	loader    = regexp.MustCompile(`^ld(-linux|-musl|64)?[-.\w]*\.so(\.\d+)?$`)
)

// program doubts what a program's words make it do beyond its name, and notes what it writes.
func (w *walker) program(i int, name string, words []Word, o origin) {
	if a, ok := aliases[name]; ok {
		name = a
	} else if m := versioned.FindStringSubmatch(name); m != nil {
		name = m[1]
	} else if loader.MatchString(name) {
		name = "ld.so"
	}
	p, ok := powers[name]
	if !ok {
		return
	}
	if p.always != "" {
		w.doubt(Power, i, words[0].Text, "%s %s", name, p.always)
	}
	if o.open && len(p.options)+len(p.words) > 0 {
		w.doubt(Power, i, "", "%s gets words from elsewhere, which may be options that run a program", name)
	}
	switch name {
	case "git":
		w.git(i, words)
	case "sed":
		w.sed(i, words, o)
	case "tar":
		if len(words) > 1 && words[1].Text != "" && words[1].Text[0] != '-' && strings.ContainsAny(words[1].Text, "IF") {
			w.doubt(Power, i, words[1].Text, "tar %s can run a program", show(words[1].Text))
		}
	}
	plain := false
	for at := 1; at < len(words); at++ {
		word := words[at]
		text := word.Text
		if name == "awk" && (strings.ContainsAny(text, "|>@") || strings.Contains(text, "system") || strings.Contains(text, "getline")) {
			w.doubt(Power, i, text, "awk may run a program or write a file by %s", show(text))
		}
		if !word.Known && word.Split && len(p.options) > 0 && !strings.HasPrefix(text, "./") && !strings.HasPrefix(text, "/") {
			w.doubt(Power, i, text, "%s may be an option of %s that runs a program", show(text), name)
		}
		if opt, _, _ := p.match(p.options, text); opt != "" {
			written, _, _ := strings.Cut(text, "=")
			w.doubt(Power, i, written, "%s %s can run a program, or reach what it otherwise does not", name, opt)
		} else if opt, value, attached := p.match(p.writes, text); opt != "" {
			to := Word{Text: value, Known: word.Known}
			if !attached && at+1 < len(words) {
				at++
				to = words[at]
			}
			w.out.Writes = append(w.out.Writes, to)
		}
		if strings.HasPrefix(text, "-") {
			continue
		}
		plain = true
		for _, sub := range p.words {
			if text == sub {
				w.doubt(Power, i, sub, "%s %s can run a program, or change how others run", name, sub)
			}
		}
	}
	if p.stdin && !plain {
		if o.input != nil || len(words) == 1 || words[len(words)-1].Text == "-" {
			w.doubt(Opaque, i, "", "%s runs what it is given on its input", name)
		}
	}
	if name == "ld.so" {
		w.wrapped(i, words, o)
	}
}

// git doubts short options, whose meaning depends on where they stand, and addresses that run a program.
func (w *walker) git(i int, words []Word) {
	sub := ""
	for at := 1; at < len(words); at++ {
		text := words[at].Text
		switch {
		case strings.Contains(text, "ext::"):
			w.doubt(Power, i, text, "git runs a program for the address %s", show(text))
		case !strings.HasPrefix(text, "-"):
			if sub == "" {
				sub = text
			}
		case sub == "" && (strings.HasPrefix(text, "-c") || strings.HasPrefix(text, "-C")):
			w.doubt(Power, i, text, "git %s can run a program by its settings", show(text))
			if len(text) == 2 {
				at++
			}
		case sub == "" && (text == "--git-dir" || text == "--work-tree" || text == "--namespace" || text == "--config-env"):
			at++ // doubted as an option
		case sub != "" && !strings.HasPrefix(text, "--") && strings.ContainsAny(text[1:], gitShort[sub]):
			w.doubt(Power, i, text, "git %s %s can run a program", sub, show(text))
		}
	}
}

var gitShort = map[string]string{"clone": "uc", "rebase": "x", "grep": "O", "difftool": "xt", "mergetool": "t", "archive": "o"}

// wrapped adds what the dynamic loader runs.
func (w *walker) wrapped(i int, words []Word, o origin) {
	for at := 1; at < len(words); at++ {
		if !strings.HasPrefix(words[at].Text, "-") {
			o = o.in(w.out.Commands[i].Name())
			w.command(words[at:], o)
			return
		}
	}
}

// match tells which of a list of options a word is: whole, as the beginning of a long one, or in a cluster of short ones.
func (p power) match(list []string, text string) (opt, value string, attached bool) {
	if len(text) < 2 || text[0] != '-' {
		return "", "", false
	}
	name, value, attached := strings.Cut(text, "=")
	for _, o := range list {
		if o == name {
			return o, value, attached
		}
	}
	if strings.HasPrefix(text, "--") {
		for _, o := range list {
			if len(name) > 3 && strings.HasPrefix(o, name) {
				return o, value, attached
			}
		}
		return "", "", false
	}
	for j := 1; j < len(text); j++ {
		for _, o := range list {
			if len(o) == 2 && o[1] == text[j] {
				return o, strings.TrimPrefix(text[j+1:], "="), j+1 < len(text)
			}
		}
		if strings.IndexByte(p.values, text[j]) >= 0 {
			break
		}
	}
	return "", "", false
}

// steers tells why setting a variable changes what runs; empty for one that does not.
func steers(name string) string {
	for _, p := range [...]string{"LD_", "DYLD_", "BASH_FUNC_", "GIT_", "SSH_ASKPASS", "npm_config_", "NPM_CONFIG_", "CARGO_", "RUSTC", "SKEP_"} {
		if strings.HasPrefix(name, p) {
			return "changes what programs load or run"
		}
	}
	switch name {
	case "PATH":
		return "changes which programs are found"
	case "IFS":
		return "changes how commands are split"
	case "HOME":
		return "changes which settings programs read"
	case "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS1", "PS4", "SHELL", "SHELLOPTS", "BASHOPTS", "BASH_LOADABLES_PATH", "BASH_ALIASES", "BASH_CMDS", "CDPATH", "ZDOTDIR", "FPATH",
		"PAGER", "MANPAGER", "EDITOR", "VISUAL", "BROWSER", "LESSOPEN", "LESSCLOSE", "LESS", "LESSKEY", "SUDO_ASKPASS", "SUDO_EDITOR", "FCEDIT", "TAR_OPTIONS", "RSYNC_RSH",
		"PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONWARNINGS", "PYTHONBREAKPOINT", "PERL5LIB", "PERL5OPT", "PERL5DB", "PERLLIB", "RUBYOPT", "RUBYLIB", "NODE_OPTIONS", "NODE_PATH",
		"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "GOFLAGS", "GOROOT", "CC", "CXX", "MAKEFLAGS", "MAKEFILES", "OPENSSL_CONF", "TERMINFO", "XDG_CONFIG_HOME", "CURL_HOME", "DOCKER_HOST",
		"KUBECONFIG", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "LUA_INIT", "PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "RES_OPTIONS":
		return "changes what programs load or run"
	}
	return ""
}
