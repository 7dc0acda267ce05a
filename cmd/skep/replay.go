package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// exitDiffers is the exit code of a replay that went another way than the run did.
const exitDiffers = 9

func newReplay(c *cli) *cobra.Command {
	var with string
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Play a run again, offline, and compare",
		Long: fmt.Sprintf(`Play a run again from its journal: with its own code, or with other code, which is not stored. Nothing leaves and nothing is changed.
The code must ask for the same things in the same order and come to the same result; else the first difference is shown, with both
sides, and the exit code is %d.`, exitDiffers),
		Example: "  skep replay 01JQ8...\n  skep replay 01JQ8... --with order.ts\n  skep replay 01JQ8... --with order@1.3.0",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			b := c.newBar("replay")
			b.step("playing run " + args[0] + " again")
			r, err := c.replay(cmd.Context(), cl, agent.RunID(args[0]), with)
			b.clear()
			if err != nil {
				return err
			}
			if err := c.printReplay(r); err != nil || r.Same {
				return err
			}
			return exited{exitDiffers}
		},
	}
	cmd.Flags().StringVar(&with, "with", "", "a `FILE` or directory of code, or a plugin as NAME or NAME@VERSION")
	return cmd
}

// replay plays a run again with its own code, with that of a file or directory, or with a plugin's.
func (c *cli) replay(ctx context.Context, cl *client.Client, id agent.RunID, with string) (agent.Replay, error) {
	if with == "" {
		return cl.ReplayRun(ctx, id, "")
	}
	if _, err := os.Stat(with); err != nil {
		return cl.ReplayRun(ctx, id, with)
	}
	p, err := c.readCodeAt(ctx, with)
	if err != nil {
		return agent.Replay{}, err
	}
	r, err := cl.ReplayRunWith(ctx, id, client.Upload{Filename: p.File, Type: p.Type, Body: p.Body})
	if err != nil {
		err = p.explain(err)
	}
	return r, err
}

func (c *cli) printReplay(r agent.Replay) error {
	if c.json {
		return c.printJSON(r)
	}
	so := ""
	if !r.Complete {
		so = "; the run has not ended, and was played as far as it has come"
	}
	if r.Same {
		if !r.Complete {
			c.printf("same: %s%s\n", counting(r.Calls, "call"), so)
			return nil
		}
		c.printf("same: %s and the result\n", counting(r.Calls, "call"))
		switch {
		case r.Error != nil:
			c.printf("%s\n", plain(r.Error.Msg))
		case r.Output != nil:
			c.printf("%s\n", plain(payloadText(*r.Output)))
		}
		return nil
	}
	d := agent.ReplayDifference{}
	if r.Difference != nil {
		d = *r.Difference
	}
	if d.Call == 0 {
		c.printf("different: the result, after %s that were the same%s\n", counting(r.Calls, "call"), so)
	} else {
		c.printf("different: call %d, after %s that were the same%s\n", d.Call, counting(r.Calls, "call"), so)
	}
	c.printFields("was", plain(or(d.Was, "nothing")), "now", plain(or(d.Now, "nothing")))
	return nil
}

// counting is a number of things: "1 call", "2 calls".
func counting(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
