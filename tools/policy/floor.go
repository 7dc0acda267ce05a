package policy

import (
	"path"
	"regexp"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/shell"
)

// floorItem is something that no rule and no approval can allow.
type floorItem struct {
	name   string
	reason string
	hits   func(*shell.Script) bool
}

// floorItems is the floor for commands. It is short on purpose: it holds what is never meant, and cannot be taken back.
var floorItems = []floorItem{
	{"delete everything", "it deletes a whole system or home folder", anyCommand(deletesRoot)},
	{"open everything", "it changes owner or mode of a whole system folder", anyCommand(opensRoot)},
	{"format", "it makes or wipes a file system on a device", anyCommand(formats)},
	{"write a device", "it writes to a disk or to memory past the file system", writesDevice},
	{"fork bomb", "it starts itself again and again until the machine stops", func(s *shell.Script) bool { return s.Bomb }},
	{"kill everything", "it ends every process", anyCommand(killsAll)},
	{"Skep's own settings", "it runs skep to change policy, tokens, secrets or approvals, which is for people", anyCommand(changesSkep)},
}

// floor returns why a call can never be allowed; "" for one that can.
func (p *Policy) floor(s *scene) string {
	if len(p.guarded) > 0 && p.reachesGuarded(s) {
		return "it reaches Skep's own data, which is for the server alone"
	}
	line := s.command()
	if line == nil || s.effect == agent.Read && !line.forced {
		return ""
	}
	for i := range floorItems {
		if floorItems[i].hits(line.script) {
			return floorItems[i].reason + ": this can never be allowed"
		}
	}
	return ""
}

// guardGlobs are patterns of a folder and all that is in it, also by way of a home folder.
func guardGlobs(p string) []*glob {
	p = path.Clean(p)
	list := []string{p}
	if at := parts(p); len(at) > 2 && at[1] == "root" {
		list = append(list, "~/"+strings.Join(at[2:], "/"))
	} else if len(at) > 3 && (at[1] == "home" || at[1] == "Users") {
		list = append(list, "~/"+strings.Join(at[3:], "/"))
	}
	var out []*glob
	for _, folder := range list {
		for _, text := range []string{escapeGlob(folder), escapeGlob(folder) + "/**"} {
			if g, err := globOf(pathGlob, text); err == nil {
				out = append(out, g)
			}
		}
	}
	return out
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "{", `\{`).Replace(s)
}

