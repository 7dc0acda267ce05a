package inside

import (
	"bytes"
	"context"
	"io"
	"strings"
	"syscall"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// Refs of the driver's own in the repository, so that a pet's next driver finds them too.
const (
	baseRef  = "refs/skep/base"  // what DoDiff compares with
	knownRef = "refs/skep/known" // the newest commit that came from outside: bundles need not have what it has
)

const gitMost = 32 << 20 // bytes of what git says that are kept

// gitFlags keep git from running what the repository or its user has set up, from asking anybody anything, and from refusing a folder for its owner.
var gitFlags = []string{
	"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "safe.directory=*", "-c", "protocol.ext.allow=never", "-c", "credential.helper=",
	"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "commit.gpgSign=false", "-c", "core.quotePath=false", "-c", "advice.detachedHead=false",
	"-c", "core.pager=cat", "-c", "init.defaultBranch=main", "-c", "diff.renames=true", "-c", "core.autocrlf=false",
}

// git is one call of git in a folder.
type git struct {
	b   *box
	dir string
	env map[string]string
}

func (b *box) git() *git {
	return &git{b: b, dir: b.o.Boot.Workdir, env: map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false", "SSH_ASKPASS": "/bin/false", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C",
		"GIT_AUTHOR_NAME": "Skep", "GIT_AUTHOR_EMAIL": "agent@skep.invalid", "GIT_COMMITTER_NAME": "Skep", "GIT_COMMITTER_EMAIL": "agent@skep.invalid",
	}}
}

// with returns g with more environment.
func (g *git) with(name, value string) *git {
	own := &git{b: g.b, dir: g.dir, env: map[string]string{name: value}}
	for n, v := range g.env {
		if n != name {
			own.env[n] = v
		}
	}
	return own
}

// run runs git, and returns what it said without the line end.
func (g *git) run(ctx context.Context, args ...string) (string, error) {
	out := &bounded{most: gitMost}
	if err := g.to(ctx, out, args...); err != nil {
		return "", err
	}
	return strings.TrimRight(out.buf.String(), "\n"), nil
}

// ok reports whether git says yes.
func (g *git) ok(ctx context.Context, args ...string) bool {
	_, err := g.run(ctx, args...)
	return err == nil
}

// to runs git and writes what it says to out.
func (g *git) to(ctx context.Context, out io.Writer, args ...string) error {
	p, err := g.b.procs.start(ctx, start{
		name: "git", command: append(append([]string{"git"}, gitFlags...), args...), dir: g.dir, env: g.b.vars(g.env),
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.end(g.b.o.Grace, syscall.SIGTERM, syscall.SIGKILL) })
	defer stop()
	_ = p.CloseInput()
	_, bad := io.Copy(out, p)
	if bad != nil {
		_ = p.kill(syscall.SIGKILL, true)
	}
	d := p.Wait()
	switch {
	case ctx.Err() != nil:
		return ending()
	case bad != nil:
		return bad
	case d.Code != 0:
		return gitError(args, d)
	}
	return nil
}

// gitError is what git has complained about.
func gitError(args []string, d driver.ProcessData) error {
	e := &agent.Error{Kind: agent.Failed, Msg: "git " + args[0] + " failed: " + lastLines(d.Tail, 600)}
	switch {
	case d.OOM:
		e.Kind, e.Hint = agent.Exhausted, "the box had no memory left: see size.memory of the environment"
	case strings.Contains(d.Tail, "No space left"):
		e.Kind, e.Hint = agent.Exhausted, "the box has no room left: see size.disk of the environment"
	case strings.Contains(d.Tail, "Could not resolve") || strings.Contains(d.Tail, "unable to access") || strings.Contains(d.Tail, "response 403"):
		e.Kind, e.Hint = agent.Denied, "the sandbox reaches hosts that the agent is granted and the environment's network names, and no others"
	case strings.Contains(d.Tail, "not found") || strings.Contains(d.Tail, "couldn't find remote ref"):
		e.Kind = agent.NotFound
	}
	return e
}

func lastLines(text string, most int) string {
	text = strings.TrimSpace(text)
	return strings.ToValidUTF8(driver.CutTail(text, most), "\uFFFD")
}

// bounded keeps what is written to it, up to a size; more is an error.
type bounded struct {
	most int
	buf  bytes.Buffer
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.buf.Len()+len(p) > w.most {
		return 0, agent.Errorf(agent.Exhausted, "git said more than %d bytes", w.most)
	}
	return w.buf.Write(p)
}
