package image

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Need returns nil when an image with these labels says that it has all of the packages, as agent.ParseSandboxPackage reads them. Else the error is Invalid,
// names the first that is missing, and says how to make an image that has them all.
func Need(name string, labels map[string]string, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	m := manifestOf(labels)
	missing := slices.IndexFunc(packages, func(p string) bool { return !m.has(p) })
	if missing < 0 {
		return nil
	}
	e := &agent.Error{Kind: agent.Invalid, Hint: "make one that has it: " + m.command(name, packages)}
	if labels[Label] == "" {
		e.Msg = fmt.Sprintf("%s: the image %s does not say which packages it has, and %s is asked for", agent.SandboxPackageMissing, name, packages[missing])
		e.Hint += fmt.Sprintf(`; an image of your own says it by LABEL %s='{"packages":[%q]}'`, Label, packages[missing])
		return e
	}
	e.Msg = fmt.Sprintf("%s: the image %s has no %s", agent.SandboxPackageMissing, name, packages[missing])
	return e
}

// has reports whether an image has a package.
func (m *Manifest) has(word string) bool {
	want, err := agent.ParseSandboxPackage(word)
	return err == nil && slices.ContainsFunc(m.Packages, func(s string) bool {
		p, err := agent.ParseSandboxPackage(s)
		return err == nil && want.Is(p)
	})
}

// command is the command that makes an image such as m with packages.
func (m *Manifest) command(name string, packages []string) string {
	if !imageName.MatchString(name) { // of a registry, or by a digest
		name = "NAME"
	}
	base := cmp.Or(m.Base, Host)
	if slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(p, "deb:") }) {
		base = Debian // which alone takes them
	}
	words := []string{"skep image build", name}
	if base != Host {
		words = append(words, "--base", base)
	}
	var with []string // packages that come with these
	for _, c := range m.CLIs {
		k, err := FindCLI(c.Name)
		if err != nil {
			continue
		}
		word := c.Name
		if k.Version != c.Version {
			word += "@" + c.Version
		}
		words, with = append(words, "--cli", word), append(with, "npm:"+c.Package+"@"+c.Version)
	}
	for _, p := range packages {
		if !slices.Contains(with, p) {
			words = append(words, "--package", withVersion(p))
		}
	}
	return strings.Join(words, " ")
}

// withVersion says that a version of a package of npm is to be written where an environment takes any.
func withVersion(word string) string {
	if p, err := agent.ParseSandboxPackage(word); err == nil && p.Kind == "npm" && p.Version == "" {
		return word + "@VERSION"
	}
	return word
}

// over adds what is in the base of an image to what was put above it, which wins.
func (m *Manifest) over(base *Manifest) {
	kept := slices.DeleteFunc(slices.Clone(base.Packages), func(s string) bool {
		p, err := agent.ParseSandboxPackage(s)
		p.Version = ""
		return err == nil && m.has(p.Kind+":"+p.Name)
	})
	m.Packages = append(kept, m.Packages...)
	clis := slices.DeleteFunc(slices.Clone(base.CLIs), func(c CLI) bool {
		return slices.ContainsFunc(m.CLIs, func(o CLI) bool { return o.Name == c.Name })
	})
	m.CLIs = append(clis, m.CLIs...)
}

// debsOf returns deb:NAME of all that dpkg has installed below root, sorted: what was asked for, and what that needs.
func debsOf(root string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status"))
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "read which packages Debian has installed")
	}
	var list []string
	for entry := range strings.SplitSeq(string(b), "\n\n") {
		var name, status string
		for line := range strings.SplitSeq(entry, "\n") {
			if v, ok := strings.CutPrefix(line, "Package: "); ok {
				name = v
			} else if v, ok := strings.CutPrefix(line, "Status: "); ok {
				status = v
			}
		}
		if name != "" && strings.HasSuffix(status, " installed") {
			list = append(list, "deb:"+name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
