package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newChat(c *cli) *cobra.Command {
	var session, key, message string
	var thoughts bool
	cmd := &cobra.Command{
		Use:   "chat AGENT",
		Short: "Talk with an agent",
		Long: `Talk with an agent: each line is a message, and the answer is printed as it comes. Calls of tools are told in a line each; where a person has
to approve one, you are asked. Ctrl-C stops the answer under way, a second Ctrl-C or Ctrl-D leaves. The conversation is kept: --session goes on with
one, also when its answer is still under way.

Where standard input is no terminal, its lines are the messages, and the answers to what is asked. Answers go to standard output, all else to standard
error. With --json all that happens is printed, one object a line, and what is asked is left to skep approvals.`,
		Example: `  skep chat assistant
  skep chat assistant --session 01JQ8ZK6Y3V5N7R9T1W3X5Z7B9
  skep chat assistant --message 'What is on my list?'
  printf 'My name is Ada.\nWho am I?\n' | skep chat assistant`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			ctx, stop := withoutInterrupt(cmd.Context())
			defer stop()
			t := &talk{cli: c, cl: cl, interrupt: make(chan os.Signal, 1), in: newChatInput(c.stdin), view: chatView{cli: c, thoughts: thoughts}}
			signal.Notify(t.interrupt, os.Interrupt)
			defer signal.Stop(t.interrupt)
			if t.session, err = t.open(ctx, args[0], agent.SessionID(session), key); err != nil {
				return err
			}
			if cmd.Flags().Changed("message") {
				return t.say(ctx, message)
			}
			return t.listen(ctx, session != "")
		},
	}
	cmd.ValidArgsFunction = c.complete(agentNames)
	cmd.Flags().StringVar(&session, "session", "", "go on with this `SESSION`; a new one unless given")
	cmd.Flags().StringVar(&key, "key", "", "key of the instance that a new session is with; \"default\" unless given")
	cmd.Flags().StringVarP(&message, "message", "m", "", "say this, print the answer and leave")
	cmd.Flags().BoolVar(&thoughts, "thoughts", false, "show the model's reasoning, where it tells it")
	return cmd
}

// withoutInterrupt returns a context that ends with ctx, unless that ends by Ctrl-C.
func withoutInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); cause == nil || !strings.HasPrefix(cause.Error(), os.Interrupt.String()+" signal") {
			cancel()
		}
	})
	return out, func() { stop(); cancel() }
}

// talk is a conversation of a person at a terminal, or of a program, with an agent.
type talk struct {
	*cli
	cl        *client.Client
	session   agent.Session
	interrupt chan os.Signal
	in        *chatInput
	view      chatView
}

// open makes a session, or finds the one that is to go on.
func (t *talk) open(ctx context.Context, name string, id agent.SessionID, key string) (agent.Session, error) {
	if id == "" {
		s, err := t.cl.CreateSession(ctx, client.NewSession{Agent: name, Key: key})
		if err == nil && t.json {
			err = t.view.line(struct {
				Type    string          `json:"type"`
				Session agent.SessionID `json:"session"`
			}{"session", s.ID})
		} else if err == nil {
			t.notef("session %s\n", s.ID)
		}
		return s, err
	}
	if key != "" {
		return agent.Session{}, usageError("--key is for a new session: leave it out, or --session")
	}
	s, err := t.cl.Session(ctx, id)
	if err == nil && s.Agent != name {
		err = usageError("session %s is with agent %s: skep chat %s --session %s", id, s.Agent, s.Agent, id)
	}
	return s, err
}

// listen takes messages until there are no more.
func (t *talk) listen(ctx context.Context, old bool) error {
	if old {
		if err := t.stay(ctx, t.resume(ctx)); err != nil {
			return err
		}
	}
	if t.in.tty != nil {
		t.notef("Ctrl-C stops an answer, Ctrl-D leaves\n")
	}
	for {
		line, err := t.read(ctx)
		switch {
		case errors.Is(err, io.EOF):
			if t.in.tty != nil && !t.json {
				t.notef("\nskep chat %s --session %s goes on\n", t.session.Agent, t.session.ID)
			}
			return nil
		case err != nil:
			return err
		case line == "":
			continue
		}
		if err := t.stay(ctx, t.say(ctx, line)); err != nil {
			return err
		}
	}
}

// stay shows what an answer failed with to who sits at a terminal, and goes on; else it is the error.
func (t *talk) stay(ctx context.Context, err error) error {
	if err == nil || t.in.tty == nil || ctx.Err() != nil || errors.Is(err, errLeave) {
		return err
	}
	t.show(ctx, err)
	return nil
}

// read returns the next line, or io.EOF when the person leaves.
func (t *talk) read(ctx context.Context) (string, error) {
	for len(t.interrupt) > 0 { // it was for an answer that had ended
		<-t.interrupt
	}
	lines := t.in.next("> ")
	select {
	case l := <-lines:
		return l.text, l.err
	case <-t.interrupt:
		if t.in.restore(); t.in.tty == nil {
			return "", &agent.Error{Kind: agent.Cancelled, Msg: "interrupted"}
		}
		return "", io.EOF
	case <-ctx.Done():
		t.in.restore()
		return "", &agent.Error{Kind: agent.Cancelled, Msg: "the command was ended"}
	}
}

