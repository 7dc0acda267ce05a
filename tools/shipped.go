package tools

import (
	_ "embed"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
)

//go:embed classification.json
var classification []byte

// classified is what Skep says of the tools of one server that many use.
type classified struct {
	effects map[string]agent.Effect
	again   map[string]bool
}

// of returns the effect of a method, and whether it can be made again.
func (c *classified) of(method string) (agent.Effect, bool, bool) {
	if c == nil {
		return agent.Unclassified, false, false
	}
	e, ok := c.effects[method]
	return e, e == agent.Read || c.again[method], ok
}

// shipped is the classification by identity of a program.
var shipped = sync.OnceValue(func() map[string]*classified {
	var file struct {
		Servers []struct {
			Is            []string `json:"is"`
			Read          []string `json:"read"`
			Modify        []string `json:"modify"`
			ModifyExecute []string `json:"modify_execute"`
			Execute       []string `json:"execute"`
			Again         []string `json:"again"`
		} `json:"servers"`
	}
	out := map[string]*classified{}
	if json.Unmarshal(classification, &file) != nil {
		return out // none: every tool is unclassified; a test reads the file
	}
	for _, s := range file.Servers {
		one := &classified{effects: map[string]agent.Effect{}, again: map[string]bool{}}
		for e, methods := range map[agent.Effect][]string{agent.Read: s.Read, agent.Modify: s.Modify, agent.ModifyExecute: s.ModifyExecute, agent.Execute: s.Execute} {
			for _, m := range methods {
				one.effects[m] = e
			}
		}
		for _, m := range s.Again {
			one.again[m] = true
		}
		for _, id := range s.Is {
			out[id] = one
		}
	}
	return out
})

// shippedFor returns what Skep says of a record's server. Only the command that the operator wrote tells which that is: what a server says of itself, its
// name included, may be anything.
func shippedFor(s agent.ToolServer) *classified {
	if s.Kind != agent.MCPStdio {
		return nil
	}
	return shipped()[identity(s.Command)]
}

// identity names the package that a command runs: npm:NAME, pypi:NAME, oci:IMAGE, or bin:NAME of one in a node_modules folder. It is "" for any command
// that might run something else besides, such as one with options that are not known here.
func identity(command []string) string {
	if len(command) == 0 {
		return ""
	}
	args := command[1:]
	switch program := strings.TrimSuffix(path.Base(strings.ReplaceAll(command[0], `\`, "/")), ".cmd"); program {
	case "npx", "bunx":
		return npm(first(args, "-y", "--yes", "-q", "--quiet", "--prefer-offline"))
	case "pnpm", "yarn":
		if len(args) > 0 && args[0] == "dlx" {
			return npm(first(args[1:]))
		}
	case "npm":
		if len(args) > 0 && (args[0] == "exec" || args[0] == "x") {
			return npm(first(args[1:], "-y", "--yes", "--"))
		}
	case "node", "bun":
		return inModules(first(args))
	case "uvx", "pipx":
		if program == "pipx" {
			if len(args) == 0 || args[0] != "run" {
				return ""
			}
			args = args[1:]
		}
		return pypi(first(args))
	case "python", "python3":
		if len(args) > 1 && args[0] == "-m" {
			return pypi(args[1])
		}
	case "docker", "podman":
		return image(args)
	default:
		return inModules(strings.ReplaceAll(command[0], `\`, "/"))
	}
	return ""
}

// first returns the first argument that is no option, when all before it are known ones.
func first(args []string, known ...string) string {
	for _, a := range args {
		switch {
		case slices.Contains(known, a):
		case strings.HasPrefix(a, "-"):
			return ""
		default:
			return a
		}
	}
	return ""
}

// npm is a package as npx is told: NAME, @SCOPE/NAME, either with @VERSION. Of other registries, files and repositories nothing is known.
func npm(spec string) string {
	scope, name := "", spec
	if strings.HasPrefix(spec, "@") {
		var ok bool
		if scope, name, ok = strings.Cut(spec, "/"); !ok {
			return ""
		}
		scope += "/"
	}
	name, version, _ := strings.Cut(name, "@")
	if name == "" || strings.ContainsAny(name+version, "/:\\") {
		return ""
	}
	return "npm:" + scope + name
}

func pypi(spec string) string {
	name, _, _ := strings.Cut(spec, "@")
	name, _, _ = strings.Cut(name, "==")
	if name == "" || strings.ContainsAny(name, "/:\\[ .") {
		return ""
	}
	return "pypi:" + strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// inModules is the package of a file in a node_modules folder, or the name of a program in its .bin.
func inModules(file string) string {
	i := strings.LastIndex(file, "node_modules/")
	if i < 0 || i > 0 && file[i-1] != '/' || strings.Contains(file, "..") {
		return ""
	}
	parts := strings.Split(file[i+len("node_modules/"):], "/")
	switch {
	case len(parts) == 2 && parts[0] == ".bin":
		return "bin:" + parts[1]
	case len(parts) > 2 && strings.HasPrefix(parts[0], "@"):
		return "npm:" + parts[0] + "/" + parts[1]
	case len(parts) > 1 && parts[0] != ".bin":
		return "npm:" + parts[0]
	}
	return ""
}

// image is the image of docker run, without tag and digest.
func image(args []string) string {
	if len(args) == 0 || args[0] != "run" {
		return ""
	}
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case slices.Contains([]string{"-i", "--rm", "-t", "-it", "--interactive", "--init"}, a):
		case slices.Contains([]string{"-e", "--env", "--env-file", "-v", "--volume", "--mount", "--name", "-w", "--workdir", "--network", "-u", "--user"}, a):
			i++
		case strings.HasPrefix(a, "--") && slices.Contains([]string{"--env", "--mount", "--volume", "--network", "--name", "--pull"}, strings.SplitN(a, "=", 2)[0]) && strings.Contains(a, "="):
		case strings.HasPrefix(a, "-"):
			return ""
		default:
			name, _, _ := strings.Cut(a, "@")
			if slash := strings.LastIndexByte(name, '/'); strings.Contains(name[slash+1:], ":") {
				name = name[:slash+1+strings.IndexByte(name[slash+1:], ':')]
			}
			return "oci:" + strings.TrimPrefix(name, "docker.io/")
		}
	}
	return ""
}
