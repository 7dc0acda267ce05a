package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
)

// pack is something that npm has put into a folder of the cache.
type pack struct {
	cli    CLI
	dir    string            // of the host: package.json, package-lock.json, node_modules
	starts map[string]string // names of programs, and where each is below dir
	native bool              // they run by themselves; else node runs them
	skip   string            // folder below dir that is left out
}

// source is what npm is asked for.
type source struct {
	name         string // of its folder in the cache, and in the image
	json, locked []byte // package.json, and package-lock.json when there is one
	folder       string // of the package that has the program, in node_modules
	version      string // that was asked for; "" for the one that is locked
}

// knownSource is the source of a CLI that has a name here, at a version or ("") at the one that is locked.
func knownSource(k known, version string, c cpu) source {
	s := source{name: k.name, folder: c.fill(k.folder, version)}
	if version == "" {
		s.json, s.locked = k.locked("package.json"), k.locked("package-lock.json")
		return s
	}
	s.json = packageJSON(s.folder, c.fill(k.wants, version))
	return s
}

func packageJSON(name, wants string) []byte {
	b, _ := json.Marshal(map[string]any{"private": true, "dependencies": map[string]string{name: wants}}) // of two strings
	return b
}

// fetchKnown gets a CLI that has a name here.
func (s *Spec) fetchKnown(ctx context.Context, k known, version string, c cpu) (*pack, error) {
	src := knownSource(k, version, c)
	dir, err := s.fetch(ctx, src, c)
	if err != nil {
		return nil, err
	}
	p := &pack{dir: dir, cli: CLI{Name: k.name, Package: k.pkg}, native: k.program != ""}
	if p.cli.Version, p.cli.Integrity, err = installed(dir, src.folder); err != nil {
		return nil, err
	}
	p.cli.Version, _, _ = strings.Cut(p.cli.Version, "-linux-")
	if !p.native {
		p.starts, err = binaries(dir, src.folder)
		return p, err
	}
	inside := "node_modules/" + src.folder + "/"
	p.starts = map[string]string{k.name: inside + c.fill(k.program, "")}
	if k.skip != "" {
		p.skip = inside + c.fill(k.skip, "")
	}
	if !isFile(filepath.Join(dir, p.starts[k.name])) {
		return nil, agent.Errorf(agent.Invalid, "%s %s is packed in another way than is known here: it has no %s", k.name, p.cli.Version, p.starts[k.name])
	}
	return p, nil
}

// packageSource is the source of any package of npm, by NAME@VERSION.
func packageSource(word string) (source, error) {
	p, err := agent.ParseSandboxPackage("npm:" + word)
	if err != nil {
		return source{}, err
	}
	if p.Version == "" {
		return source{}, inexact("npm:"+word, "")
	}
	return source{name: strings.NewReplacer("@", "", "/", "-").Replace(p.Name), json: packageJSON(p.Name, p.Version), folder: p.Name, version: p.Version}, nil
}

// fetchPackage gets such a package, whose programs node runs.
func (s *Spec) fetchPackage(ctx context.Context, word string, c cpu) (*pack, error) {
	src, err := packageSource(word)
	if err != nil {
		return nil, err
	}
	dir, err := s.fetch(ctx, src, c)
	if err != nil {
		return nil, err
	}
	p := &pack{dir: dir, cli: CLI{Name: src.name, Package: src.folder}}
	if p.cli.Version, p.cli.Integrity, err = installed(dir, src.folder); err != nil {
		return nil, err
	}
	p.starts, err = binaries(dir, src.folder)
	return p, err
}

// place is the folder of the cache for what src asks for.
func (src source) place(cache string, c cpu) string {
	sum := sha256.Sum256(slices.Concat(src.json, []byte{0}, src.locked))
	return filepath.Join(cache, fmt.Sprintf("%s-%s-%x", src.name, c.npm, sum[:6]))
}

// fetch returns the folder of the cache with what src asks for, which npm has checked against its hashes. It is made when it is not there, under another
// name until it is whole.
func (s *Spec) fetch(ctx context.Context, src source, c cpu) (string, error) {
	cache, err := s.cacheDir()
	if err != nil {
		return "", err
	}
	final := src.place(cache, c)
	if isFile(filepath.Join(final, "package-lock.json")) {
		return final, nil
	}
	s.step("getting %s from npm", src.name)
	dir, err := os.MkdirTemp(cache, partPrefix)
	if err != nil {
		return "", diskError(err, "make a folder in "+cache)
	}
	defer os.RemoveAll(dir) // of what is left when it did not work
	if err := os.WriteFile(filepath.Join(dir, "package.json"), src.json, 0o644); err != nil {
		return "", diskError(err, "write to "+dir)
	}
	verb := "install"
	if src.locked != nil {
		verb = "ci"
		if err := os.WriteFile(filepath.Join(dir, "package-lock.json"), src.locked, 0o644); err != nil {
			return "", diskError(err, "write to "+dir)
		}
	}
	if err := runNPM(ctx, dir, src.name, verb, c); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", src.folder)); err != nil {
		return "", &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%s is not made for linux on %s", src.name, c.npm), Err: err,
			Hint: "another version may be: --cli NAME@VERSION"}
	}
	if err := os.Rename(dir, final); err != nil && !isFile(filepath.Join(final, "package-lock.json")) { // else another build was faster
		return "", diskError(err, "keep "+final)
	}
	return final, nil
}

const partPrefix = ".part-"

