package inside

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// doDiff compares what is in the workspace now, untracked files among it, with its base.
func (b *box) doDiff(ctx context.Context, a *driver.DiffArgs) (any, error) {
	b.repo.Lock()
	defer b.repo.Unlock()
	g := b.git()
	if !g.has() {
		return nil, &agent.Error{Kind: agent.NotFound, Msg: "the workspace has no repository", Hint: "bring one in first"}
	}
	base := a.Base
	def(&base, baseRef)
	from, err := g.run(ctx, "rev-parse", "-q", "--verify", "--end-of-options", base+"^{commit}")
	switch {
	case agent.KindOf(err) == agent.Failed: // of which git says nothing more
		return nil, &agent.Error{Kind: agent.NotFound, Msg: "the repository has no commit " + base, Hint: "a branch, a tag or a commit that it has will do, such as HEAD"}
	case err != nil:
		return nil, err
	}
	tree, err := g.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	r := &driver.DiffResult{Base: from}
	if err := g.changed(ctx, r, from, tree); err != nil {
		return nil, err
	}
	if a.Commit != "" {
		return r, b.giveBundle(ctx, g, a, r, tree)
	}
	return r, b.give(ctx, a.Stream, func(to io.Writer) error {
		n := &counting{w: to}
		err := g.to(ctx, n, "diff-tree", "-r", "-p", "--binary", "--full-index", "-M", "--no-ext-diff", "--no-textconv", "--no-color", from, tree)
		r.Bytes = n.n
		return err
	})
}

// counting counts what is written.
type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// changed fills in which files differ: of each its status, and how many lines came and went.
func (g *git) changed(ctx context.Context, r *driver.DiffResult, from, tree string) error {
	status, err := g.run(ctx, "diff-tree", "-r", "-z", "-M", "--name-status", from, tree)
	if err != nil {
		return err
	}
	counts, err := g.run(ctx, "diff-tree", "-r", "-z", "-M", "--numstat", "--no-ext-diff", "--no-textconv", from, tree)
	if err != nil {
		return err
	}
	lines := parseNumstat(counts)
	r.Changed = []driver.FileStat{}
	size := 0
	for _, f := range parseStatus(status) {
		r.Files++
		if size += 2*(len(f.Path)+len(f.From)) + 100; len(r.Changed) >= driver.MaxChanged || size > driver.MaxMessage/2 {
			continue
		}
		if n, ok := lines[f.Path]; ok {
			f.Added, f.Removed = n[0], n[1]
		}
		r.Changed = append(r.Changed, f)
	}
	return nil
}

// parseStatus reads git diff-tree -z --name-status: STATUS, PATH; a rename or copy has a score, and both paths.
func parseStatus(text string) []driver.FileStat {
	var out []driver.FileStat
	fields := strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		f := driver.FileStat{Path: fields[i+1], Op: "change"}
		switch {
		case strings.HasPrefix(fields[i], "A"):
			f.Op = "add"
		case strings.HasPrefix(fields[i], "D"):
			f.Op = "delete"
		case strings.HasPrefix(fields[i], "R") && i+2 < len(fields):
			f.Op, f.From, f.Path = "rename", fields[i+1], fields[i+2]
			i++
		}
		out = append(out, f)
	}
	return out
}

// parseNumstat reads git diff-tree -z --numstat: ADDED TAB REMOVED TAB PATH; of a rename the path is empty and both follow. Binary files have dashes.
func parseNumstat(text string) map[string][2]int {
	out := map[string][2]int{}
	fields := strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
	for i := 0; i < len(fields); i++ {
		parts := strings.SplitN(fields[i], "\t", 3)
		if len(parts) != 3 {
			continue
		}
		path := parts[2]
		if path == "" && i+2 < len(fields) {
			path = fields[i+2]
			i += 2
		}
		out[path] = [2]int{count(parts[0]), count(parts[1])}
	}
	return out
}

func count(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

// giveBundle makes a commit of tree on a branch, and gives a bundle of what the other end does not have. When nothing was changed there is neither.
func (b *box) giveBundle(ctx context.Context, g *git, a *driver.DiffArgs, r *driver.DiffResult, tree string) error {
	if !g.ok(ctx, "check-ref-format", "--branch", a.Branch) || strings.HasPrefix(a.Branch, "-") {
		return agent.Errorf(agent.Invalid, "%q is no name of a branch", a.Branch)
	}
	own, err := g.as(a.Author)
	if err != nil {
		return err
	}
	commit, err := own.advance(ctx, a, r.Base, tree)
	if err != nil {
		return err
	}
	if r.Commit = commit; commit == "" {
		return b.give(ctx, a.Stream, func(io.Writer) error { return nil })
	}
	args := []string{"bundle", "create", "-q", "-", "refs/heads/" + a.Branch}
	if known, _ := g.run(ctx, "rev-parse", "-q", "--verify", knownRef); known != "" {
		args = append(args, "--not", known)
	}
	return b.give(ctx, a.Stream, func(to io.Writer) error {
		n := &counting{w: to}
		err := g.to(ctx, n, args...)
		r.Bytes = n.n
		return err
	})
}

// as returns g for an author, NAME <ADDRESS>.
func (g *git) as(author string) (*git, error) {
	if author == "" {
		return g, nil
	}
	name, address, ok := strings.Cut(author, "<")
	address, rest, closed := strings.Cut(address, ">")
	if name = strings.TrimSpace(name); !ok || !closed || rest != "" || name == "" || strings.ContainsAny(author, "\n\x00") {
		return nil, agent.Errorf(agent.Invalid, "the author %q is not of the form NAME <ADDRESS>", author)
	}
	return g.with("GIT_AUTHOR_NAME", name).with("GIT_AUTHOR_EMAIL", address), nil
}

// advance returns the commit that has tree, on a branch of that name: HEAD, when the CLI has committed it itself, else a new one upon HEAD. "" when nothing
// was changed.
func (g *git) advance(ctx context.Context, a *driver.DiffArgs, base, tree string) (string, error) {
	head, _ := g.run(ctx, "rev-parse", "-q", "--verify", "HEAD^{commit}")
	headTree, _ := g.run(ctx, "rev-parse", "-q", "--verify", "HEAD^{tree}")
	baseTree, err := g.run(ctx, "rev-parse", base+"^{tree}")
	if err != nil {
		return "", err
	}
	commit := head
	switch {
	case tree == baseTree:
		return "", nil
	case headTree != tree:
		if commit, err = g.commit(ctx, tree, head, a.Commit); err != nil {
			return "", err
		}
	}
	if _, err := g.run(ctx, "update-ref", "refs/heads/"+a.Branch, commit); err != nil {
		return "", err
	}
	if on, _ := g.run(ctx, "symbolic-ref", "-q", "--short", "HEAD"); on == a.Branch {
		_, err = g.run(ctx, "read-tree", commit) // the index of the branch that has moved
	}
	return commit, err
}
