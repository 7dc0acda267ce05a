package inside_test

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// git runs git for the test, with nothing of the user's.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=T", "-c", "user.email=t@t.invalid", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// origin makes a repository with two commits on main, a branch and a tag.
func origin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	put(t, dir, "README", "one\n")
	put(t, dir, "old name", strings.Repeat("a line\n", 50))
	put(t, dir, ".gitignore", "ignored\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-qm", "one")
	git(t, dir, "tag", "v1")
	git(t, dir, "checkout", "-qb", "side")
	put(t, dir, "side", "x\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-qm", "side")
	git(t, dir, "checkout", "-q", "main")
	put(t, dir, "README", "one\ntwo\n")
	git(t, dir, "commit", "-qam", "two")
	return dir
}

func (r *rig) diff(a *driver.DiffArgs) (driver.DiffResult, []byte) {
	r.t.Helper()
	var d driver.DiffResult
	b := r.get(driver.DoDiff, a, func(s *driver.Stream) { a.Stream = s }, &d)
	if int64(len(b)) != d.Bytes {
		r.t.Errorf("%d bytes came, not %d", len(b), d.Bytes)
	}
	return d, b
}

// change does to the workspace what a CLI may do.
func (r *rig) change() {
	r.t.Helper()
	put(r.t, r.work, "README", "one\n2\n3\n")
	put(r.t, r.work, "new/file", "n\n")
	put(r.t, r.work, "ignored", "i\n")
	put(r.t, r.work, "binary", "\x00\x01\xff")
	if err := os.Rename(filepath.Join(r.work, "old name"), filepath.Join(r.work, "new name")); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.work, ".gitignore")); err != nil {
		r.t.Fatal(err)
	}
	put(r.t, r.work, ".git/info/exclude", "ignored\n")
}

const changed = ".gitignore:delete:0:1 README:change:2:1 binary:add:-1:-1 new name:rename:0:0 new/file:add:1:0"

func stats(d driver.DiffResult) string {
	var out []string
	for _, f := range d.Changed {
		out = append(out, f.Path+":"+f.Op+":"+itoa(f.Added)+":"+itoa(f.Removed))
	}
	return strings.Join(out, " ")
}

func TestCloneAndDiff(t *testing.T) {
	r := start(t)
	from := origin(t)
	put(t, from, ".git/hooks/post-checkout", "#!/bin/sh\ntouch /tmp/skep-hook-ran\n")
	put(t, r.work, "setup-made-this", "x")
	res := do[driver.RepoResult](r, driver.DoRepo, driver.RepoArgs{URL: "file://" + from})
	if res.Branch != "main" || res.Files != 4 || res.Commit == "" {
		t.Fatalf("%+v", res)
	}
	again := do[driver.RepoResult](r, driver.DoRepo, driver.RepoArgs{URL: "file://" + from})
	if again != res {
		t.Errorf("again: %+v", again)
	}
	r.fails(agent.Conflict, "another repository", driver.DoRepo, driver.RepoArgs{URL: "file:///elsewhere"})
	if d, b := r.diff(&driver.DiffArgs{}); len(b) != 0 || len(d.Changed) != 0 {
		t.Errorf("nothing was changed: %s\n%s", stats(d), b)
	}
	r.change()
	before := git(t, r.work, "status", "--porcelain")
	d, patch := r.diff(&driver.DiffArgs{})
	if stats(d) != changed || d.Files != 5 {
		t.Errorf("%s", stats(d))
	}
	if after := git(t, r.work, "status", "--porcelain"); after != before {
		t.Errorf("the user's index was changed: %s\n%s", before, after)
	}
	applied := t.TempDir()
	git(t, applied, "clone", "-q", from, ".")
	put(t, applied, ".git/patch", string(patch))
	git(t, applied, "apply", "--index", ".git/patch")
	if b, _ := os.ReadFile(filepath.Join(applied, "binary")); string(b) != "\x00\x01\xff" {
		t.Errorf("the binary file is %q", b)
	}
	if v := d.Base; v != git(t, from, "rev-parse", "main") {
		// the driver's base has what the setup script made
		if names := git(t, r.work, "diff", "--name-only", "origin/main", v); names != "setup-made-this" {
			t.Errorf("the base differs by %s", names)
		}
	}
}

