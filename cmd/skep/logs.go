package main

import (
	"context"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// sessionRE tells a session's id from an agent's name: names have no upper case letters.
var sessionRE = regexp.MustCompile(`^[0-9A-Z]{26}$`)

func newLogs(c *cli) *cobra.Command {
	var follow bool
	var after int64
	cmd := &cobra.Command{
		Use:   "logs AGENT|SESSION",
		Short: "Print an agent's console output, or a session's events",
		Long: `Print an agent's log, which has the console output and the events of calls outside sessions; or a session's log, which has
its messages and the events of its runs.`,
		Example: "  skep logs hello -f\n  skep logs 01JQ8ZK6Y3V5N7R9T1W3X5Z7B9 --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			log := client.AgentLog(args[0])
			if sessionRE.MatchString(args[0]) {
				log = client.SessionLog(agent.SessionID(args[0]))
			}
			return c.printEvents(cmd.Context(), cl, log, after, follow)
		},
	}
	cmd.ValidArgsFunction = c.complete(agentNames)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on at the end of the log, until Ctrl-C")
	cmd.Flags().Int64Var(&after, "after", 0, "number of the last event already seen")
	return cmd
}

// printEvents prints a log's events as they come.
func (c *cli) printEvents(ctx context.Context, cl *client.Client, log client.Log, after int64, follow bool) error {
	p := eventPrinter{w: c.stdout, json: c.json}
	for e, err := range cl.Events(ctx, log, after, follow) {
		switch {
		case err != nil && follow && ctx.Err() != nil:
			return p.flush() // Ctrl-C is how one stops following
		case err != nil:
			return err
		}
		if err := p.print(e); err != nil {
			return err
		}
	}
	return p.flush()
}