// cacheDir is the folder of the cache. What builds left there that were killed, more than a day ago, is deleted.
func (s *Spec) cacheDir() (string, error) {
	dir := s.Cache
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", &agent.Error{Kind: agent.Invalid, Msg: "this user has no folder for caches", Err: err, Hint: "set HOME or XDG_CACHE_HOME, or give one with --cache"}
		}
		dir = filepath.Join(user, "skep", "images")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", agent.Wrap(agent.Invalid, err, "find the folder of the cache")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", diskError(err, "make "+dir)
	}
	parts, _ := filepath.Glob(filepath.Join(dir, partPrefix+"*"))
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && s.Now.Sub(info.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(part)
		}
	}
	return dir, nil
}

// runNPM installs what dir's package.json and package-lock.json say. No script of a package is run.
func runNPM(ctx context.Context, dir, what, verb string, c cpu) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return &agent.Error{Kind: agent.Unavailable, Msg: what + " comes from npm, which is not on this machine", Err: err,
			Hint: "install Node.js with npm; or let others build it: skep image build --dockerfile DIR"}
	}
	cmd := exec.CommandContext(ctx, npm, verb, "--json", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=warn",
		"--fetch-retries=2", "--fetch-retry-mintimeout=200", "--fetch-retry-maxtimeout=1000", "--os=linux", "--libc=glibc", "--cpu="+c.npm)
	cmd.Dir = dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return agent.Wrap(agent.Cancelled, ctx.Err(), "get "+what+" from npm: stopped")
		}
		return npmError(what, out.Bytes(), errOut.String(), fmt.Errorf("npm %s: %w", verb, err))
	}
	if strings.Contains(errOut.String(), "TAR_ENTRY_ERROR") { // npm counts a file that it could not write as a warning
		return npmError(what, nil, errOut.String(), errors.New("a file could not be written"))
	}
	return nil
}

// npmError says what npm's own error means.
func npmError(what string, out []byte, said string, err error) error {
	var answer struct {
		Error struct{ Code, Summary string }
	}
	_ = json.Unmarshal(out, &answer) // npm may have ended before it wrote one
	code := answer.Error.Code
	full := strings.Contains(said, "ENOSPC")
	said = "get " + what + " from npm: " + cmp.Or(strings.TrimSpace(answer.Error.Summary), tail(said))
	if code == "" && full { // npm could not even write what it had to say
		code = "ENOSPC"
	}
	switch code {
	case "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH", "ERR_SOCKET_TIMEOUT", "FETCH_ERROR", "ENOTCACHED":
		return &agent.Error{Kind: agent.Unavailable, Msg: said, Err: err, Hint: "npm could not reach its registry: npm config get registry, npm config get proxy"}
	case "E404", "ETARGET":
		return &agent.Error{Kind: agent.NotFound, Msg: said, Err: err, Hint: "look at the name and the version: npm view NAME versions"}
	case "EINTEGRITY":
		return &agent.Error{Kind: agent.Denied, Msg: said, Err: err, Hint: "what came is not what was published: look at the registry or the proxy that npm uses"}
	case "EBADPLATFORM":
		return &agent.Error{Kind: agent.Invalid, Msg: said, Err: err, Hint: "this version is not made for the processor of the engine"}
	case "ENOSPC":
		return &agent.Error{Kind: agent.Exhausted, Msg: said, Err: err, Hint: "make room, or put the cache on another disk with --cache"}
	}
	return &agent.Error{Kind: agent.Unavailable, Msg: said, Err: err, Hint: "npm keeps a log of it: npm config get logs-dir"}
}

// installed returns the version of a package that was put into dir, and the hash that npm has checked.
func installed(dir, folder string) (version, integrity string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", "", agent.Wrap(agent.Invalid, err, "read what npm has made")
	}
	l, err := readLock(b)
	if err != nil {
		return "", "", err
	}
	p, ok := l.Packages["node_modules/"+folder]
	if !ok || p.Integrity == "" {
		return "", "", &agent.Error{Kind: agent.Denied, Msg: folder + ": npm has checked no hash of it",
			Hint: "use a registry that has hashes, or another version of npm"}
	}
	return p.Version, p.Integrity, nil
}

// binaries returns the programs that a package names: "bin" in its package.json is a path, or names with paths.
func binaries(dir, folder string) (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "node_modules", folder, "package.json"))
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "read the package "+folder)
	}
	var manifest struct{ Bin json.RawMessage }
	if err := json.Unmarshal(b, &manifest); err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "read the package "+folder)
	}
	var one string
	many := map[string]string{}
	if json.Unmarshal(manifest.Bin, &one) == nil {
		many[path.Base(folder)] = one
	} else if json.Unmarshal(manifest.Bin, &many) != nil || len(many) == 0 {
		return nil, agent.Errorf(agent.Invalid, "the package %s has no program", folder)
	}
	starts := map[string]string{}
	for name, file := range many {
		if name == "" || strings.ContainsAny(name, "/\\") || name[0] == '.' || !filepath.IsLocal(file) {
			return nil, agent.Errorf(agent.Denied, "the package %s names a program %q at %q, out of its folder; nothing was made of it", folder, name, file)
		}
		starts[name] = path.Join("node_modules", folder, file)
	}
	return starts, nil
}

// diskError says what an error of a file means.
func diskError(err error, doing string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &agent.Error{Kind: agent.Exhausted, Msg: doing + ": the disk is full", Err: err, Hint: "make room, or put the cache on another disk with --cache"}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &agent.Error{Kind: agent.Denied, Msg: doing, Err: err, Hint: "give another folder with --cache"}
	}
	return agent.Wrap(agent.Unavailable, err, doing)
}

// tail is the end of what a program wrote.
func tail(text string) string {
	const most = 2000
	text = strings.TrimSpace(text)
	if len(text) > most {
		return "..." + text[len(text)-most:]
	}
	return text
}
