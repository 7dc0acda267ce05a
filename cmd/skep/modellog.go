package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
)

// logging is how many bytes of a request and of an answer are kept.
func (m *modelGateway) logging(ctx context.Context, app agent.App) (int, error) {
	l, err := m.st.ModelLogging(ctx, app)
	return l.Keep(), err
}

// logged keeps a call. The runtime deletes those that are too old.
func (m *modelGateway) logged(ctx context.Context, l agent.ModelLog) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := m.st.PutModelLog(ctx, l); err != nil {
		m.log.Error("a call to a model could not be logged", "app", l.App, "call", l.Call, "err", err)
	}
}

func newModelLog(c *cli) *cobra.Command {
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "log",
		Short: "List what models were asked, the newest first, where that is kept",
		Long: `List what models were asked, the newest first. Nothing is kept unless an owner says so with skep model log keep: the figures of each call are in
skep usage in any case. What is kept has gone through guardrails, and has no keys of providers in it.`,
		Example: "  skep model log keep --days 7\n  skep model log\n  skep model log show 01J...",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			l, err := cl.ModelLogs(cmd.Context(), agent.Page{Limit: limit, After: after})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(l)
			}
			if len(l.Items) == 0 {
				c.printEmpty("logged calls", "skep model log keep --days 7")
				return nil
			}
			var rows [][]string
			for _, x := range l.Items {
				rows = append(rows, []string{x.Call, x.Time.Local().Format(time.DateTime), x.Asked, x.Provider + "/" + x.Model, or(x.Agent, "-"), or(x.User, "-"), logOutcome(x), lasting(x.Took)})
			}
			c.printTable([]string{"CALL", "TIME", "ASKED", "MODEL", "AGENT", "USER", "RESULT", "TOOK"}, rows)
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "most calls to list; 50 unless given")
	cmd.Flags().StringVar(&after, "after", "", "go on where a list ended, by its \"next\" in --json")
	cmd.AddCommand(&cobra.Command{
		Use:   "show CALL",
		Short: "Show what a model was asked, and what it answered",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			x, err := cl.ModelLog(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(x)
			}
			c.printFields("call", x.Call, "time", x.Time.Local().Format(time.DateTime), "asked", x.Asked, "model", x.Provider+"/"+x.Model, "result", logOutcome(x),
				"tokens", fmt.Sprintf("%d in, %d out", x.Tokens.Input, x.Tokens.Output), "took", lasting(x.Took))
			if x.Truncated {
				c.notef("more was said than is kept\n")
			}
			c.printf("\nrequest:\n%s\n\nanswer:\n%s\n", or(x.Request, "(not kept)"), or(x.Answer, "(none)"))
			return nil
		},
	}, newModelLogKeep(c))
	return cmd
}

func logOutcome(x agent.ModelLog) string {
	switch {
	case x.Fault != agent.NoFault:
		return x.Fault.String()
	case x.Source == agent.FromCache:
		return "from the cache"
	}
	return "ok"
}

func newModelLogKeep(c *cli) *cobra.Command {
	var l agent.ModelLogging
	cmd := &cobra.Command{
		Use:     "keep --days N",
		Short:   "Say how long what models are asked is kept; 0 days keep nothing, and delete what there is",
		Example: "  skep model log keep --days 7 --size 16384\n  skep model log keep --days 0",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("days") {
				return usageError("for how long? write --days N, or --days 0 to keep nothing")
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			out, err := cl.PutModelLogging(cmd.Context(), l)
			if err != nil {
				return err
			}
			switch {
			case c.json:
				return c.printJSON(out)
			case out.Days == 0:
				c.printf("nothing that models are asked is kept\n")
			default:
				c.printf("what models are asked is kept for %d days, up to %d bytes of each request and answer\n", out.Days, out.Keep())
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&l.Days, "days", 0, "how many days")
	cmd.Flags().IntVar(&l.Size, "size", 0, "bytes of a request, and of an answer; 32768 unless given")
	return cmd
}
