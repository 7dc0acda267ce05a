package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newApp(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "app",
		Short: "Make, list, show, change and delete apps",
		Long: `An app is a boundary: its plugins, agents, sessions, runs, logs, state and secrets are its own, and no other app sees them. There is
always one called default. --app NAME, or SKEP_APP, says which app any other verb is about.`,
	})
	cmd.AddCommand(newAppCreate(c), newAppList(c), newAppShow(c), newAppUpdate(c), newAppDelete(c))
	return cmd
}

// appFlags are what create and update share.
type appFlags struct {
	weight int
	quota  []string
}

func (f *appFlags) register(flags *pflag.FlagSet) {
	flags.IntVar(&f.weight, "weight", 1, "share of the processors beside other apps, from 1 to 1000")
	quotaFlag(flags, &f.quota)
}

func quotaFlag(flags *pflag.FlagSet, pairs *[]string) {
	flags.StringSliceVar(pairs, "quota", nil, "a bound `NAME=VALUE` over time: cells, calls_per_second, cpu_per_day or bytes_per_day; may be given more than once")
}

// parseQuota reads NAME=VALUE pairs, such as cells=10 and cpu_per_day=1h.
func parseQuota(pairs []string) (agent.Quota, error) {
	var q agent.Quota
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		var err error
		switch name = strings.ReplaceAll(name, "-", "_"); name {
		case "cells":
			q.Cells, err = parseSize(value)
		case "calls_per_second":
			q.CallsPerSecond, err = parseSize(value)
		case "bytes_per_day":
			q.BytesPerDay, err = parseSize(value)
		case "cpu_per_day":
			if q.CPUPerDay, err = time.ParseDuration(value); err != nil {
				return q, usageError("--quota %s: write a time such as 90s or 2h", pair)
			}
		default:
			return q, usageError("there is no quota %q; there are cells, calls_per_second, cpu_per_day, bytes_per_day", name)
		}
		if err != nil {
			return q, usageError("--quota %s: write a number, with KB, MB or GB for bytes", pair)
		}
	}
	return q, nil
}

func newAppCreate(c *cli) *cobra.Command {
	var f appFlags
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make an app",
		Example: "  skep app create shop --weight 4\n  skep push hello.ts --agent hello --app shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			quota, err := parseQuota(f.quota)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			a, err := cl.CreateApp(cmd.Context(), client.NewApp{Name: agent.App(args[0]), Weight: f.weight, Quota: quota})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			c.printf("created app %s\n", a.Name)
			return nil
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func newAppList(c *cli) *cobra.Command {
	return listVerb(c, "List apps, newest first", (*client.Client).Apps, table[agent.AppInfo]{
		header: []string{"NAME", "WEIGHT", "CREATED", "QUOTA"},
		row: func(a agent.AppInfo) []string {
			return []string{string(a.Name), strconv.Itoa(a.Weight), when(a.Created), strings.Join(a.Quota.Words(), ", ")}
		},
	})
}

func newAppShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show an app",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			a, err := cl.App(cmd.Context(), agent.App(args[0]))
			if err != nil {
				return err
			}
			return c.printApp(a)
		},
	}
}

func (c *cli) printApp(a agent.AppInfo) error {
	if c.json {
		return c.printJSON(a)
	}
	c.printFields("name", string(a.Name), "weight", strconv.Itoa(a.Weight), "outbound", a.Outbound,
		"quota", strings.Join(a.Quota.Words(), ", "), "created", when(a.Created), "updated", when(a.Updated))
	return nil
}

func newAppUpdate(c *cli) *cobra.Command {
	var f appFlags
	var outbound string
	cmd := &cobra.Command{
		Use:     "update NAME",
		Short:   "Change an app; what is not named stays as it is",
		Long:    "Change an app. What is not named stays as it is; quotas are replaced as a whole, and a quota of 0 is none.",
		Example: "  skep app update shop --weight 10 --quota cells=50,cpu_per_day=2h\n  skep app update shop --outbound inspector",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var patch client.AppPatch
			if cmd.Flags().Changed("weight") {
				patch.Weight = &f.weight
			}
			if cmd.Flags().Changed("outbound") {
				patch.Outbound = &outbound
			}
			if cmd.Flags().Changed("quota") {
				quota, err := parseQuota(f.quota)
				if err != nil {
					return err
				}
				patch.Quota = &quota
			}
			if patch == (client.AppPatch{}) {
				return usageError("nothing to change: name at least one of --weight, --outbound, --quota")
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			a, err := cl.UpdateApp(cmd.Context(), agent.App(args[0]), patch)
			if err != nil {
				return err
			}
			return c.printApp(a)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&outbound, "outbound", "", "`AGENT` whose fetch handler sees each outbound request of the app's agents; empty for none")
	return cmd
}

func newAppDelete(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete an app in which nothing is left",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.DeleteApp(cmd.Context(), agent.App(args[0])); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args})
			}
			c.printf("deleted %s\n", args[0])
			return nil
		},
	}
}
