package inside

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// doRepo brings in what to work on, and remembers what it was. What is there already, by the same command, stays as it is.
func (b *box) doRepo(ctx context.Context, a *driver.RepoArgs) (any, error) {
	b.repo.Lock()
	defer b.repo.Unlock()
	if (a.URL == "") == (a.Stream == nil) {
		return nil, agent.Errorf(agent.Invalid, "a repository comes either from a URL or over a stream")
	}
	if strings.HasPrefix(a.URL, "-") || strings.HasPrefix(a.Ref, "-") || a.Depth < 0 {
		return nil, agent.Errorf(agent.Invalid, "a URL or a ref cannot begin with a dash, and a depth cannot be negative")
	}
	if err := driver.CheckRepoURL(a.URL); err != nil {
		return nil, err
	}
	g := b.git()
	var err error
	switch {
	case a.URL != "":
		err = g.clone(ctx, a)
	default:
		err = b.takeTar(ctx, g, a)
	}
	if err != nil {
		return nil, err
	}
	return g.describe(ctx)
}

// has reports whether the workspace is a repository of its own, and not a folder in another.
func (g *git) has() bool {
	_, err := os.Lstat(filepath.Join(g.dir, ".git"))
	return err == nil
}

// clone clones into the workspace, in which a setup script may have put files: they stay unless the repository has the same.
func (g *git) clone(ctx context.Context, a *driver.RepoArgs) error {
	if g.has() {
		if url, _ := g.run(ctx, "config", "--local", "skep.url"); url == a.URL && g.ok(ctx, "rev-parse", "-q", "--verify", baseRef) {
			return nil
		}
		return &agent.Error{Kind: agent.Conflict, Msg: "the workspace has another repository already", Hint: "reset the sandbox, or name the repository that it has"}
	}
	err := g.fetch(ctx, a)
	if err == nil {
		return g.remember(ctx)
	}
	_ = os.RemoveAll(filepath.Join(g.dir, ".git")) // so that it can be tried again
	return err
}

func (g *git) fetch(ctx context.Context, a *driver.RepoArgs) error {
	ref := a.Ref
	steps := [][]string{{"init", "-q", "--template="}, {"remote", "add", "origin", a.URL}, {"config", "--local", "skep.url", a.URL}}
	for _, s := range steps {
		if _, err := g.run(ctx, s...); err != nil {
			return err
		}
	}
	if ref == "" {
		var err error
		if ref, err = g.defaultBranch(ctx); err != nil {
			return err
		}
		if ref == "" {
			return nil // it is empty
		}
	}
	if a.Depth > 0 {
		if _, err := g.run(ctx, "fetch", "-q", "--no-tags", "--depth", strconv.Itoa(a.Depth), "origin", ref); err != nil {
			return err
		}
		return g.checkout(ctx, ref, "FETCH_HEAD")
	}
	if _, err := g.run(ctx, "fetch", "-q", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*"); err != nil {
		return err
	}
	for _, name := range []string{"refs/remotes/origin/" + ref, "refs/tags/" + ref, ref} {
		if g.ok(ctx, "rev-parse", "-q", "--verify", name+"^{commit}") {
			return g.checkout(ctx, ref, name)
		}
	}
	if _, err := g.run(ctx, "fetch", "-q", "origin", ref); err != nil { // a commit that no branch has, such as that of a pull request
		return err
	}
	return g.checkout(ctx, ref, "FETCH_HEAD")
}

// defaultBranch asks the other end what its HEAD is; "" for an empty repository.
func (g *git) defaultBranch(ctx context.Context) (string, error) {
	out, err := g.run(ctx, "ls-remote", "--symref", "origin", "HEAD")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "ref: refs/heads/"); ok {
			name, _, _ = strings.Cut(name, "\t")
			return name, nil
		}
		if sha, _, ok := strings.Cut(line, "\t"); ok {
			return sha, nil
		}
	}
	return "", nil
}

