package image

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// Label is where an image says what it was made of: a Manifest, in JSON.
const Label = "dev.skep.image"

// Names of bases that are no image.
const (
	Host   = "host"   // programs of this machine, with the libraries that they need
	Debian = "debian" // a minimal Debian, by mmdebstrap or debootstrap
)

// Spec says what an image is to be made of.
type Spec struct {
	Name     string         // NAME or NAME:TAG; {layer} in it stands for the first 12 digits of Manifest.Layer
	Base     string         // Host (also for ""), Debian, or an image that the engine has
	Programs []string       // of this machine, by name or path, instead of the usual ones; Host alone
	More     []string       // besides those; Host alone
	CLIs     []string       // NAME, or NAME@VERSION for another version than the one that is known to work
	Packages []string       // deb:NAME (Debian alone), npm:NAME@VERSION
	Suite    string         // of Debian; bookworm unless given
	Mirror   string         // of Debian; that of debootstrap or mmdebstrap unless given
	Cache    string         // folder for what npm gets; skep/images in the user's own folder for caches unless given
	Now      time.Time      // for Manifest.Created
	Progress func(Progress) // may be nil; called by one goroutine at a time
}

// Progress is how far a build has come.
type Progress struct {
	Step        string // what is being done
	Done, Total int64  // bytes; both are 0 when they are not known
}

// Manifest is what an image was made of.
type Manifest struct {
	Base     string    `json:"base"`
	Programs []string  `json:"programs,omitempty"` // that were named
	Packages []string  `json:"packages,omitempty"` // that it has, as environments ask for them: deb:NAME, npm:NAME@VERSION
	CLIs     []CLI     `json:"clis,omitempty"`
	Layer    string    `json:"layer,omitempty"`  // SHA-256 of the tar of the files that were put in, in hex; "" when a Dockerfile did
	Created  time.Time `json:"created,omitzero"` // UTC
}

// CLI is a command-line agent of an image, or one that an image can have.
type CLI struct {
	Name      string `json:"name"`
	Package   string `json:"package"` // of npm
	Version   string `json:"version"`
	Integrity string `json:"integrity,omitempty"` // as npm has checked it
	Licence   string `json:"licence,omitempty"`   // what to know about it, when it is no open one
}

// Image is an image that was made here.
type Image struct {
	ID       string   `json:"id"`
	Name     string   `json:"name,omitempty"` // "" of one whose name another has now
	Size     int64    `json:"size"`           // bytes, with those of its base
	Manifest Manifest `json:"manifest"`
	Reused   bool     `json:"reused,omitempty"` // Build has found it as it is
}

// step tells about the beginning of a step.
func (s *Spec) step(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(Progress{Step: fmt.Sprintf(format, args...)})
	}
}

// names of images, without a registry's port or a digest, and of releases of Debian
var (
	imageName = regexp.MustCompile(`^[a-z0-9]+(?:[._/-]+[a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$`)
	baseName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)
	suiteName = regexp.MustCompile(`^[a-z]+$`)
)

// check refuses what can never be built, and fills in what was not given.
func (s *Spec) check() error {
	s.Base = cmp.Or(s.Base, Host)
	s.Suite = cmp.Or(s.Suite, "bookworm")
	if s.Now.IsZero() {
		s.Now = time.Now()
	}
	switch name := strings.ReplaceAll(s.Name, "{layer}", "0"); {
	case !imageName.MatchString(name):
		return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%q is no name for an image", s.Name),
			Hint: "use small letters, digits, . _ - and /, and perhaps :TAG, such as skep/agents:latest"}
	case s.Name == s.Base:
		return agent.Errorf(agent.Invalid, "an image cannot be its own base: %s", s.Name)
	case s.Base != Host && s.Base != Debian && !baseName.MatchString(s.Base):
		return agent.Errorf(agent.Invalid, "%q is no name of an image, and neither host nor debian", s.Base)
	case s.Base != Host && len(s.Programs)+len(s.More) > 0:
		return &agent.Error{Kind: agent.Invalid, Msg: "programs of this machine go into --base host alone",
			Hint: "use --base host, or --package deb:NAME with --base debian"}
	case !suiteName.MatchString(s.Suite):
		return agent.Errorf(agent.Invalid, "%q is no release of Debian, such as bookworm", s.Suite)
	case s.Mirror != "" && !strings.Contains(s.Mirror, "://") || strings.ContainsAny(s.Mirror, " \t\n"):
		return agent.Errorf(agent.Invalid, "%q is no address of a mirror of Debian", s.Mirror)
	}
	for _, word := range s.Packages {
		switch p, err := agent.ParseSandboxPackage(word); {
		case p.Kind == "deb" && s.Base != Debian:
			return &agent.Error{Kind: agent.Invalid, Msg: word + ": packages of Debian go into --base debian alone", Hint: "with --base host there is --program NAME"}
		case err != nil:
			return err
		}
	}
	if !strings.Contains(s.Name, ":") {
		s.Name += ":latest"
	}
	return nil
}

// debs are the packages of Debian that go in besides what is essential, by name, sorted.
func (s *Spec) debs() []string {
	names := slices.Clone(debianHas)
	for _, p := range s.Packages {
		if name, ok := strings.CutPrefix(p, "deb:"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// add notes a package of npm that goes in.
func (m *Manifest) add(c CLI) {
	m.Packages = append(m.Packages, "npm:"+c.Package+"@"+c.Version)
	m.CLIs = append(m.CLIs, c)
}

// label is the line of a Dockerfile that says what the image is made of.
func (m *Manifest) label() (string, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return "", agent.Wrap(agent.Internal, err, "write the label")
	}
	return "LABEL " + Label + "=" + quote(string(b)), nil
}

// changes are the lines of a Dockerfile that say how the image is run, and what it is.
func (m *Manifest) changes() ([]string, error) {
	label, err := m.label()
	if err != nil {
		return nil, err
	}
	changes := []string{
		label,
		"ENV HOME=" + sandbox.Home,
		fmt.Sprintf("USER %d:%d", sandbox.UserID, sandbox.UserID),
		"WORKDIR " + sandbox.Workspace,
		`CMD ["sh"]`,
	}
	if m.Base == Host || m.Base == Debian {
		return append(changes, "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "ENV LANG=C.UTF-8"), nil
	}
	return append(changes, "ENTRYPOINT []"), nil // the base's own has no say
}

// quote writes text as a word of a Dockerfile, which knows no variables in it.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "\n", " ").Replace(text) + `"`
}
