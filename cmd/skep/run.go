package main

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newRun(c *cli) *cobra.Command {
	var detach, quiet bool
	var session, key string
	var task taskFlags
	cmd := &cobra.Command{
		Use:   "run AGENT [FUNCTION] [INPUT] | run AGENT TASK",
		Short: "Start a run, follow its events and print its result",
		Long: `Start a run of an agent, follow its events and print its result. FUNCTION is "run" unless given. A run is durable: it goes on
when the command or the connection ends, and skep run attach finds it again. Ctrl-C cancels it; --detach only starts it and prints
its id. An agent that has the name of one of the verbs below is run by skep run -- NAME.

An agent whose work a command-line agent does in a sandbox takes a TASK in words. --repo gives it a repository, or a folder of yours, to work on; its result
is what it says and a patch of what it has changed, which --patch and --apply bring back.

` + inputHelp,
		Example: `  skep run planner run '{"goal":"tea and cake"}'
  skep run --detach planner run '{"goal":"tea"}'
  skep run list --agent planner
  skep run --detach order ship '{"id":7}' --key order-7
  skep run send 01JQ8... approval '{"by":"Ada"}'
  skep run coder --repo . --apply "Fix the failing test"
  skep run cancel 01JQ8...`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			start := client.NewRun{Agent: args[0], Session: agent.SessionID(session), Key: key}
			worker, err := task.worker(cmd, cl, args)
			if err != nil {
				return err
			}
			if worker {
				err = task.input(cmd.Context(), cl, args, &start)
			} else {
				start.Function = "run"
				if len(args) > 1 {
					start.Function = args[1]
				}
				start.Input, err = c.jsonInput(args[min(2, len(args)):])
			}
			if err != nil {
				return err
			}
			r, err := cl.StartRun(cmd.Context(), start)
			if err != nil {
				return err
			}
			if detach {
				if c.json {
					return c.printJSON(r)
				}
				c.printf("%s\n", r.ID)
				return nil
			}
			err = c.attach(cmd.Context(), cl, r, quiet, true)
			if err == nil && worker {
				err = task.bring(cmd.Context(), c, cl, r)
			}
			return err
		},
	}
	task.register(cmd)
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "print the run's id and leave it running")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the result only")
	cmd.Flags().StringVar(&session, "session", "", "session to run in; a new one unless given")
	cmd.Flags().StringVar(&key, "key", "", "key of the instance that the new session is with; \"default\" unless given")
	cmd.ValidArgsFunction = c.complete(agentNames, agentFunctions)
	cmd.AddCommand(
		newRunList(c), newRunShow(c), newRunAttach(c), newRunSend(c), newRunRestart(c), newRunResolve(c), newRunExport(c),
		newRunControl(c, "cancel", "Cancel runs at once; those that have ended stay as they are", (*client.Client).CancelRuns),
		newRunControl(c, "pause", "Hold runs where they next come to rest; they give up their cells", (*client.Client).PauseRuns),
		newRunControl(c, "resume", "Let paused runs go on", (*client.Client).ResumeRuns),
		newRunControl(c, "terminate", "End runs by way of their rollbacks", (*client.Client).TerminateRuns),
	)
	return cmd
}

// attachment is how a run is followed: where its events go, whether they are shown at all, and whether the run is cancelled when the command is.
type attachment struct {
	events       io.Writer
	quiet, owned bool
}

// attach prints a run's events until its last, then its result. When ctx ends first it cancels the run, if owned.
func (c *cli) attach(ctx context.Context, cl *client.Client, r agent.Run, quiet, owned bool) error {
	return c.follow(ctx, cl, r, attachment{events: c.stdout, quiet: quiet, owned: owned})
}

// follow is attach of events that may go elsewhere.
func (c *cli) follow(ctx context.Context, cl *client.Client, r agent.Run, a attachment) error {
	p := eventPrinter{w: a.events, json: c.json}
	quiet, owned := a.quiet, a.owned
	var last agent.Event
	for e, err := range cl.Events(ctx, client.RunLog(r.ID), 0, true) {
		if err != nil {
			if ctx.Err() != nil && owned {
				return c.cancelOwn(ctx, cl, r.ID)
			}
			return err
		}
		last = e
		if quiet {
			continue
		}
		if err := p.print(e); err != nil {
			return err
		}
	}
	if !last.Kind.EndsRun() {
		return &agent.Error{Kind: agent.Unavailable, Msg: "the events ended before the run did", Hint: "skep run attach " + string(r.ID)}
	}
	if last.Kind != agent.EventRunCompleted {
		var re agent.RunError
		if err := json.Unmarshal(last.Data, &re); err != nil {
			return err
		}
		if c.json && !quiet {
			return silent{re.Kind}
		}
		return runError(&re)
	}
	var end runEnd
	if err := json.Unmarshal(last.Data, &end); err != nil {
		return err
	}
	if c.json {
		if quiet {
			return c.printJSON(end)
		}
		return nil
	}
	return c.printBytes(end.Output)
}