// checkout checks out what was fetched: on a branch when ref is one, else without any.
func (g *git) checkout(ctx context.Context, ref, from string) error {
	if strings.HasPrefix(from, "refs/remotes/") || from == "FETCH_HEAD" && g.ok(ctx, "ls-remote", "-q", "--exit-code", "--heads", "origin", "refs/heads/"+ref) {
		_, err := g.run(ctx, "checkout", "-q", "--no-track", "-B", ref, from)
		return err
	}
	_, err := g.run(ctx, "checkout", "-q", "--detach", from+"^{commit}")
	return err
}

// takeTar unpacks what comes into the workspace, and makes a repository of it when it is none.
func (b *box) takeTar(ctx context.Context, g *git, a *driver.RepoArgs) error {
	st, err := b.open(ctx, a.Stream)
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := unpack(st, g.dir); err != nil {
		return err
	}
	if !g.has() {
		if _, err := g.run(ctx, "init", "-q", "--template="); err != nil {
			return err
		}
	}
	return g.remember(ctx)
}

// remember makes what is in the workspace now the base of later diffs: HEAD when that is the same, else a commit of the driver's own. A repository without
// a commit gets that one on its branch, so that the CLI sees one that is clean.
func (g *git) remember(ctx context.Context) error {
	head, _ := g.run(ctx, "rev-parse", "-q", "--verify", "HEAD^{commit}")
	if head != "" {
		if _, err := g.run(ctx, "update-ref", knownRef, head); err != nil {
			return err
		}
	}
	tree, err := g.snapshot(ctx)
	if err != nil {
		return err
	}
	base := head
	if headTree, _ := g.run(ctx, "rev-parse", "-q", "--verify", "HEAD^{tree}"); head == "" || headTree != tree {
		if base, err = g.commit(ctx, tree, head, "What the work began with"); err != nil {
			return err
		}
	}
	if _, err := g.run(ctx, "update-ref", baseRef, base); err != nil || head != "" {
		return err
	}
	if _, err := g.run(ctx, "update-ref", "HEAD", base); err != nil {
		return err
	}
	_, err = g.run(ctx, "read-tree", base)
	return err
}

// snapshot returns a tree of what is in the workspace: all that git does not ignore. It uses an index of its own, so that the user's stays as it is.
func (g *git) snapshot(ctx context.Context) (string, error) {
	dir, err := g.run(ctx, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "skep-index-*")
	if err != nil {
		return "", fileError(dir, err)
	}
	defer os.Remove(f.Name())
	if index, err := os.Open(filepath.Join(dir, "index")); err == nil { // what it knows of files saves reading them
		_, _ = io.Copy(f, index)
		_ = index.Close()
	}
	info, err := f.Stat()
	_ = f.Close()
	if err == nil && info.Size() == 0 {
		_ = os.Remove(f.Name()) // an empty file is no index
	}
	own := g.with("GIT_INDEX_FILE", f.Name())
	if _, err := own.run(ctx, "add", "-A", "--", "."); err != nil {
		return "", err
	}
	return own.run(ctx, "write-tree")
}

// commit makes a commit of a tree, on no branch. parent may be "".
func (g *git) commit(ctx context.Context, tree, parent, message string) (string, error) {
	args := []string{"commit-tree", tree, "-m", message}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	return g.run(ctx, args...)
}

// describe says what the work begins with.
func (g *git) describe(ctx context.Context) (any, error) {
	r := driver.RepoResult{}
	var err error
	if r.Commit, err = g.run(ctx, "rev-parse", baseRef); err != nil {
		return nil, err
	}
	r.Branch, _ = g.run(ctx, "symbolic-ref", "-q", "--short", "HEAD")
	n := &counter{what: 0}
	if err := g.to(ctx, n, "ls-tree", "-r", "-z", "--name-only", baseRef); err != nil {
		return nil, err
	}
	r.Files = n.n
	return r, nil
}

// counter counts a byte in what is written to it.
type counter struct {
	what byte
	n    int
}

func (c *counter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == c.what {
			c.n++
		}
	}
	return len(p), nil
}
