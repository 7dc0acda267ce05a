package image

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// lock holds, for each CLI, the version that is known to work with Skep, with the hashes of all that it is made of.
//
//go:embed lock
var lock embed.FS

// known is a command-line agent that an image can have by name.
type known struct {
	name    string
	pkg     string // of npm
	folder  string // in node_modules, with {cpu}: of the package that has the program
	wants   string // what npm is asked for in that folder, with {version} and {cpu}
	program string // in folder, with {triple}; "" for what package.json names and node runs
	skip    string // a folder below folder that is of no use in a box
	licence string // said before it is put in, when it is no open one
}

// node runs the CLIs that are written in JavaScript. The version on the host has no say in it.
var node = known{name: "node", pkg: "node", folder: "node-linux-{cpu}", wants: "{version}", program: "bin/node", skip: "include"}

var knownCLIs = []known{
	{name: "claude", pkg: "@anthropic-ai/claude-code", folder: "@anthropic-ai/claude-code-linux-{cpu}", wants: "{version}", program: "claude",
		licence: "Claude Code is proprietary software of Anthropic. It is downloaded from npm for you, under the terms at " +
			"https://code.claude.com/docs/en/legal-and-compliance. Do not pass the image on."},
	{name: "codex", pkg: "@openai/codex", folder: "codex-linux-{cpu}", wants: "npm:@openai/codex@{version}-linux-{cpu}",
		program: "vendor/{triple}/bin/codex", skip: "vendor/{triple}/codex-resources/voice"},
	{name: "opencode", pkg: "opencode-ai", folder: "opencode-linux-{cpu}", wants: "{version}", program: "bin/opencode"},
	{name: "gemini", pkg: "@google/gemini-cli", folder: "@google/gemini-cli", wants: "{version}"},
	{name: "pi", pkg: "@earendil-works/pi-coding-agent", folder: "@earendil-works/pi-coding-agent", wants: "{version}"},
}

// cpu is a processor by its names in npm and in Rust's triples.
type cpu struct{ npm, triple string }

// cpuOf returns the names of a processor that Go calls arch.
func cpuOf(arch string) (cpu, error) {
	switch arch {
	case "amd64":
		return cpu{"x64", "x86_64-unknown-linux-musl"}, nil
	case "arm64":
		return cpu{"arm64", "aarch64-unknown-linux-musl"}, nil
	}
	return cpu{}, agent.Errorf(agent.Invalid, "command-line agents are not made for %s, only for amd64 and arm64", arch)
}

// fill puts the names of a processor and a version into a pattern of a known.
func (c cpu) fill(pattern, version string) string {
	return strings.NewReplacer("{cpu}", c.npm, "{triple}", c.triple, "{version}", version).Replace(pattern)
}

// CLIs are the command-line agents that have a name here, in order.
func CLIs() []CLI {
	list := make([]CLI, len(knownCLIs))
	for i, k := range knownCLIs {
		list[i] = k.cli(k.version())
	}
	return list
}

// FindCLI returns the one that NAME or NAME@VERSION asks for.
func FindCLI(word string) (CLI, error) {
	k, version, err := findCLI(word)
	if err != nil {
		return CLI{}, err
	}
	return k.cli(cmp.Or(version, k.version())), nil
}

func (k known) cli(version string) CLI {
	return CLI{Name: k.name, Package: k.pkg, Version: version, Licence: k.licence}
}

// findCLI returns what NAME or NAME@VERSION asks for; version is "" for the one that is locked.
func findCLI(word string) (k known, version string, err error) {
	name, version, _ := strings.Cut(word, "@")
	i := slices.IndexFunc(knownCLIs, func(k known) bool { return k.name == name })
	if i < 0 {
		var names []string
		for _, k := range knownCLIs {
			names = append(names, k.name)
		}
		return known{}, "", &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%q is no command-line agent that has a name here", name),
			Hint: "there are " + strings.Join(names, ", ") + "; another goes in by --package npm:NAME@VERSION"}
	}
	k = knownCLIs[i]
	if version == k.version() {
		version = ""
	}
	if version != "" && !exact(version) {
		return known{}, "", inexact(word, version)
	}
	return k, version, nil
}

// exact reports whether a version of a package of npm is one, and no range or tag: for those npm takes an older one when the newest does not suit its own node.
func exact(version string) bool {
	_, err := agent.ParseSandboxPackage("npm:any@" + version)
	return err == nil
}

func inexact(word, version string) error {
	return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%s: %q is no exact version", word, version),
		Hint: "write it out, such as 1.2.3: for a range npm takes whatever suits the node of this machine"}
}

// lockfile is what is read of a package-lock.json: paths such as node_modules/NAME, and what npm made sure of there.
type lockfile struct {
	Packages map[string]struct {
		Version   string `json:"version"`
		Integrity string `json:"integrity"`
	} `json:"packages"`
}

func readLock(b []byte) (lockfile, error) {
	var l lockfile
	if err := json.Unmarshal(b, &l); err != nil {
		return l, agent.Wrap(agent.Invalid, err, "read package-lock.json")
	}
	return l, nil
}

// locked returns a file of the lock of k.
func (k known) locked(file string) []byte {
	b, err := fs.ReadFile(lock, "lock/"+k.name+"/"+file)
	if err != nil {
		panic(err) // it is built in; a test reads all of them
	}
	return b
}

// version is the one that is locked.
func (k known) version() string {
	l, err := readLock(k.locked("package-lock.json"))
	if err != nil {
		panic(err)
	}
	for _, c := range []cpu{{npm: "x64"}, {npm: "arm64"}} {
		if p, ok := l.Packages["node_modules/"+c.fill(k.folder, "")]; ok {
			version, _, _ := strings.Cut(p.Version, "-linux-")
			return version
		}
	}
	panic("no version of " + k.name)
}
