package image

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

const (
	passwdRoot = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
	groupRoot  = "root:x:0:\nnogroup:x:65534:\n"
	userName   = "agent"
	cliDir     = "/opt/skep/cli" // a folder for each that comes from npm
	binDir     = "/usr/local/bin"
	stickyDir  = fs.ModeDir | fs.ModeSticky | 0o777
)

// layout adds what every image has, whatever its base: the places where boxes mount something, and the agent's home.
func layout(t *tree) {
	t.dir(sandbox.Workspace, 0o755, sandbox.UserID)
	t.dir(sandbox.Home, 0o700, sandbox.UserID)
	t.dir(sandbox.SocketDir, 0o755, 0)
}

// accounts are the files that tell of the agent, and what adds it.
var accounts = map[string]func(string) string{"/etc/passwd": addUser, "/etc/group": addGroup}

// addUser returns a passwd(5) file with a user of the agent's number, if it has none.
func addUser(passwd string) string {
	if hasID(passwd) {
		return passwd
	}
	return line(passwd) + fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/sh\n", userName, sandbox.UserID, sandbox.UserID, userName, sandbox.Home)
}

// addGroup does the same for a group(5) file.
func addGroup(group string) string {
	if hasID(group) {
		return group
	}
	return line(group) + fmt.Sprintf("%s:x:%d:\n", userName, sandbox.UserID)
}

// hasID reports whether a line of passwd(5) or group(5) has the agent's number, which is the third field of both.
func hasID(file string) bool {
	for l := range strings.SplitSeq(file, "\n") {
		if f := strings.Split(l, ":"); len(f) > 2 && f[2] == fmt.Sprint(sandbox.UserID) {
			return true
		}
	}
	return false
}

// line returns text with a newline at its end, unless it is empty.
func line(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// place adds what npm has put into the cache: its folder as it is, and in the PATH its programs.
func (p *pack) place(t *tree, nodeProgram string) error {
	inside := path.Join(cliDir, p.cli.Name)
	err := t.copyTree(inside, p.dir, func(rel string, d fs.DirEntry) bool {
		name := d.Name()
		return rel == p.skip || rel == "node_modules/.package-lock.json" || !d.IsDir() && (strings.HasSuffix(name, ".map") || strings.HasSuffix(name, ".d.ts"))
	})
	if err != nil {
		return packError(err, p.cli.Name)
	}
	for name, file := range p.starts {
		in := path.Join(binDir, name)
		if t.has(in) {
			return agent.Errorf(agent.Invalid, "the image would have two programs with the name %s: one is of %s", name, p.cli.Package)
		}
		if p.native {
			t.symlink(in, path.Join(inside, file))
		} else {
			t.write(in, 0o755, wrapper(nodeProgram, path.Join(inside, file)))
		}
	}
	return nil
}

// wrapper is a script that runs another by the node that is in the image for it, whatever node is first in the PATH.
func wrapper(node, script string) string {
	return fmt.Sprintf("#!/bin/sh\nexec %s '%s' \"$@\"\n", node, strings.ReplaceAll(script, "'", `'\''`))
}

func packError(err error, what string) error {
	if agent.KindOf(err) != agent.Internal {
		return err
	}
	return agent.Wrap(agent.Invalid, err, "read what npm has made of "+what)
}