// resume shows an answer that is still under way.
func (t *talk) resume(ctx context.Context) error {
	runs, err := t.cl.Runs(ctx, client.RunFilter{Session: t.session.ID}, agent.Page{Limit: 1})
	if err != nil || len(runs.Items) == 0 || runs.Items[0].Status.Terminal() {
		return err
	}
	return t.answer(ctx, runs.Items[0].ID)
}

// say sends a message and shows what comes of it.
func (t *talk) say(ctx context.Context, text string) error {
	content, err := json.Marshal(text)
	if err != nil {
		return err
	}
	run, err := t.cl.Send(ctx, t.session.ID, agent.Message{Role: "user", Content: content})
	if err != nil {
		return err
	}
	return t.answer(ctx, run.ID)
}

// errLeave says that a second Ctrl-C came.
var errLeave = &agent.Error{Kind: agent.Cancelled, Msg: "left while the answer was being stopped"}

// answer shows what a run says, and asks what it asks. Ctrl-C cancels it.
func (t *talk) answer(ctx context.Context, run agent.RunID) error {
	short, stop := context.WithCancel(ctx)
	defer stop()
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-t.interrupt:
			close(stopped)
			stop()
		case <-short.Done():
		}
	}()
	err := t.follow(short, run)
	stop()
	<-ended
	t.view.end()
	select {
	case <-stopped:
		return t.cancel(ctx, run)
	default:
	}
	if err != nil && ctx.Err() != nil {
		return t.cancelOwn(ctx, t.cl, run)
	}
	return err
}

// cancel ends a run after Ctrl-C. A second one does not wait for that.
func (t *talk) cancel(ctx context.Context, run agent.RunID) error {
	done := make(chan error, 1)
	go func() { done <- t.cancelOwn(ctx, t.cl, run) }()
	select {
	case err := <-done:
		return err
	case <-t.interrupt:
		return errLeave
	}
}

// follow shows a run to its end.
func (t *talk) follow(ctx context.Context, run agent.RunID) error {
	for p, err := range t.cl.Chat(ctx, client.RunLog(run), 0, true) {
		if err != nil {
			return err
		}
		if err := t.view.part(p); err != nil {
			return err
		}
		switch p.Kind {
		case client.ChatApproval:
			if t.json {
				continue
			}
			if err := t.ask(ctx, *p.Approval); err != nil {
				return err
			}
		case client.ChatDone:
			if t.json && p.Failed != nil {
				return silent{p.Failed.Kind}
			}
			return runError(p.Failed)
		}
	}
	return &agent.Error{Kind: agent.Unavailable, Msg: "the answer broke off", Hint: fmt.Sprintf("skep chat %s --session %s", t.session.Agent, t.session.ID)}
}

const chatKeys = "[y] allow once  [n] refuse  [d] details  [s] leave it open: "

// ask asks the person about calls of tools, until there is an answer that the server takes, or the question is left.
func (t *talk) ask(ctx context.Context, a agent.Approval) error {
	if _, err := t.cl.Approval(ctx, a.ID); agent.KindOf(err) == agent.Conflict || agent.KindOf(err) == agent.NotFound {
		return nil // an old event: it is answered
	}
	t.view.end()
	t.notef("%s\n", askedLines(a))
	for {
		t.notef("%s", chatKeys)
		key, err := t.in.key(ctx)
		t.notef("\n")
		if err != nil && key == "" {
			if ctx.Err() != nil {
				return err
			}
			return &agent.Error{Kind: agent.Conflict, Msg: "there was no answer to what is asked: the run waits for it", Hint: "skep approvals approve " + string(a.ID)}
		}
		answer := agent.ApprovalAnswer{Allow: true}
		switch key {
		case "d", "details":
			aside := *t.cli
			aside.stdout = t.stderr
			aside.printApproval(a)
			continue
		case "q": // Ctrl-C, as a terminal tells it that gives single keys
			select {
			case t.interrupt <- os.Interrupt:
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		case "s":
			t.notef("it is left open: skep approvals approve %s\n", a.ID)
			return nil
		case "n", "no":
			answer.Allow = false
		case "y", "yes":
			if a.Asks != nil && a.Asks.URL == "" {
				t.notef("the answer, a JSON object: ")
				line, err := t.in.line(ctx)
				if err != nil {
					return err
				}
				if !json.Valid([]byte(line)) {
					t.show(ctx, badJSON(line))
					continue
				}
				answer.Content = json.RawMessage(line)
			}
		default:
			continue
		}
		_, err = t.cl.AnswerApprovals(ctx, []agent.ApprovalID{a.ID}, answer)
		kind := agent.KindOf(err)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		t.show(ctx, err)
		if kind == agent.Conflict || kind == agent.NotFound { // somebody was faster
			return nil
		}
	}
}
