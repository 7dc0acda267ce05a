package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// newRunControl is a verb that does something to several runs.
func newRunControl(c *cli, verb, short string, do func(*client.Client, context.Context, ...agent.RunID) ([]agent.Run, error)) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " RUN...",
		Short: short,
		Args:  cobra.MinimumNArgs(1),

		ValidArgsFunction: c.completeMany(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			ids := make([]agent.RunID, len(args))
			for i, a := range args {
				ids[i] = agent.RunID(a)
			}
			runs, err := do(cl, cmd.Context(), ids...)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(runs)
			}
			for _, r := range runs {
				c.printf("%s %s\n", r.ID, r.Status)
			}
			return nil
		},
	}
}

// printRun shows what a verb made of a run.
func (c *cli) printRun(r agent.Run) error {
	if c.json {
		return c.printJSON(r)
	}
	c.printf("%s %s\n", r.ID, r.Status)
	return nil
}

func newRunSend(c *cli) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:     "send RUN TYPE [DATA]",
		Aliases: []string{"event"},
		Short:   "Send an event to a run that waits for it, or will",
		Long:    "Send an event to a run, which keeps it until its code waits for one of that type.\n\n" + inputHelp,
		Example: "  skep run send 01JQ8... approval '{\"by\":\"Ada\"}'",
		Args:    cobra.RangeArgs(2, 3),

		ValidArgsFunction: c.complete(runIDs, waitedTypes),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := c.jsonInput(args[2:])
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			r, err := cl.SendEvent(cmd.Context(), agent.RunID(args[0]), args[1], key, data)
			if err != nil {
				return err
			}
			return c.printRun(r)
		},
	}
	cmd.Flags().StringVar(&key, "once", "", "a `NAME` of your own; the event is kept once, however often it is sent with it")
	return cmd
}

// waitedTypes is the type of event that a run waits for.
func waitedTypes(ctx context.Context, cl *client.Client, before []string) ([]string, error) {
	r, err := cl.Run(ctx, agent.RunID(before[0]))
	if err != nil || r.Wait == nil || r.Wait.For != "event" {
		return nil, err
	}
	return []string{r.Wait.Name}, nil
}

func newRunRestart(c *cli) *cobra.Command {
	var from string
	var newCode bool
	cmd := &cobra.Command{
		Use:   "restart RUN",
		Short: "Start a new run that goes on from a step of this one, and print its id",
		Long: `Start a new run in the same session. With --from it has what the run got up to where that step began, and goes on from there; else
it begins anew. The run itself stays as it is. It runs the code of the run, or with --new-code what the agent runs now: for a run that
failed by a mistake which is mended. That code has to do the same up to the step, else the new run fails and says where it differs.`,
		Example: "  skep run restart 01JQ8... --from charge",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			r, err := cl.RestartRun(cmd.Context(), agent.RunID(args[0]), from, newCode)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(r)
			}
			c.printf("%s\n", r.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "name of the `STEP`")
	cmd.Flags().BoolVar(&newCode, "new-code", false, "run what the agent runs now")
	return cmd
}

func newRunResolve(c *cli) *cobra.Command {
	var call uint64
	var retry bool
	var answer, fail string
	cmd := &cobra.Command{
		Use:   "resolve RUN --retry | --answer DATA | --fail MESSAGE",
		Short: "Say what became of a call whose effect is not known, and let the run go on",
		Long: `A run is uncertain when its process died while a call was under way that must not be made twice. Find out what became of it: skep
run show tells which call it is, skep inspect what it asked for. Then make it again, give its answer, or have it fail.`,
		Example: "  skep run resolve 01JQ8... --retry\n  skep run resolve 01JQ8... --fail 'it was declined'",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags, res := cmd.Flags(), agent.Resolution{Call: call}
			said := 0
			for _, f := range []struct{ flag, action string }{{"retry", "retry"}, {"answer", "answer"}, {"fail", "fail"}} {
				if flags.Changed(f.flag) {
					res.Action = f.action
					said++
				}
			}
			if said != 1 {
				return usageError("say what became of the call with one of --retry, --answer and --fail")
			}
			res.Error = fail
			if res.Action == "answer" {
				var err error
				if res.Output, err = c.jsonInput([]string{answer}); err != nil {
					return err
				}
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			id := agent.RunID(args[0])
			if res.Call == 0 {
				r, err := cl.Run(cmd.Context(), id)
				if err != nil {
					return err
				}
				if r.Status != agent.Uncertain || r.Wait == nil {
					return &agent.Error{Kind: agent.Conflict, Msg: "run " + args[0] + " is " + r.Status.String() + ", and not uncertain about a call"}
				}
				res.Call = r.Wait.Call
			}
			r, err := cl.ResolveRun(cmd.Context(), id, res)
			if err != nil {
				return err
			}
			return c.printRun(r)
		},
	}
	cmd.Flags().BoolVar(&retry, "retry", false, "make the call again")
	cmd.Flags().StringVar(&answer, "answer", "", "what the call returned: JSON `DATA`, or @FILE")
	cmd.Flags().StringVar(&fail, "fail", "", "the call failed, with this `MESSAGE`")
	cmd.Flags().Uint64Var(&call, "call", 0, "number of the call, when it is not the one that the run asks about")
	return cmd
}

func newRunExport(c *cli) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:     "export RUN",
		Short:   "Write a run, its events and its journal as NDJSON, clean of secrets",
		Example: "  skep run export 01JQ8... --to run.ndjson",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			return c.export(to, func(w io.Writer) error { return cl.ExportRun(cmd.Context(), agent.RunID(args[0]), w) })
		},
	}
	registerTo(cmd, &to)
	return cmd
}
