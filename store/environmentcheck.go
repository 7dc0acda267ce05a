package store

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// Bounds of environments.
const (
	maxVariables     = 256
	maxVariableName  = 128      // bytes
	maxVariableBytes = 64 << 10 // of all names and values together
	maxSetup         = 64 << 10
	maxDescription   = 4 << 10
	maxPackages      = 256
	maxNetwork       = 256
	maxRequires      = 64

	minSandboxMemory, maxSandboxMemory = 64 << 20, 1 << 40
	minSandboxCPUs, maxSandboxCPUs     = 0.1, 256.0
	minSandboxPids, maxSandboxPids     = 32, 1 << 20
	minSandboxDisk, maxSandboxDisk     = 16 << 20, 1 << 40

	minSandboxIdle, maxSandboxIdle = time.Second, 90 * 24 * time.Hour
	minSandboxLife, maxSandboxLife = time.Second, 366 * 24 * time.Hour
)

var (
	imageRE    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$`)
	runtimeRE  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	variableRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	requireRE  = regexp.MustCompile(`^[a-z][a-z0-9.]{0,62}$`)
)

// ownVariables are those that the driver sets, by which what runs in a sandbox finds its home, the models and the way out.
var ownVariables = []string{
	"HOME", "USER", "LOGNAME", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_UNIX_SOCKET", "CLAUDE_CODE_OAUTH_TOKEN",
	"OPENAI_BASE_URL", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL",
}

// checkEnvironment returns an Invalid error that says what to write unless env can be stored. Whether there is a provider that has what it requires is for
// who makes sandboxes to say.
func checkEnvironment(env *agent.Environment) error {
	if err := agent.CheckName("environment", env.Name); err != nil {
		return err
	}
	if err := checkApp(env.App); err != nil {
		return err
	}
	bad := func(hint, format string, args ...any) error {
		return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("environment %q: ", env.Name) + fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case env.Image == "":
		return bad("skep image build makes one", "it names no image")
	case !imageRE.MatchString(env.Image):
		return bad("write NAME, NAME:TAG or NAME@DIGEST", "image %.80q is not valid", env.Image)
	case env.Provider != "" && !runtimeRE.MatchString(env.Provider):
		return bad("skep sandbox providers shows those that there are", "provider %.80q is not valid", env.Provider)
	case env.Runtime != "" && !runtimeRE.MatchString(env.Runtime):
		return bad("skep sandbox providers shows those that there are", "runtime %.80q is not valid", env.Runtime)
	case len(env.Description) > maxDescription || !utf8.ValidString(env.Description):
		return bad("", "the description is longer than %d bytes, or no UTF-8", maxDescription)
	case len(env.Setup) > maxSetup:
		return bad("put what is long into the image", "the setup script has %d bytes: %d are allowed", len(env.Setup), maxSetup)
	case strings.ContainsRune(env.Setup, 0) || !utf8.ValidString(env.Setup):
		return bad("", "the setup script is no text: it has a NUL byte, or is no UTF-8")
	}
	for _, check := range []func(*agent.Environment, badFunc) error{checkVariables, checkLists, checkSize, checkTimes} {
		if err := check(env, bad); err != nil {
			return err
		}
	}
	return nil
}

// badFunc makes an error of a check.
type badFunc func(hint, format string, args ...any) error

func checkVariables(env *agent.Environment, bad badFunc) error {
	if len(env.Variables) > maxVariables {
		return bad("", "it has %d variables: %d are allowed", len(env.Variables), maxVariables)
	}
	total := 0
	for name, value := range env.Variables {
		total += len(name) + len(value)
		switch {
		case len(name) > maxVariableName || !variableRE.MatchString(name):
			return bad(fmt.Sprintf("use up to %d letters, digits and '_', not beginning with a digit", maxVariableName), "variable name %.80q is not valid", name)
		case strings.HasPrefix(strings.ToUpper(name), "SKEP_") || slices.Contains(ownVariables, strings.ToUpper(name)):
			return bad("leave it out: Skep sets it, so that the models and what is granted are found", "variable %s is the driver's own", name)
		case strings.ContainsRune(value, 0) || !utf8.ValidString(value):
			return bad("", "the value of variable %s is no text: it has a NUL byte, or is no UTF-8", name)
		}
	}
	if total > maxVariableBytes {
		return bad("", "its variables have %d bytes together: %d are allowed", total, maxVariableBytes)
	}
	return nil
}

func checkLists(env *agent.Environment, bad badFunc) error {
	switch {
	case len(env.Packages) > maxPackages:
		return bad("", "it names %d packages: %d are allowed", len(env.Packages), maxPackages)
	case len(env.Network) > maxNetwork:
		return bad("", "it has %d network targets: %d are allowed", len(env.Network), maxNetwork)
	case len(env.Requires) > maxRequires:
		return bad("", "it requires %d capabilities: %d are allowed", len(env.Requires), maxRequires)
	}
	for i, p := range env.Packages {
		if _, err := agent.ParseSandboxPackage(p); err != nil {
			e := agent.AsError(err)
			return bad(e.Hint, "%s", e.Msg)
		}
		if slices.Contains(env.Packages[:i], p) {
			return bad("", "package %s is named twice", p)
		}
	}
	for _, target := range env.Network {
		if _, err := agent.ParseTarget(target.String()); err != nil {
			e := agent.AsError(err)
			return bad(e.Hint, "network %s", e.Msg)
		}
	}
	for i, name := range env.Requires {
		if !requireRE.MatchString(name) {
			return bad("skep sandbox providers shows those that there are", "capability %.80q is not valid", name)
		}
		if slices.Contains(env.Requires[:i], name) {
			return bad("", "capability %s is required twice", name)
		}
	}
	return nil
}

func checkSize(env *agent.Environment, bad badFunc) error {
	for _, n := range []struct {
		what             string
		value, low, high int64
	}{
		{"bytes of memory", env.Size.Memory, minSandboxMemory, maxSandboxMemory},
		{"processes", env.Size.Pids, minSandboxPids, maxSandboxPids},
		{"bytes of disk", env.Size.Disk, minSandboxDisk, maxSandboxDisk},
	} {
		if n.value != 0 && (n.value < n.low || n.value > n.high) {
			return bad("leave it out for the default", "a size of %d %s is not between %d and %d", n.value, n.what, n.low, n.high)
		}
	}
	if c := env.Size.CPUs; c != 0 && !(c >= minSandboxCPUs && c <= maxSandboxCPUs) || math.IsNaN(c) {
		return bad("leave it out for the default", "a size of %v CPUs is not between %v and %v", c, minSandboxCPUs, maxSandboxCPUs)
	}
	return nil
}

func checkTimes(env *agent.Environment, bad badFunc) error {
	if d := env.Idle; d != 0 && (d < minSandboxIdle || d > maxSandboxIdle) {
		return bad("leave it out for the default", "an idle time of %s is not between %s and %s", d, minSandboxIdle, maxSandboxIdle)
	}
	if d := env.Life; d != 0 && (d < minSandboxLife || d > maxSandboxLife) {
		return bad("leave it out for the default", "a life of %s is not between %s and %s", d, minSandboxLife, maxSandboxLife)
	}
	return nil
}