// reachesGuarded tells whether any argument, or any word of a command, is a path of what is guarded.
func (p *Policy) reachesGuarded(s *scene) (hit bool) {
	within := func(text string) bool {
		if len(text) > maxCompared || !strings.ContainsAny(text, `/\%`) {
			return false
		}
		for _, g := range p.guarded {
			if g.perhaps(text) == yes && !p.ownFolder(text) {
				return true
			}
		}
		return kept.MatchString(strings.ReplaceAll(text, `\`, "/"))
	}
	s.args.each(func(v *value) { hit = hit || v.kind == text && within(v.text) })
	line := s.command()
	if hit || line == nil {
		return hit
	}
	word := func(w shell.Word) bool {
		if within(w.Text) {
			return true
		}
		if _, val, ok := strings.Cut(w.Text, "="); ok && within(val) {
			return true
		}
		if i := strings.IndexByte(w.Text, '/'); i > 0 && w.Text[0] == '-' && within(w.Text[i:]) { // -o/path
			return true
		}
		head, _, ok := strings.Cut(w.Text, ":") // -v /path:/x
		return ok && within(head)
	}
	for _, c := range line.script.Commands {
		for _, w := range c.Words {
			hit = hit || word(w)
		}
	}
	for _, w := range append(line.script.Writes, line.script.Reads...) {
		hit = hit || word(w)
	}
	return hit
}

// kept finds the server's own files as a server of tools reaches them from its folder, which is tools/APP/SERVER in the data directory.
var kept = regexp.MustCompile(`(?i)^(\./+)*(\.\./+(\./+)*){3}(owner\.token|server\.json|store\.lock|commit|image\.seed|[^/]*\.key|(db|blobs|usage|cache)(/.*)?)$`)

// ownFolder tells whether a path surely is in the folders that servers of tools run in, which hold nothing of Skep's.
func (p *Policy) ownFolder(text string) bool {
	for _, g := range p.freed {
		if g.surely(text) {
			return true
		}
	}
	return false
}

func anyCommand(f func(*shell.Command, *shell.Script) bool) func(*shell.Script) bool {
	return func(s *shell.Script) bool {
		for i := range s.Commands {
			if f(&s.Commands[i], s) {
				return true
			}
		}
		return false
	}
}

// rootFolder tells whether a path is the root, a home folder, or a folder of the system right below the root, or all that is in one.
func rootFolder(s string) bool {
	if s == "" {
		return false
	}
	list, _ := readPath(s)
	for _, p := range list {
		for _, all := range []string{"/*", "/.*", "/{*,.*}", "/{.*,*}", "/.[!.]*", "/.??*", "/?*", "/[a-z]*"} {
			p = strings.TrimSuffix(p, all)
		}
		p = strings.TrimSuffix(p, "/")
		switch p {
		case "", "~", "/root", "/home", "/Users", "/System", "/Library", "/Applications", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/usr", "/usr/bin", "/usr/lib", "/etc", "/var", "/var/lib", "/boot", "/dev",
			"/proc", "/sys", "/opt", "/srv", "/run", "/mnt", "/media", "C:", "C:/Windows", "C:/Users", "/c", "/mnt/c":
			return true
		}
		if d, base := path.Split(p); base != "" && (d == "/home/" || d == "/Users/") && !strings.ContainsAny(base, "*") {
			return true
		}
	}
	return false
}

// targets are a command's words that are no options.
func targets(c *shell.Command) []string {
	var out []string
	for i, w := range c.Words[1:] {
		if strings.HasPrefix(w.Text, "-") && (i == 0 || c.Words[i].Text != "--") {
			continue
		}
		out = append(out, w.Text)
	}
	return out
}

func deletesRoot(c *shell.Command, s *shell.Script) bool {
	switch c.Name() {
	case "rm", "grm", "srm", "rmdir", "trash", "shred", "wipe":
		if flagged("--no-preserve-root", c) == yes {
			return true
		}
		if flagged("--recursive", c) != yes && !(c.Name() == "srm" || c.Name() == "wipe" || c.Name() == "trash") {
			return false
		}
		for _, t := range targets(c) {
			if rootFolder(t) || (t == "*" || t == "." || t == "./*" || t == "./") && s.Moves && movesToRoot(s) {
				return true
			}
		}
	case "find", "gfind", "fd", "fdfind":
		return findsRoot(c, s)
	case "mv":
		if t := targets(c); len(t) > 1 {
			for _, from := range t[:len(t)-1] {
				if rootFolder(from) {
					return true
				}
			}
		}
	case "rsync":
		if flagged("--delete", c) == yes {
			if t := targets(c); len(t) > 1 && rootFolder(t[len(t)-1]) {
				return true
			}
		}
	}
	return false
}

func movesToRoot(s *shell.Script) bool {
	for i := range s.Commands {
		if n := s.Commands[i].Name(); n == "cd" || n == "pushd" {
			if t := targets(&s.Commands[i]); len(t) == 0 || rootFolder(t[0]) {
				return true
			}
		}
	}
	return false
}

// findsRoot tells whether find deletes all that it finds below a whole folder: without a condition on names or times.
func findsRoot(c *shell.Command, s *shell.Script) bool {
	deletes, root := false, false
	for i, w := range c.Words[1:] {
		switch w.Text {
		case "-delete":
			deletes = true
		case "-exec", "-execdir", "-ok", "-okdir", "-x", "-X":
			for _, inner := range c.Words[min(i+2, len(c.Words)):] {
				if n := path.Base(inner.Text); n == "rm" || n == "shred" || n == "unlink" {
					deletes = true
				}
			}
		case "-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-mtime", "-mmin", "-atime", "-ctime", "-newer", "-size", "-user", "-empty", "-perm", "-samefile", "-inum":
			return false
		}
		root = root || i < 4 && rootFolder(w.Text)
	}
	return deletes && root
}

func opensRoot(c *shell.Command, _ *shell.Script) bool {
	switch c.Name() {
	case "chmod", "chown", "chgrp", "setfacl", "chattr":
		if flagged("--recursive", c) != yes {
			return false
		}
		for _, t := range targets(c) {
			if rootFolder(t) && !strings.HasPrefix(t, "~") && !strings.HasPrefix(t, "/home/") {
				return true
			}
		}
	}
	return false
}

func formats(c *shell.Command, _ *shell.Script) bool {
	n := c.Name()
	switch {
	case strings.HasPrefix(n, "mkfs"), n == "mke2fs", n == "mkswap", n == "wipefs", n == "blkdiscard", n == "sfdisk", n == "sgdisk", n == "cfdisk", n == "parted", n == "mkntfs", n == "newfs", n == "hdparm", n == "badblocks", n == "cryptsetup", n == "nvme":
		if n == "sfdisk" && flagged("-l", c) == yes || n == "hdparm" && len(c.Words) < 3 {
			return false
		}
		for _, w := range c.Words[1:] {
			if device.MatchString(cleanWord(w.Text)) || !w.Known && strings.HasPrefix(n, "mkfs") {
				return true
			}
		}
	case n == "diskutil":
		for _, w := range c.Words[1:] {
			if strings.HasPrefix(strings.ToLower(w.Text), "erase") || strings.EqualFold(w.Text, "partitionDisk") || strings.EqualFold(w.Text, "zeroDisk") {
				return true
			}
		}
	}
	return false
}

var device = regexp.MustCompile(`^/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|dm-|md|sr|mem$|kmem$|port$|nbd|loop|block/|mtd)|^/proc/(sysrq-trigger|kcore)$|^/sys/kernel/|^/proc/sys/kernel/core_pattern$|^\\\\\.\\PhysicalDrive`)

func cleanWord(s string) string {
	list, _ := readPath(s)
	if len(list) == 0 {
		return s
	}
	return list[0]
}

func writesDevice(s *shell.Script) bool {
	for _, w := range s.Writes {
		if device.MatchString(cleanWord(w.Text)) {
			return true
		}
	}
	for i := range s.Commands {
		c := &s.Commands[i]
		switch c.Name() {
		case "cp", "mv", "install", "ln", "rsync", "ddrescue", "pv", "truncate":
			if t := targets(c); len(t) > 0 && device.MatchString(cleanWord(t[len(t)-1])) {
				return true
			}
		case "shred", "wipe", "srm", "scrub", "fallocate":
			for _, t := range targets(c) {
				if device.MatchString(cleanWord(t)) {
					return true
				}
			}
		}
	}
	return false
}

func killsAll(c *shell.Command, _ *shell.Script) bool {
	switch c.Name() {
	case "killall5":
		return true
	case "kill":
		for i, w := range c.Words {
			if w.Text == "-1" && i > 1 {
				return true
			}
		}
	case "pkill":
		for _, w := range c.Words[1:] {
			if w.Text == "." || w.Text == ".*" || w.Text == "" {
				return true
			}
		}
	}
	return false
}

func changesSkep(c *shell.Command, _ *shell.Script) bool {
	if c.Name() != "skep" {
		return false
	}
	for _, w := range c.Words[1:] {
		switch w.Text {
		case "policy", "policies", "token", "tokens", "secret", "secrets", "approval", "approvals", "approve", "deny", "allowance", "app", "backup", "restore", "tools":
			return true
		}
		if !w.Known {
			return true
		}
	}
	return false
}
