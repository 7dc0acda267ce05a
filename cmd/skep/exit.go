package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
)

// exitOK is the exit code of a command that worked; exitCode has the others.
const exitOK = 0

// exitCode maps an error kind to the exit code of the process. docs/guide/cli.md repeats this table for users.
func exitCode(k agent.Kind) int {
	switch k {
	case agent.Invalid:
		return 2
	case agent.NotFound:
		return 3
	case agent.Unauthenticated, agent.Denied:
		return 4
	case agent.Exists, agent.Conflict:
		return 5
	case agent.Exhausted:
		return 6
	case agent.Unavailable:
		return 7
	case agent.Failed:
		return 8
	case agent.Cancelled:
		return 130
	case agent.Internal:
		return 1
	}
	return 1
}

// silent is an error that was already shown; only its kind counts.
type silent struct{ kind agent.Kind }

func (s silent) Error() string { return s.kind.String() }

// exited ends the process with a code of a verb's own; what there is to say was said.
type exited struct{ code int }

func (e exited) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// report shows err on stderr and returns the exit code for it.
func (c *cli) report(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if own, ok := errors.AsType[exited](err); ok {
		return own.code
	}
	var shown silent
	if errors.As(err, &shown) {
		return exitCode(shown.kind)
	}
	c.show(ctx, err)
	return exitCode(toError(ctx, err).Kind)
}

// show writes err to stderr.
func (c *cli) show(ctx context.Context, err error) {
	e := toError(ctx, err)
	if c.json {
		c.printErrorJSON(e)
		return
	}
	var code sourceError
	lines := ""
	if errors.As(err, &code) {
		lines = excerpt(code.dir, e.Pos)
	}
	c.printError(e, lines)
}

// toError gives a kind to errors that come from outside our own packages. An internal error's cause is shown here, because
// whoever runs the command may see it.
func toError(ctx context.Context, err error) *agent.Error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return &agent.Error{Kind: agent.Cancelled, Msg: "interrupted"}
	}
	return &agent.Error{Kind: agent.Internal, Msg: err.Error()}
}

// printError writes an error as a person reads it: place and message, the lines of source if any, stack, hint.
func (c *cli) printError(e *agent.Error, source string) {
	msg := e.Error()
	if at := e.Pos.String(); at != "" && !strings.Contains(msg, at) {
		msg = at + ": " + msg
	}
	fmt.Fprintf(c.stderr, "skep: %s\n", plain(msg))
	io.WriteString(c.stderr, source)
	for line := range strings.Lines(e.Stack) {
		fmt.Fprintf(c.stderr, "    %s\n", plain(strings.TrimSpace(line)))
	}
	if e.Hint != "" {
		fmt.Fprintf(c.stderr, "hint: %s\n", plain(e.Hint))
	}
}

// printErrorJSON writes an error as one JSON object, for --json.
func (c *cli) printErrorJSON(e *agent.Error) {
	re := agent.ErrorOf(e)
	re.Msg = e.Error()
	out := json.NewEncoder(c.stderr)
	out.SetEscapeHTML(false)
	if err := out.Encode(map[string]any{"error": re, "exit": exitCode(e.Kind)}); err != nil {
		fmt.Fprintf(c.stderr, "skep: %s\n", e.Msg)
	}
}

// usageHint is what a usage error says when it is not known which verb it is about.
const usageHint = "skep help shows the verbs, skep VERB --help their flags"

// usageError marks a command line that cannot be understood.
func usageError(format string, args ...any) error {
	return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf(format, args...), Hint: usageHint}
}

// hintVerb names the verb in the hint of a usage error.
func hintVerb(verb *cobra.Command, err error) error {
	e, ok := errors.AsType[*agent.Error](err)
	if !ok || e.Hint != usageHint || !verb.HasParent() {
		return err
	}
	about := *e
	about.Hint = verb.CommandPath() + " --help shows its flags"
	if verb.HasSubCommands() {
		about.Hint = verb.CommandPath() + " --help shows what there is"
	}
	return &about
}

// noVerb is the error for a word that is none of cmd's verbs.
func noVerb(cmd *cobra.Command, word string) error {
	e := &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("there is no verb %q", word), Hint: usageHint}
	if cmd.HasParent() {
		e.Msg += " in " + cmd.CommandPath()
	}
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		e.Hint = "is it " + cmd.CommandPath() + " " + strings.Join(near, " or ") + "?"
	}
	return e
}
