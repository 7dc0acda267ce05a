package image

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// What the base "host" has, of what this machine has. The first are needed; of a busybox there are links of most names.
var (
	hostNeeds = strings.Fields("sh env cat ls cp mv rm mkdir chmod git")
	hostLikes = strings.Fields(`
		bash [ arch awk base32 base64 basename bunzip2 bzip2 chgrp chown cksum cmp comm csplit curl cut date dd df diff diff3 dirname du echo egrep
		expand expr factor false fgrep find fmt fold free grep gunzip gzip head hostname id install join jq kill less link ln make md5sum mkfifo
		mktemp more nice nl nohup nproc numfmt od paste patch pathchk pgrep pidof pkill pr printenv printf ps pwd readlink realpath rg rmdir sed seq
		setsid sha1sum sha256sum sha512sum shred shuf sleep sort split stat stdbuf strings stty sync tac tail tar tee test timeout touch tr true
		truncate tsort tty uname unexpand uniq unlink unxz unzip uptime vi watch wc wget which whoami xargs xxd xz yes zcat zip`)
)

// systemPath is where programs of the host are looked for before the caller's own PATH: what is first there may be a wrapper of a version manager.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// caFiles are where Linux systems keep the certificates of the authorities that they trust, in one file.
var caFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// host puts together a root of what this machine has.
type host struct {
	tree   *tree
	linker *linker
	elf    []string        // programs whose libraries are still to be added
	done   map[string]bool // programs that were added, by real path
}

func newHost(t *tree) *host { return &host{tree: t, linker: newLinker(""), done: map[string]bool{}} }

// hostBase adds the base "host" to t: programs, or the usual ones when there are none, and more besides; with all libraries of them and of foreign, which
// are files that come from elsewhere.
func hostBase(t *tree, programs, more, foreign []string) error {
	h := newHost(t)
	h.elf = foreign
	if err := h.program("/bin/sh"); err != nil { // scripts say so
		return err
	}
	if len(programs) == 0 {
		programs = hostNeeds
		for _, name := range hostLikes {
			if err := h.program(name); err != nil && agent.KindOf(err) != agent.NotFound && agent.KindOf(err) != agent.Invalid {
				return err
			}
		}
	}
	for _, name := range slices.Concat(programs, more) {
		if err := h.program(name); err != nil {
			return err
		}
	}
	if err := h.libraries(); err != nil {
		return err
	}
	return h.system()
}

// lookUp finds a program of the host by name or path.
func lookUp(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	if !strings.Contains(name, "/") {
		for _, dir := range filepath.SplitList(systemPath) {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
		if file, err := exec.LookPath(name); err == nil && filepath.IsAbs(file) {
			return file, nil
		}
	}
	return "", &agent.Error{Kind: agent.NotFound, Msg: "this machine has no program " + name, Hint: "install it, or make the image with --base debian"}
}

// program adds a program by name or path; a script with its interpreter, git with its own programs.
func (h *host) program(name string) error {
	file, err := lookUp(name)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return agent.Wrap(agent.NotFound, err, "read the program "+file)
	}
	if !h.done[real] {
		if err := h.inside(real); err != nil {
			return err
		}
		h.done[real] = true
	}
	if err := h.tree.copyHost(file); err != nil {
		return agent.Wrap(agent.Invalid, err, "read the program "+file)
	}
	if base := filepath.Base(file); !slices.Contains(filepath.SplitList(systemPath), filepath.Dir(file)) {
		h.tree.symlink("/usr/local/bin/"+base, file)
	}
	if filepath.Base(file) == "git" {
		return h.git(real)
	}
	return nil
}

// inside looks into the file of a program: an ELF file gets its libraries later, a script its interpreter now.
func (h *host) inside(file string) error {
	interpreter, err := shebang(file)
	if err != nil {
		return agent.Wrap(agent.Invalid, err, "read the program "+file)
	}
	if interpreter == "" {
		h.elf = append(h.elf, file)
		return nil
	}
	switch filepath.Base(interpreter) {
	case "sh", "bash", "dash", "ash", "busybox":
		return h.program(interpreter)
	}
	return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%s is a script for %s: what such a script needs cannot be read from its file", file, interpreter),
		Hint: "make the image with --base debian and --package deb:NAME"}
}

// shebang returns the interpreter that the first line of a script names, over /usr/bin/env; "" when file is no script.
func shebang(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 2)
	if n, _ := f.Read(b); n < 2 || string(b) != "#!" {
		return "", nil
	}
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	words := strings.Fields(string(line))
	switch {
	case len(words) == 0:
		return "/bin/sh", nil
	case filepath.Base(words[0]) == "env" && len(words) > 1:
		return words[len(words)-1], nil
	}
	return words[0], nil
}

