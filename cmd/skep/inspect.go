package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newInspect(c *cli) *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use:   "inspect RUN",
		Short: "Show what a run did, as a tree: steps, calls, waits, commits, lives",
		Long: `Show what a run did, from its journal: steps and the calls made in them, what it waited for, when it was committed, suspended and
woken, each with the time since the run began, how long it took and how large it was.`,
		Example: "  skep inspect 01JQ8...\n  skep inspect 01JQ8... --verbose",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			id := agent.RunID(args[0])
			r, err := cl.Run(cmd.Context(), id)
			if err != nil {
				return err
			}
			t, n, err := readTree(cmd.Context(), cl, id)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"run": r, "tree": append([]*node{}, t.root.Nodes...)})
			}
			p := treePrinter{c: c, began: t.root.At, verbose: verbose, now: time.Now(), ended: r.Status.Terminal()}
			if p.began.IsZero() {
				p.began = r.Started
			}
			if r.Status == agent.Uncertain && r.Wait != nil {
				p.unknown = r.Wait.Call
			}
			p.colours = isTTY(c.stdout) && os.Getenv("NO_COLOR") == ""
			p.print(r, t.root.Nodes)
			if n == 0 {
				c.notef("the run has no journal: only what an instance does is written down\n")
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show what each call was asked and what it answered")
	return cmd
}

// readTree reads a run's whole journal, and its events for what that leaves out. It also returns the number of entries.
func readTree(ctx context.Context, cl *client.Client, id agent.RunID) (*tree, int, error) {
	notes, err := readNotes(ctx, cl, id)
	if err != nil {
		return nil, 0, err
	}
	t, n := newTree(), 0
	for e, err := range client.All(ctx, func(ctx context.Context, p agent.Page) (client.List[agent.JournalEntry], error) {
		return cl.Journal(ctx, id, p)
	}) {
		if err != nil {
			return nil, 0, err
		}
		notes.explain(&e)
		t.add(e)
		n++
	}
	return t, n, nil
}

// treePrinter writes a tree in columns: what, when since the run began, how long, how large.
type treePrinter struct {
	c                       *cli
	began, now              time.Time
	colours, verbose, ended bool
	unknown                 uint64 // the call whose effect is not known; 0 when there is none
	lines                   []treeLine
}

type treeLine struct {
	branch, text, at, took, size string
	colour                       int // of ANSI; 0 is none
}

// The colours of a terminal (ECMA-48, section 8.3.117).
const (
	dim    = 2
	red    = 31
	yellow = 33
	cyan   = 36
)

func (p *treePrinter) print(r agent.Run, nodes []*node) {
	head := fmt.Sprintf("run %s  %s %s  %s", r.ID, r.Agent, r.Function, standing(r))
	if took := runTook(r); took != "" {
		head += "  " + howLong(r.Ended.Sub(r.Started))
	}
	if r.Lives > 1 {
		head += "  " + counting(r.Lives, "life")
	}
	fmt.Fprintln(p.c.stdout, strings.Replace(head, "lifes", "lives", 1))
	p.walk("", nodes)
	p.flush()
	switch {
	case r.Error != nil:
		fmt.Fprintf(p.c.stdout, "error   %s\n", plain(strings.TrimSpace(r.Error.Pos.String()+" "+r.Error.Msg)))
	case r.Output != nil:
		fmt.Fprintf(p.c.stdout, "output  %s\n", shownValue(*r.Output))
	}
}

func (p *treePrinter) walk(indent string, nodes []*node) {
	for i, n := range nodes {
		branch, below := "├─ ", "│  "
		if i == len(nodes)-1 {
			branch, below = "└─ ", "   "
		}
		text, colour := nodeText(n)
		l := treeLine{branch: indent + branch, text: fitted(plain(text), widestText-utf8.RuneCountInString(indent+branch)), colour: colour, at: "+" + howLong(max(n.At.Sub(p.began), 0))}
		switch {
		case n.Open && n.Kind == "call" && n.Call == p.unknown:
			l.took = "not known"
		case n.Open && p.ended:
			l.took = "not answered"
		case n.Open:
			l.took = howLong(max(p.now.Sub(n.At), 0)) + " so far"
		case n.Took > 0:
			l.took = howLong(n.Took)
		}
		if n.Bytes > 0 {
			l.size = size(n.Bytes)
		}
		p.lines = append(p.lines, l)
		if p.verbose {
			for _, part := range []struct {
				what string
				body json.RawMessage
			}{{"in ", n.Input}, {"out", n.Output}} {
				if part.body != nil && n.Kind != "step" {
					p.lines = append(p.lines, treeLine{branch: indent + below + "  ", text: part.what + " " + plain(compact(part.body)), colour: dim})
				}
			}
			if n.Error != nil {
				p.lines = append(p.lines, treeLine{branch: indent + below + "  ", text: "err " + plain(n.Error.Msg), colour: red})
			}
		}
		p.walk(indent+below, n.Nodes)
	}
}