// cancelOwn cancels a run after Ctrl-C.
func (c *cli) cancelOwn(ctx context.Context, cl *client.Client, id agent.RunID) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if _, err := cl.CancelRuns(ctx, id); err != nil {
		return &agent.Error{Kind: agent.Cancelled, Msg: "the run may go on: it could not be cancelled", Err: err, Hint: "skep run cancel " + string(id)}
	}
	return &agent.Error{Kind: agent.Cancelled, Msg: "run " + string(id) + " cancelled"}
}

// statuses are the names of all, as a list of runs takes them.
var statuses = func() (out []string) {
	for s := agent.Queued; s <= agent.RunCancelled; s++ {
		out = append(out, s.String())
	}
	return out
}()

func newRunList(c *cli) *cobra.Command {
	var filter client.RunFilter
	var status string
	list := func(cl *client.Client, ctx context.Context, page agent.Page) (client.List[agent.Run], error) {
		if status != "" {
			if err := filter.Status.UnmarshalText([]byte(status)); err != nil {
				return client.List[agent.Run]{}, err
			}
		}
		return cl.Runs(ctx, filter, page)
	}
	cmd := listVerb(c, "List runs, newest first", list, table[agent.Run]{
		what: "runs", hint: "skep run AGENT starts one", header: []string{"ID", "AGENT", "FUNCTION", "STATUS", "CREATED", "TOOK"},
		row: func(r agent.Run) []string {
			return []string{string(r.ID), r.Agent, r.Function, standing(r), when(r.Created), runTook(r)}
		},
	})
	cmd.Example = "  skep run list --agent planner --status running\n  skep run list --status waiting"
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only runs of this agent")
	cmd.Flags().StringVar((*string)(&filter.Session), "session", "", "only runs of this session")
	cmd.Flags().StringVar(&status, "status", "", "only runs that stand so: "+strings.Join(statuses, ", "))
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// standing is a run's status, and what it waits for.
func standing(r agent.Run) string {
	if r.Wait == nil || r.Status.Terminal() {
		return r.Status.String()
	}
	return r.Status.String() + " (" + waitText(*r.Wait) + ")"
}

// waitText says what a run waits for.
func waitText(w agent.RunWait) string {
	text := ""
	switch w.For {
	case "sleep":
		if !w.Until.IsZero() {
			return when(w.Until)
		}
		text = "a time"
	case "event":
		text = "event " + shownKey(w.Name)
	case "run":
		text = "run " + w.Name
	case "reply":
		text = "a reply"
		if w.Name != "" {
			text = "the reply of " + plain(clip(w.Name))
		}
	case "pause":
		text = "a person to resume it"
	case "answer":
		text = "what became of call " + strconv.FormatUint(w.Call, 10)
		if w.Name != "" {
			text += ", " + w.Name
		}
	default:
		text = w.For
	}
	if !w.Until.IsZero() {
		text += " until " + when(w.Until)
	}
	return text
}

func runTook(r agent.Run) string {
	if r.Started.IsZero() || r.Ended.IsZero() {
		return ""
	}
	return took(r.Ended.Sub(r.Started))
}

func newRunShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run, its input and its result",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			r, err := cl.Run(cmd.Context(), agent.RunID(args[0]))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(r)
			}
			var output, problem string
			if r.Output != nil {
				output = payloadText(*r.Output)
			}
			if r.Error != nil {
				problem = strings.TrimSpace(r.Error.Pos.String() + " " + r.Error.Msg)
			}
			var waits, parent, lives string
			if r.Wait != nil && !r.Status.Terminal() {
				waits = waitText(*r.Wait)
			}
			if r.Parent != nil {
				parent = string(r.Parent.Run)
			}
			if r.Lives > 1 {
				lives = strconv.Itoa(r.Lives)
			}
			c.printFields("id", string(r.ID), "agent", r.Agent, "function", r.Function, "session", string(r.Session), "parent", parent, "code", short(r.Plugin),
				"status", r.Status.String(), "waits for", waits, "lives", lives, "created", when(r.Created), "started", when(r.Started), "ended", when(r.Ended), "took", runTook(r),
				"input", payloadText(r.Input), "output", output, "error", problem)
			if r.Status == agent.Uncertain {
				c.notef("skep run resolve %s says what became of it\n", r.ID)
			}
			return nil
		},
	}
}

// payloadText shows a payload on one line.
func payloadText(p agent.Payload) string {
	switch {
	case p.IsJSON():
		return compact(p.Body)
	case p.IsText():
		return strings.ReplaceAll(string(p.Body), "\n", "\\n")
	}
	return size(int64(len(p.Body))) + " of " + p.Type
}

func newRunAttach(c *cli) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "attach RUN",
		Short: "Follow a run from its beginning to its end; Ctrl-C leaves it running",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			r, err := cl.Run(cmd.Context(), agent.RunID(args[0]))
			if err != nil {
				return err
			}
			return c.attach(cmd.Context(), cl, r, quiet, false)
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the result only")
	return cmd
}