func TestRefs(t *testing.T) {
	from := origin(t)
	one := git(t, from, "rev-parse", "v1")
	git(t, from, "config", "uploadpack.allowAnySHA1InWant", "true")
	for _, c := range []struct {
		ref           string
		depth         int
		branch, files string
	}{
		{"side", 0, "side", "4"}, {"v1", 0, "", "3"}, {one, 0, "", "3"}, {"side", 1, "side", "4"}, {"v1", 1, "", "3"}, {one, 1, "", "3"}, {"", 1, "main", "3"},
	} {
		t.Run(c.ref+itoa(c.depth), func(t *testing.T) {
			r := start(t)
			res := do[driver.RepoResult](r, driver.DoRepo, driver.RepoArgs{URL: "file://" + from, Ref: c.ref, Depth: c.depth})
			if res.Branch != c.branch || itoa(res.Files) != c.files {
				t.Errorf("%+v", res)
			}
		})
	}
	r := start(t)
	r.fails(agent.NotFound, "couldn't find remote ref", driver.DoRepo, driver.RepoArgs{URL: "file://" + from, Ref: "nothing"})
	r.fails(agent.Invalid, "dash", driver.DoRepo, driver.RepoArgs{URL: "--upload-pack=touch /tmp/x"})
	r.fails(agent.Failed, "not allowed", driver.DoRepo, driver.RepoArgs{URL: "ext::sh -c touch% /tmp/x"})
	for _, url := range []string{"git@example.com:x/y.git", "ssh://git@example.com/x.git", "git://example.com/x.git"} {
		r.fails(agent.Invalid, "is not reached by https", driver.DoRepo, driver.RepoArgs{URL: url})
	}
	do[driver.RepoResult](r, driver.DoRepo, driver.RepoArgs{URL: "file://" + from}) // what failed has left nothing in the way
}

func tarOf(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return b.Bytes()
}

// A folder that is no repository becomes one, so that there is something to compare with.
func TestTarAndDiff(t *testing.T) {
	r := start(t)
	dir := t.TempDir()
	put(t, dir, "README", "one\ntwo\n")
	put(t, dir, "old name", strings.Repeat("a line\n", 50))
	put(t, dir, ".gitignore", "ignored\n")
	a := &driver.RepoArgs{}
	var res driver.RepoResult
	if err := r.put(driver.DoRepo, a, func(s *driver.Stream) { a.Stream = s }, &res, whole(tarOf(t, dir))); err != nil {
		t.Fatal(err)
	}
	if res.Branch != "main" || res.Files != 3 {
		t.Errorf("%+v", res)
	}
	if s := git(t, r.work, "status", "--porcelain"); s != "" {
		t.Errorf("what the CLI sees is not clean: %s", s)
	}
	r.change()
	if d, _ := r.diff(&driver.DiffArgs{}); stats(d) != changed {
		t.Errorf("%s", stats(d))
	}
	// There is nothing that the other end has, so that the bundle is whole.
	d, bundle := r.diff(&driver.DiffArgs{Commit: "All done", Branch: "skep/work", Author: "Someone Else <else@example.com>"})
	if d.Commit == "" {
		t.Fatal("no commit")
	}
	to := t.TempDir()
	put(t, to, "bundle", string(bundle))
	git(t, to, "clone", "-q", "-b", "skep/work", "bundle", "c")
	if s := git(t, filepath.Join(to, "c"), "log", "-1", "--format=%an %ae %s %H"); s != "Someone Else else@example.com All done "+d.Commit {
		t.Error(s)
	}
}