const widestText = 72 // longer lines are cut

// fitted cuts what a line of the tree says to a number of characters.
func fitted(s string, most int) string {
	const more = "..."
	most = max(most, 24) // of what stands deep in the tree
	if r := []rune(s); len(r) > most {
		return string(r[:most-len(more)]) + more
	}
	return s
}

func (p *treePrinter) flush() {
	text, at, took := 0, 0, 0
	for _, l := range p.lines {
		if n := utf8.RuneCountInString(l.branch + l.text); n <= widestText && l.at != "" {
			text = max(text, n)
		}
		at, took = max(at, len(l.at)), max(took, len(l.took))
	}
	for _, l := range p.lines {
		shown := l.text
		if p.colours && l.colour != 0 {
			shown = fmt.Sprintf("\x1b[%dm%s\x1b[0m", l.colour, l.text)
		}
		line := l.branch + shown
		if l.at != "" {
			line += strings.Repeat(" ", max(text-utf8.RuneCountInString(l.branch+l.text), 0)) + fmt.Sprintf("  %*s  %*s  %s", at, l.at, took, l.took, l.size)
		}
		fmt.Fprintln(p.c.stdout, strings.TrimRight(line, " "))
	}
}

// nodeText says in a line what a node is.
func nodeText(n *node) (text string, colour int) {
	switch n.Kind {
	case "step", "rollback":
		text, colour = n.Kind+" "+shownKey(n.Name), cyan
		if n.Call > 1 {
			text += fmt.Sprintf(", attempt %d", n.Call)
		}
	case "wait":
		text, colour = strings.Replace(fmt.Sprintf("#%d wait for %s", n.Call, asked(n)), " for until ", " until ", 1), yellow
	case "call":
		text = strings.TrimSpace(fmt.Sprintf("#%d %s %s", n.Call, n.Name, asked(n)))
		switch n.Class {
		case "read", "idempotent", "once": // it reaches what is outside
			text += " (" + n.Class + ")"
		}
	case "life":
		text, colour = fmt.Sprintf("life %d", n.Call), dim
	case "commit", "snapshot", "timer":
		text, colour = n.Kind, dim
	case "crash":
		text, colour = strings.TrimSpace("crash "+asked(n)), red
	case "retry":
		text = fmt.Sprintf("call #%d is made again", n.Call)
	case "event":
		text, colour = "event "+shownKey(n.Name), yellow
	default:
		text = strings.TrimSpace(n.Kind + " " + n.Name)
	}
	if n.Error != nil {
		text, colour = text+": "+strings.Join(strings.Fields(n.Error.Msg), " "), red
	}
	return text, colour
}

// asked says in a few words what a call asked for.
func asked(n *node) string {
	var in struct {
		Method, URL, Agent, Key, Function, Type, Name, Prefix, Run, Query string

		Until, For int64
		Keys       []string
	}
	var text string
	if json.Unmarshal(n.Input, &text) == nil { // the journal's own words
		return clip(text)
	}
	if json.Unmarshal(n.Input, &in) != nil {
		return ""
	}
	switch {
	case n.Name == abi.CallSleep && in.For > 0:
		return howLong(time.Duration(in.For) * time.Millisecond)
	case n.Name == abi.CallSleep:
		return when(time.UnixMilli(in.Until))
	case n.Name == abi.CallWait:
		return "event " + shownKey(in.Type)
	case n.Name == abi.CallResult:
		return "run " + in.Run
	case in.URL != "":
		return in.Method + " " + clip(in.URL)
	case in.Function != "":
		return strings.TrimSpace(strings.Join([]string{in.Agent, in.Key, in.Function}, " "))
	case in.Query != "":
		return clip(in.Query)
	}
	return clip(strings.Join(append(in.Keys, in.Key, in.Prefix, in.Name), " "))
}

// clip shortens a text to what stands in one line with others.
func clip(s string) string {
	const most = 48
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
