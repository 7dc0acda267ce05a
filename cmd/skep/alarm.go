package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newAlarm(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "alarm",
		Aliases: []string{"alarms"},
		Short:   "List, delete and retry alarms of instances",
		Long: `An instance sets alarms, at which its code is called. One that failed as often as it may is kept as a dead letter, with its error,
until it is tried again or deleted.`,
		Example: "  skep alarm list bot ada\n  skep alarm dead bot\n  skep alarm retry bot ada tea",
	})
	cmd.AddCommand(newAlarmList(c), newAlarmDead(c), newAlarmDelete(c), newAlarmRetry(c))
	return cmd
}

func newAlarmList(c *cli) *cobra.Command {
	list := func(cl *client.Client, ctx context.Context, args []string, page agent.Page) (client.List[agent.Alarm], error) {
		return cl.Alarms(ctx, args[0], args[1], page)
	}
	cmd := listOf(c, "list AGENT KEY", "List an instance's alarms, dead letters too", list, table[agent.Alarm]{
		what: "alarms", hint: "the agent's code sets them", header: []string{"NAME", "DUE", "METHOD", "EVERY", "STATUS", "PAYLOAD"},
		row: func(a agent.Alarm) []string {
			payload := ""
			if a.Payload != nil {
				payload = shownValue(agent.JSON(a.Payload))
			}
			return []string{shownKey(a.Name), when(a.At), a.Method, alarmEvery(a), alarmStatus(a), payload}
		},
	})
	cmd.ValidArgsFunction = c.complete(placeArgs...)
	return cmd
}

const deadHint = "an alarm that fails for the last time becomes one"

func newAlarmDead(c *cli) *cobra.Command {
	list := func(cl *client.Client, ctx context.Context, args []string, page agent.Page) (client.List[agent.Alarm], error) {
		return cl.DeadLetters(ctx, args[0], page)
	}
	cmd := listOf(c, "dead AGENT", "List the dead letters of all instances of an agent", list, table[agent.Alarm]{
		what: "dead letters", hint: deadHint, header: []string{"KEY", "NAME", "DUE", "METHOD", "STATUS"},
		row: func(a agent.Alarm) []string {
			return []string{shownKey(a.Key), shownKey(a.Name), when(a.At), a.Method, alarmStatus(a)}
		},
	})
	cmd.ValidArgsFunction = c.complete(agentNames)
	return cmd
}

func alarmEvery(a agent.Alarm) string {
	switch {
	case a.Cron != "" && a.Zone != "":
		return a.Cron + " " + a.Zone
	case a.Cron != "":
		return a.Cron
	case a.Every > 0:
		return howLong(a.Every)
	}
	return ""
}

func alarmStatus(a agent.Alarm) string {
	switch {
	case a.Dead:
		return fmt.Sprintf("dead after %d: %s", a.Attempt, plain(a.Error))
	case a.Attempt > 0:
		return fmt.Sprintf("failed %d: %s", a.Attempt, plain(a.Error))
	}
	return "set"
}

func newAlarmDelete(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "delete AGENT KEY NAME...",
		Aliases: []string{"cancel"},
		Short:   "Take alarms back, and drop dead letters",
		Args:    cobra.MinimumNArgs(3),

		ValidArgsFunction: c.completeMany(agentNames, instanceKeys, alarmNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			for _, name := range args[2:] {
				if err := cl.DeleteAlarm(cmd.Context(), args[0], args[1], name); err != nil {
					return err
				}
				if !c.json {
					c.printf("deleted alarm %s\n", shownKey(name))
				}
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args[2:]})
			}
			return nil
		},
	}
}

func newAlarmRetry(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "retry AGENT [KEY NAME]",
		Short:   "Make a dead letter due now, with all its attempts",
		Example: "  skep alarm retry bot ada tea\n  skep alarm retry bot --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(3)(cmd, args)
		},
		ValidArgsFunction: c.complete(agentNames, instanceKeys, alarmNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if all {
				return c.retryAll(cmd.Context(), cl, args[0])
			}
			a, err := cl.RetryAlarm(cmd.Context(), args[0], args[1], args[2])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			c.printf("alarm %s is due %s\n", shownKey(a.Name), when(a.At))
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of all instances of the agent")
	return cmd
}

// retryAll makes the dead letters due that there are now; one that is gone meanwhile is left out.
func (c *cli) retryAll(ctx context.Context, cl *client.Client, name string) error {
	dead, err := collect(ctx, 0, func(ctx context.Context, page agent.Page) (client.List[agent.Alarm], error) {
		return cl.DeadLetters(ctx, name, page)
	})
	if err != nil {
		return err
	}
	again := []agent.Alarm{}
	for _, d := range dead {
		a, err := cl.RetryAlarm(ctx, name, d.Key, d.Name)
		if agent.KindOf(err) == agent.NotFound && err != nil {
			continue
		}
		if err != nil {
			return err
		}
		a.Key = d.Key
		again = append(again, a)
		if !c.json {
			c.printf("alarm %s of %s is due %s\n", shownKey(a.Name), shownKey(a.Key), when(a.At))
		}
	}
	if c.json {
		return c.printJSON(again)
	}
	if len(again) == 0 {
		c.printEmpty("dead letters", deadHint)
	}
	return nil
}

// howLong shows a duration of any length: in words of days where it is long, else as took does.
func howLong(d time.Duration) string {
	if d < time.Hour {
		return took(d)
	}
	d = d.Round(time.Minute)
	days, hours, minutes := d/(24*time.Hour), d%(24*time.Hour)/time.Hour, d%time.Hour/time.Minute
	out := ""
	for _, p := range []struct {
		n    time.Duration
		unit string
	}{{days, "d"}, {hours, "h"}, {minutes, "m"}} {
		if p.n > 0 {
			out += fmt.Sprintf("%d%s", p.n, p.unit)
		}
	}
	return out
}