// A repository with changes that are not committed: they are what the work begins with, and not part of the diff.
func TestDirtyTar(t *testing.T) {
	r := start(t)
	dir := origin(t)
	put(t, dir, "README", "dirty\n")
	a := &driver.RepoArgs{}
	var res driver.RepoResult
	if err := r.put(driver.DoRepo, a, func(s *driver.Stream) { a.Stream = s }, &res, whole(tarOf(t, dir))); err != nil {
		t.Fatal(err)
	}
	if d, _ := r.diff(&driver.DiffArgs{}); stats(d) != "" {
		t.Errorf("%s", stats(d))
	}
	if d, b := r.diff(&driver.DiffArgs{Commit: "x", Branch: "b"}); d.Commit != "" || len(b) != 0 {
		t.Errorf("nothing was changed, and there is a commit: %+v", d)
	}
	put(t, r.work, "new", "n\n")
	if d, _ := r.diff(&driver.DiffArgs{}); stats(d) != "new:add:1:0" {
		t.Errorf("%s", stats(d))
	}
	d, bundle := r.diff(&driver.DiffArgs{Commit: "x", Branch: "b"})
	put(t, dir, ".git/bundle", string(bundle))
	git(t, dir, "fetch", "-q", ".git/bundle", "b:b")
	if git(t, dir, "rev-parse", "b") != d.Commit {
		t.Error("the bundle has another commit")
	}
}

// What the CLI has committed itself is in the diff, and on the branch.
func TestCommitsOfTheCLI(t *testing.T) {
	r := start(t)
	from := origin(t)
	do[driver.RepoResult](r, driver.DoRepo, driver.RepoArgs{URL: "file://" + from})
	put(t, r.work, ".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n")
	os.Chmod(filepath.Join(r.work, ".git/hooks/pre-commit"), 0o755)
	put(t, r.work, "README", "by the CLI\n")
	git(t, r.work, "commit", "-nqam", "by the CLI")
	put(t, r.work, "more", "m\n")
	d, bundle := r.diff(&driver.DiffArgs{Commit: "the rest", Branch: "main"})
	if stats(d) != "README:change:1:2 more:add:1:0" {
		t.Errorf("%s", stats(d))
	}
	if s := git(t, r.work, "status", "--porcelain"); s != "" {
		t.Errorf("after a commit on its branch the workspace is not clean: %s", s)
	}
	put(t, from, ".git/bundle", string(bundle))
	git(t, from, "fetch", "-q", ".git/bundle", "main:theirs")
	if s := git(t, from, "log", "--format=%s", "main..theirs"); s != "the rest\nby the CLI" {
		t.Error(s)
	}
	r.fails(agent.Invalid, "no name of a branch", driver.DoDiff, driver.DiffArgs{Commit: "x", Branch: "-x"})
	r.fails(agent.Invalid, "not of the form", driver.DoDiff, driver.DiffArgs{Commit: "x", Branch: "x", Author: "x"})
	r.fails(agent.NotFound, "no commit", driver.DoDiff, driver.DiffArgs{Base: "--output=/tmp/x"})
	if _, err := os.Stat("/tmp/skep-hook-ran"); err == nil {
		t.Error("a hook ran")
	}
}

func TestDiffWithoutARepository(t *testing.T) {
	r := start(t)
	r.fails(agent.NotFound, "no repository", driver.DoDiff, driver.DiffArgs{})
	r.fails(agent.Invalid, "either", driver.DoRepo, driver.RepoArgs{})
	empty := t.TempDir()
	git(t, empty, "init", "-q", "--bare")
	res := do[driver.RepoResult](r, driver.DoRepo, driver.RepoArgs{URL: "file://" + empty})
	if res.Files != 0 || res.Branch != "main" {
		t.Errorf("an empty repository: %+v", res)
	}
	put(t, r.work, "first", "1\n")
	if d, _ := r.diff(&driver.DiffArgs{}); stats(d) != "first:add:1:0" {
		t.Errorf("%s", stats(d))
	}
}
