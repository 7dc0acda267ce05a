package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// WriteDockerfile writes what s asks for into the folder dir, for who has a registry: a Dockerfile, and what npm is to get with its hashes. It returns the
// names of the files. The base Host means Debian there. Files of these names that are there are written over.
func WriteDockerfile(s Spec, dir string) ([]string, error) {
	if len(s.Programs)+len(s.More) > 0 {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "a Dockerfile cannot take programs of this machine", Hint: "use --package deb:NAME with --base debian"}
	}
	if s.Base == Host || s.Base == "" {
		s.Base = Debian
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	files, err := s.dockerContext()
	if err != nil {
		return nil, err
	}
	var names []string
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, diskError(err, "make "+filepath.Dir(file))
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return nil, diskError(err, "write "+file)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// dockerPart is what a Dockerfile takes from npm.
type dockerPart struct {
	source
	cli     CLI
	program string // with * for the processor; "" when node runs what package.json names
	skip    string // of no use, with * as well
}

// dockerContext returns the files by name.
func (s *Spec) dockerContext() (map[string][]byte, error) {
	parts, err := s.dockerParts()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, p := range parts {
		files["npm/"+p.name+"/package.json"] = p.json
		if p.locked != nil {
			files["npm/"+p.name+"/package-lock.json"] = p.locked
		}
	}
	if files["Dockerfile"], err = s.dockerfile(parts); err != nil {
		return nil, err
	}
	return files, nil
}

func (s *Spec) dockerParts() ([]dockerPart, error) {
	every := cpu{npm: "*", triple: "*-unknown-linux-musl"}
	var parts []dockerPart
	scripts := false
	for _, word := range s.CLIs {
		k, version, err := findCLI(word)
		if err != nil {
			return nil, err
		}
		p := dockerPart{source: knownSource(k, version, every), cli: k.cli(cmp.Or(version, k.version()))}
		if version != "" && k.program != "" { // npm takes the one for its processor
			wants := map[string]string{}
			for _, c := range []cpu{{npm: "x64"}, {npm: "arm64"}} {
				wants[c.fill(k.folder, version)] = c.fill(k.wants, version)
			}
			p.json = optionalJSON(wants)
		}
		if k.program != "" {
			p.program, p.skip = every.fill(k.program, ""), every.fill(k.skip, "")
		}
		scripts = scripts || k.program == ""
		parts = append(parts, p)
	}
	for _, word := range s.Packages {
		name, ok := strings.CutPrefix(word, "npm:")
		if !ok {
			continue
		}
		src, err := packageSource(name)
		if err != nil {
			return nil, err
		}
		scripts = true
		parts = append(parts, dockerPart{source: src, cli: CLI{Name: src.name, Package: src.folder, Version: src.version}})
	}
	if scripts {
		parts = append(parts, dockerPart{source: knownSource(node, "", every), cli: node.cli(node.version()), program: node.program, skip: node.skip})
	}
	return parts, nil
}

func (s *Spec) dockerfile(parts []dockerPart) ([]byte, error) {
	var b bytes.Buffer
	m := Manifest{Base: s.Base}
	base, debs := s.Base, s.debs()
	if base == Debian {
		base = "debian:" + s.Suite + "-slim"
		for _, name := range debs {
			m.Packages = append(m.Packages, "deb:"+name)
		}
	}
	for _, p := range parts {
		p.cli.Licence = ""
		m.add(p.cli)
	}
	label, err := m.label()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "# Written by skep image build --dockerfile.\n")
	for _, k := range knownCLIs {
		if k.licence != "" && slices.ContainsFunc(parts, func(p dockerPart) bool { return p.name == k.name }) {
			fmt.Fprintf(&b, "# %s\n", k.licence)
		}
	}
	if len(parts) > 0 {
		fmt.Fprintf(&b, "FROM node:22-%s-slim AS npm\n", s.Suite)
		for _, p := range parts {
			verb := "install"
			if p.locked != nil {
				verb = "ci"
			}
			fmt.Fprintf(&b, "COPY npm/%s %s/%[1]s\nRUN cd %[2]s/%[1]s && npm %[3]s --ignore-scripts --omit=dev --no-audit --no-fund", p.name, cliDir, verb)
			if p.skip != "" {
				fmt.Fprintf(&b, " && rm -rf %s", path.Join("node_modules", p.folder, p.skip))
			}
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "\nFROM %s\nUSER 0\n", base)
	if s.Base == Debian {
		fmt.Fprintf(&b, "RUN apt-get update && apt-get install -y --no-install-recommends %s && rm -rf /var/lib/apt/lists/*\n", strings.Join(debs, " "))
	}
	if len(parts) > 0 {
		fmt.Fprintf(&b, "COPY --from=npm %s %[1]s\n", cliDir)
	}
	for _, p := range parts {
		b.WriteString(p.start())
	}
	fmt.Fprintf(&b, "RUN grep -q '^[^:]*:[^:]*:%d:' /etc/group || echo '%s:x:%[1]d:' >> /etc/group; \\\n", sandbox.UserID, userName)
	fmt.Fprintf(&b, "    grep -q '^[^:]*:[^:]*:%d:' /etc/passwd || echo '%s:x:%[1]d:%[1]d:%[2]s:%[3]s:/bin/sh' >> /etc/passwd; \\\n", sandbox.UserID, userName, sandbox.Home)
	fmt.Fprintf(&b, "    mkdir -p %s %s %s && chown %d:%[4]d %[1]s %[2]s && chmod 700 %[2]s\n", sandbox.Workspace, sandbox.Home, sandbox.SocketDir, sandbox.UserID)
	fmt.Fprintf(&b, "%s\n", label)
	fmt.Fprintf(&b, "ENV HOME=%s LANG=C.UTF-8\nENTRYPOINT []\nCMD [\"sh\"]\nWORKDIR %s\nUSER %d:%[3]d\n", sandbox.Home, sandbox.Workspace, sandbox.UserID)
	return b.Bytes(), nil
}

// start is the line that puts the programs of p into the PATH.
func (p *dockerPart) start() string {
	modules := path.Join(cliDir, p.name, "node_modules")
	switch {
	case p.name == node.name:
		return fmt.Sprintf("RUN command -v node || ln -s %s %s/node\n", path.Join(modules, p.folder, p.program), binDir)
	case p.program != "":
		return fmt.Sprintf("RUN ln -s %s %s/%s\n", path.Join(modules, p.folder, p.program), binDir, p.name)
	}
	return fmt.Sprintf("ENV PATH=$PATH:%s/.bin\n", modules)
}

// optionalJSON is a package.json that wants whichever of the packages is for the processor, by the folders that they go into.
func optionalJSON(wants map[string]string) []byte {
	b, _ := json.Marshal(map[string]any{"private": true, "optionalDependencies": wants}) // of strings
	return b
}