// gitSkips are programs of git that serve others, or send: none of them is of use in a box.
var gitSkips = strings.Fields("git-daemon git-http-backend git-http-fetch git-http-push git-imap-send git-shell git-instaweb scalar mergetools")

// git adds git's own programs, beside the one that is called, and its templates.
func (h *host) git(real string) error {
	prefix := filepath.Dir(filepath.Dir(real))
	for _, core := range []string{prefix + "/lib/git-core", prefix + "/libexec/git-core"} {
		if err := h.gitCore(core, real); err != nil {
			return err
		}
	}
	templates := prefix + "/share/git-core/templates"
	if _, err := os.Stat(templates); err != nil {
		return nil
	}
	return h.tree.copyTree(templates, templates, func(rel string, _ fs.DirEntry) bool { return strings.HasSuffix(rel, ".sample") })
}

func (h *host) gitCore(dir, git string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return agent.Wrap(agent.Invalid, err, "read git's programs")
	}
	main, err := os.Stat(git)
	if err != nil {
		return agent.Wrap(agent.Invalid, err, "read git")
	}
	for _, d := range list {
		file := filepath.Join(dir, d.Name())
		info, err := os.Stat(file)
		if err != nil || info.IsDir() || slices.Contains(gitSkips, d.Name()) {
			continue
		}
		if os.SameFile(info, main) { // a builtin: a link of one kind or the other
			h.tree.symlink(file, git)
			continue
		}
		switch interpreter, err := shebang(file); {
		case err != nil:
			return agent.Wrap(agent.Invalid, err, "read "+file)
		case interpreter == "" && info.Mode()&0o111 != 0 && d.Type().IsRegular():
			h.elf = append(h.elf, file)
		case interpreter != "" && filepath.Base(interpreter) != "sh": // Perl, Python
			continue
		}
		if err := h.tree.copyHost(file); err != nil {
			return agent.Wrap(agent.Invalid, err, "read "+file)
		}
	}
	return nil
}

// libraries adds the libraries of all programs, and those that libc loads by itself to look up names.
func (h *host) libraries() error {
	paths, err := h.linker.closure(h.elf...)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if filepath.Base(path) != "libc.so.6" {
			continue
		}
		for _, lib := range []string{"libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"} {
			if beside := filepath.Join(filepath.Dir(path), lib); isFile(beside) {
				paths = append(paths, beside)
			}
		}
	}
	for _, path := range paths {
		if err := h.tree.copyHost(path); err != nil {
			return agent.Wrap(agent.Invalid, err, "read the library "+path)
		}
	}
	return h.loaderFiles(paths)
}

// loaderFiles adds what tells a loader where libraries are, when one of them is where it would not look by itself.
func (h *host) loaderFiles(libraries []string) error {
	if !slices.ContainsFunc(libraries, func(lib string) bool { return !slices.Contains(h.linker.built, filepath.Dir(lib)) }) {
		return nil
	}
	files, _ := filepath.Glob("/etc/ld-musl-*.path")
	for _, file := range append(files, "/etc/ld.so.cache") {
		if !isFile(file) {
			continue
		}
		if err := h.tree.copyHost(file); err != nil {
			return agent.Wrap(agent.Invalid, err, "read "+file)
		}
	}
	return nil
}

// system adds what is no program: users, how names are looked up, certificates, the locale.
func (h *host) system() error {
	t := h.tree
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} { // links to /usr where the host has them
		if target, err := os.Readlink(dir); err == nil {
			t.symlink(dir, target)
		}
	}
	t.write("/etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n")
	t.write("/etc/os-release", 0o644, "ID=skep\nNAME=\"Skep host base\"\nPRETTY_NAME=\"Skep host base\"\n")
	t.write("/etc/passwd", 0o644, addUser(passwdRoot))
	t.write("/etc/group", 0o644, addGroup(groupRoot))
	for _, file := range caFiles {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			t.copyFile("/etc/ssl/certs/ca-certificates.crt", file, info)
			t.symlink("/etc/ssl/cert.pem", "certs/ca-certificates.crt")
			break
		}
	}
	for _, dir := range []string{"/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8"} { // without one of them programs speak plain ASCII
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := t.copyTree(dir, dir, nil); err != nil {
			return agent.Wrap(agent.Invalid, err, "read "+dir)
		}
	}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/etc", "/run", "/root", binDir} {
		t.dir(dir, 0o755, 0)
	}
	t.put("/tmp", entry{mode: stickyDir})
	t.put("/var/tmp", entry{mode: stickyDir})
	return nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
