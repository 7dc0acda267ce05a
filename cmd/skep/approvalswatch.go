package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newApprovalsWatch(c *cli) *cobra.Command {
	var filter client.ApprovalFilter
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show each question as it comes, and answer it with a key",
		Long: `Show each question as it comes, beginning with those that are open, and answer it with a key: y allows it once, r for the run, p by a pattern; n
refuses it; s leaves it open; q quits. Where standard input is no terminal, answers are read from it, one a line. With --json questions and answers
are printed, one a line, and nothing is read.`,
		Example: "  skep approvals watch\n  skep approvals watch --agent deployer",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if c.json {
				return c.printEvents(cmd.Context(), cl, client.ApprovalLog(filter), 0, true)
			}
			return c.watchApprovals(cmd.Context(), cl, filter)
		},
	}
	registerFilter(cmd, &filter)
	return cmd
}

const watchKeys = "[y] once  [r] for this run  [p] by a pattern  [n] refuse  [s] skip  [q] quit: "

// watchApprovals asks for the questions one after the other. One that somebody else answers meanwhile is a message when it is answered here.
func (c *cli) watchApprovals(ctx context.Context, cl *client.Client, filter client.ApprovalFilter) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	keys := newAnswerReader(c.stdin)
	c.notef("waiting for questions; Ctrl-C ends\n")
	seen := map[agent.ApprovalID]bool{}
	for e, err := range cl.Events(ctx, client.ApprovalLog(filter), 0, true) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		var a agent.Approval
		if e.Kind != agent.EventApprovalRequested || json.Unmarshal(e.Data, &a) != nil || seen[a.ID] || !time.Now().Before(a.Expires) {
			continue
		}
		seen[a.ID] = true
		fmt.Fprintln(c.stdout)
		c.printApproval(a)
		quit, err := c.askApproval(ctx, cl, keys, a)
		if quit || err != nil {
			return err
		}
	}
	return nil
}

// askApproval asks until there is an answer that the server takes, or the question is left.
func (c *cli) askApproval(ctx context.Context, cl *client.Client, keys *answerReader, a agent.Approval) (quit bool, err error) {
	for {
		fmt.Fprintf(c.stderr, "\n%s ", watchKeys)
		key, err := keys.key()
		fmt.Fprintln(c.stderr)
		if errors.Is(err, io.EOF) || key == "q" {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		var answer agent.ApprovalAnswer
		switch key {
		case "s":
			return false, nil
		case "y":
			answer.Allow = true
			if a.Asks != nil && a.Asks.URL == "" {
				if answer.Content, err = c.askContent(keys); err != nil {
					c.show(ctx, err)
					continue
				}
			}
		case "r":
			answer.Allow, answer.Scope = true, agent.ScopeRun
		case "p":
			if answer, err = c.askPattern(keys, a); err != nil {
				c.show(ctx, err)
				continue
			}
		case "n":
			fmt.Fprint(c.stderr, "reason, or nothing: ")
			if answer.Reason, err = keys.line(); err != nil {
				return true, nil
			}
		default:
			continue
		}
		_, err = cl.AnswerApprovals(ctx, []agent.ApprovalID{a.ID}, answer)
		switch kind := agent.KindOf(err); {
		case err == nil:
			c.sayAnswered(a.ID, answer.Allow)
			return false, nil
		case ctx.Err() != nil:
			return true, nil
		case kind == agent.Conflict || kind == agent.NotFound: // somebody was faster
			c.show(ctx, err)
			return false, nil
		default:
			c.show(ctx, err)
		}
	}
}

func (c *cli) askContent(keys *answerReader) (json.RawMessage, error) {
	fmt.Fprint(c.stderr, "the answer, a JSON object: ")
	line, err := keys.line()
	if err == nil && !json.Valid([]byte(line)) {
		err = badJSON(line)
	}
	return json.RawMessage(line), err
}

func (c *cli) askPattern(keys *answerReader, a agent.Approval) (agent.ApprovalAnswer, error) {
	out := agent.ApprovalAnswer{Allow: true, Scope: agent.ScopePattern, Count: 20, For: 30 * time.Minute}
	if len(a.Calls) == 0 {
		return out, usageError("this asks about no call")
	}
	fmt.Fprintf(c.stderr, "pattern [%s]: ", plain(a.Calls[0].Tool))
	line, err := keys.line()
	if err != nil {
		return out, err
	}
	out.Pattern = or(line, a.Calls[0].Tool)
	fmt.Fprintf(c.stderr, "calls [%d]: ", out.Count)
	if line, err = keys.line(); err == nil && line != "" {
		if _, bad := fmt.Sscanf(line, "%d", &out.Count); bad != nil {
			return out, usageError("%s is no number of calls", line)
		}
	}
	fmt.Fprintf(c.stderr, "for [%s]: ", out.For)
	if line, err = keys.line(); err == nil && line != "" {
		if out.For, err = time.ParseDuration(line); err != nil {
			return out, usageError("%s is no duration, such as 30m", line)
		}
	}
	return out, err
}

// answerReader reads what a person says: single keys from a terminal, else lines.
type answerReader struct {
	tty   *os.File // nil when it is none
	lines *bufio.Reader
}

func newAnswerReader(in io.Reader) *answerReader {
	r := &answerReader{lines: bufio.NewReader(in)}
	if f, ok := in.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		r.tty = f
	}
	return r
}

// readTime is how long a question is shown before a key counts: what was typed before that was not meant for it.
const readTime = 400 * time.Millisecond

// key returns one key in lower case.
func (r *answerReader) key() (string, error) {
	if r.tty == nil {
		line, err := r.line()
		return strings.ToLower(line), err
	}
	before, err := term.MakeRaw(int(r.tty.Fd()))
	if err != nil {
		return "", err
	}
	shown := time.Now()
	b, err := r.lines.ReadByte()
	for err == nil && b != 3 && time.Since(shown) < readTime {
		b, err = r.lines.ReadByte()
	}
	err = errors.Join(err, term.Restore(int(r.tty.Fd()), before))
	if b == 3 || b == 4 { // Ctrl-C and Ctrl-D, which a raw terminal passes on
		return "q", err
	}
	return strings.ToLower(string(rune(b))), err
}

func (r *answerReader) line() (string, error) {
	line, err := r.lines.ReadString('\n')
	if line = strings.TrimSpace(line); line != "" {
		err = nil
	}
	return line, err
}
