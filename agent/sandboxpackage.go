package agent

import (
	"fmt"
	"regexp"
	"strings"
)

// SandboxPackage is a package that an image of sandboxes has, or is to have.
type SandboxPackage struct {
	Kind    string // deb or npm
	Name    string
	Version string // of npm, one version; "" for any. A package of Debian is in the version that its release has
}

var (
	debNameRE    = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,127}$`)
	npmNameRE    = regexp.MustCompile(`^(@[A-Za-z0-9_-][A-Za-z0-9._-]*/)?[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
	npmVersionRE = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
)

// ParseSandboxPackage reads deb:NAME, npm:NAME or npm:NAME@VERSION. An error is Invalid.
func ParseSandboxPackage(s string) (SandboxPackage, error) {
	kind, name, _ := strings.Cut(s, ":")
	p := SandboxPackage{Kind: kind, Name: name}
	if at := strings.LastIndexByte(name, '@'); kind == "npm" && at > 0 {
		p.Name, p.Version = name[:at], name[at+1:]
		if !npmVersionRE.MatchString(p.Version) {
			return p, &Error{Kind: Invalid, Msg: fmt.Sprintf("package %.80q: %.40q is no exact version", s, p.Version), Hint: "write one version out, such as npm:NAME@1.2.3, or npm:NAME for any"}
		}
	}
	if len(p.Name) > 214 || kind == "deb" && !debNameRE.MatchString(p.Name) || kind == "npm" && !npmNameRE.MatchString(p.Name) || kind != "deb" && kind != "npm" {
		return p, &Error{Kind: Invalid, Msg: fmt.Sprintf("package %.80q is not valid", s), Hint: "write deb:NAME, npm:NAME@VERSION, or npm:NAME for any version"}
	}
	return p, nil
}

// Is reports whether a package that an image has is the one that p asks for.
func (p SandboxPackage) Is(has SandboxPackage) bool {
	return p.Kind == has.Kind && p.Name == has.Name && (p.Version == "" || p.Version == has.Version)
}

// SandboxPackageMissing begins the message of the error of an image that lacks a package which its environment asks for, or says nothing of its packages. Such
// an error is Invalid: to try again is of no use until there is another image.
const SandboxPackageMissing = "sandbox_package_missing"
