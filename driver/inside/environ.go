package inside

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// bundles are where systems keep the authorities that they trust.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

// environ makes the environment of what runs in the box, as far as it does not depend on the control plane: the driver's own, which is that of the image
// and of the environment, and the names of the authorities to trust.
func (b *box) environ() error {
	env := map[string]string{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	env["HOME"] = b.o.Home
	if env["PATH"] == "" {
		env["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	if env["LANG"] == "" {
		env["LANG"] = "C.UTF-8"
	}
	if b.o.Boot.CA != "" {
		if err := b.authorities(env); err != nil {
			return err
		}
	}
	b.base = list(env)
	return nil
}

// authorities writes two files below the home: the authority of the way out alone, for programs that add to what they trust, and together with those of the
// system, for programs that are told all that they trust.
func (b *box) authorities(env map[string]string) error {
	if block, _ := pem.Decode([]byte(b.o.Boot.CA)); block == nil {
		return agent.Errorf(agent.Invalid, "the authority in the boot payload is not PEM")
	}
	dir := filepath.Join(b.o.Home, ".skep")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return agent.Wrap(agent.Invalid, err, "the home of the box cannot be written")
	}
	one, all := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-bundle.pem")
	bundle := []byte(b.o.Boot.CA + "\n")
	for _, name := range bundles {
		if system, err := os.ReadFile(name); err == nil {
			bundle = append(bundle, bytes.TrimSpace(system)...)
			bundle = append(bundle, '\n')
			break
		}
	}
	for name, content := range map[string][]byte{one: []byte(b.o.Boot.CA + "\n"), all: bundle} {
		if err := writeWhole(name, 0o644, bytes.NewReader(content)); err != nil {
			return agent.Wrap(agent.Invalid, err, "the authority of the way out cannot be written")
		}
	}
	env["NODE_EXTRA_CA_CERTS"] = one
	for _, name := range []string{"SSL_CERT_FILE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO"} {
		env[name] = all
	}
	return nil
}

// addProxy adds the way out, which is known when the relay listens. Lower case is for programs such as curl, which trust no other for http.
func (b *box) addProxy() {
	url, local := "http://"+b.relay, "127.0.0.1,localhost,::1"
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		b.base = append(b.base, name+"="+url)
	}
	b.base = append(b.base, "NO_PROXY="+local, "no_proxy="+local, "NODE_USE_ENV_PROXY=1")
}

// vars returns the environment of what runs, of which each layer wins over those before: the box's, what the control plane says, and more.
func (b *box) vars(more ...map[string]string) map[string]string {
	env := map[string]string{}
	for _, v := range b.base {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	if w := b.welcome.Load(); w != nil {
		maps.Copy(env, w.Env)
	}
	for _, m := range more {
		maps.Copy(env, m)
	}
	return env
}

// list returns env as os/exec takes it. What no program could be given is left out.
func list(env map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(env[name], "\x00") {
			out = append(out, name+"="+env[name])
		}
	}
	return out
}

// lookPath finds a program as a shell with that PATH would. Relative names are those of dir.
func lookPath(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil // starting it tells what is wrong with it
	}
	for _, d := range filepath.SplitList(path) {
		file := filepath.Join(d, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", &agent.Error{Kind: agent.NotFound, Msg: "the box has no program " + name, Hint: "use an image that has it, or put it there in the setup script of the environment"}
}

// inventory lists the CLIs that the box has. Their versions are taken from the npm package that a CLI is of: to ask one would take a second of each hello.
func (b *box) inventory() []driver.Inventory {
	var out []driver.Inventory
	path := b.vars()["PATH"]
	for _, be := range b.o.Backends {
		spec := be.Spec()
		if spec.Binary == "" {
			continue
		}
		if file, err := lookPath(spec.Binary, path, "/"); err == nil {
			out = append(out, driver.Inventory{Name: spec.Name, Path: file, Version: packageVersion(file)})
		}
	}
	return out
}

// packageVersion returns the version of the npm package that file is in, or "".
func packageVersion(file string) string {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(file); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "package.json"))
		var p struct{ Name, Version string }
		if err == nil && json.Unmarshal(b, &p) == nil && p.Version != "" {
			return p.Version
		}
		if filepath.Base(dir) == "node_modules" {
			break
		}
	}
	return ""
}
