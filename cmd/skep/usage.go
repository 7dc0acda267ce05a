package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newUsage(c *cli) *cobra.Command {
	var f client.UsageFilter
	var since string
	var csv bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what agents have used: calls, processor time, bytes, tokens, money",
		Long: `Add up what the app's agents have used: calls, runs, processor time, memory at the peak, bytes in and out, bytes of outbound requests, and what models
cost. Days are those of UTC. A call that was answered is in it. With --by or a filter of provider, model, route, user or key it is about calls of models
alone. A cost that is not known is not counted as nothing: calls without a price are told apart.`,
		Example: "  skep usage\n  skep usage --by agent,day --since 7d\n  skep usage --by model,user --since 30d\n  skep usage --agent hello --by kind --csv >usage.csv\n  skep usage quota",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.From, err = firstDay(since, time.Now()); err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			if csv {
				body, err := cl.ExportUsage(cmd.Context(), f, "csv")
				if err != nil {
					return err
				}
				defer body.Close()
				_, err = io.Copy(c.stdout, body)
				return err
			}
			report, err := cl.Usage(cmd.Context(), f)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(report)
			}
			c.printUsage(report, strings.Split(f.By, ","))
			return nil
		},
	}
	cmd.Flags().StringVar(&f.By, "by", "agent", "what to tell apart, separated by commas: day, agent, kind, provider, model, route, user, key")
	modelFilter(cmd, &f.ModelFilter)
	cmd.Flags().StringVar(&since, "since", "30d", "how far back: days such as 7d, today included, or the first day, such as 2026-01-31")
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only what this agent used; - is what no agent did")
	cmd.Flags().BoolVar(&csv, "csv", false, "print comma-separated values")
	cmd.AddCommand(newUsageQuota(c), newUsageEvents(c))
	return cmd
}

// firstDay reads --since: the first UTC day.
func firstDay(since string, now time.Time) (string, error) {
	if digits, ok := strings.CutSuffix(since, "d"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n > 0 {
			return agent.UsageDay(now.AddDate(0, 0, 1-n)), nil
		}
	}
	if _, err := time.Parse(time.DateOnly, since); err != nil {
		return "", usageError("--since %s: write days such as 7d, or a day such as 2026-01-31", since)
	}
	return since, nil
}

func (c *cli) printUsage(u client.UsageReport, by []string) {
	if len(u.Rows) == 0 {
		fmt.Fprintf(c.stderr, "nothing was used from %s to %s (UTC)\n", u.From, u.To)
		return
	}
	var header []string
	told := map[string]func(agent.UsageRow) string{
		"day": func(r agent.UsageRow) string { return r.Day }, "agent": func(r agent.UsageRow) string { return r.Agent },
		"kind":     func(r agent.UsageRow) string { return r.Kind.String() },
		"provider": func(r agent.UsageRow) string { return or(r.Provider, "-") }, "model": func(r agent.UsageRow) string { return or(r.Model, "-") },
		"route": func(r agent.UsageRow) string { return or(r.Route, "-") }, "user": func(r agent.UsageRow) string { return or(r.User, "-") },
		"key": func(r agent.UsageRow) string { return or(r.Key, "-") },
	}
	var dims []string
	models := u.Total.Models != nil && u.Total.Models.Calls == u.Total.Events // nothing but models was used
	for _, name := range []string{"day", "agent", "kind", "provider", "model", "route", "user", "key"} {
		if slices.Contains(by, name) {
			dims, header = append(dims, name), append(header, strings.ToUpper(name))
		}
	}
	cells := useCells
	if models {
		cells = modelCells
		header = append(header, "CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "COST", "UNPRICED")
	} else {
		header = append(header, "EVENTS", "FAILED", "CPU", "WALL", "PEAK", "IN", "OUT", "SENT", "RECEIVED")
		if u.Total.Models != nil {
			header = append(header, "COST")
		}
	}
	var rows [][]string
	for _, r := range u.Rows {
		var row []string
		for _, name := range dims {
			row = append(row, told[name](r))
		}
		rows = append(rows, append(row, cells(r, u.Total.Models != nil)...))
	}
	if len(rows) > 1 {
		total := make([]string, len(dims))
		if len(dims) > 0 {
			total[0] = "total"
		}
		rows = append(rows, append(total, cells(u.Total, u.Total.Models != nil)...))
	}
	c.printTable(header, rows)
}

func useCells(r agent.UsageRow, models bool) []string {
	cells := []string{
		strconv.FormatInt(r.Events, 10), strconv.FormatInt(r.Failed, 10), lasting(r.CPU), lasting(r.Wall), amount(r.Memory), amount(r.In),
		amount(r.Out), amount(r.Sent), amount(r.Received),
	}
	if models {
		cells = append(cells, costs(r.Models))
	}
	return cells
}

func modelCells(r agent.UsageRow, _ bool) []string {
	var m agent.ModelSum
	if r.Models != nil {
		m = *r.Models
	}
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return []string{n(m.Calls), n(r.Failed), n(m.Tokens.Input), n(m.Tokens.CacheRead), n(m.Tokens.Output), costs(&m), n(m.Unpriced)}
}

// costs tells what is known of a cost: with a plus, when there are calls whose price is not known.
func costs(m *agent.ModelSum) string {
	switch {
	case m == nil || m.Micro == nil && m.Unpriced == 0:
		return "-"
	case m.Micro == nil:
		return "not known"
	case m.Unpriced > 0:
		return money(*m.Micro) + "+"
	}
	return money(*m.Micro)
}

// modelFilter registers what says which calls of models are wanted.
func modelFilter(cmd *cobra.Command, f *client.ModelFilter) {
	flags := cmd.Flags()
	flags.StringVar(&f.Provider, "provider", "", "only calls of models of this provider")
	flags.StringVar(&f.Model, "model", "", "only calls of this model, as its provider knows it")
	flags.StringVar(&f.Route, "route", "", "only calls of models by this route, as @NAME; - is by none")
	flags.StringVar(&f.User, "user", "", "only calls of models for this user; - is for none")
	flags.StringVar(&f.Key, "key", "", "only calls of models with the key of this id; - is with none")
	flags.StringVar((*string)(&f.Session), "session", "", "only usage of this session, of the last 35 days")
	flags.StringVar((*string)(&f.Run), "run", "", "only usage of this run, of the last 35 days")
}

// lasting rounds a time to what a person reads.
func lasting(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// amount is size with gigabytes.
func amount(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.2f GB", float64(n)/(1<<30))
	}
	return size(n)
}

func newUsageQuota(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "quota",
		Short: "Show how much of their quotas the app and its agents use now",
		Long: `Show how much of their quotas the app and its agents use now. What calls under way may still use is held for them, and shown behind a
plus. Quotas are set by skep app update and skep agent update.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			uses, err := cl.QuotaUses(cmd.Context())
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(uses)
			}
			var rows [][]string
			for _, u := range uses {
				who := "app " + string(u.App)
				if u.Agent != "" {
					who = u.Agent
				}
				rows = append(rows, []string{
					who, of(strconv.FormatInt(u.Cells, 10), "", u.Quota.Cells > 0, strconv.FormatInt(u.Quota.Cells, 10)),
					of(strconv.FormatInt(u.Calls, 10), "", u.Quota.CallsPerSecond > 0, strconv.FormatInt(u.Quota.CallsPerSecond, 10)),
					of(lasting(u.CPU), held(u.CPUHeld > 0, lasting(u.CPUHeld)), u.Quota.CPUPerDay > 0, u.Quota.CPUPerDay.String()),
					of(amount(u.Bytes), held(u.BytesHeld > 0, amount(u.BytesHeld)), u.Quota.BytesPerDay > 0, amount(u.Quota.BytesPerDay)),
				})
			}
			c.printTable([]string{"WHO", "CELLS", "CALLS/S", "CPU TODAY", "BYTES TODAY"}, rows)
			return nil
		},
	}
}

func of(used, held string, bounded bool, quota string) string {
	if bounded {
		return used + held + " of " + quota
	}
	return used + held
}

func held(some bool, what string) string {
	if some {
		return "+" + what
	}
	return ""
}

func newUsageEvents(c *cli) *cobra.Command {
	var f client.EventFilter
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Export single usage events, one JSON object a line",
		Long: `Export single usage events in the order in which they were written, one JSON object a line. Each has a cursor, which --after takes to go on
behind it. Events are kept for 35 days, their daily sums for good.`,
		Example: "  skep usage events --from 2026-01-31T08:00:00Z --agent hello",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			out := json.NewEncoder(c.stdout)
			for e, err := range cl.UsageEvents(cmd.Context(), f) {
				if err == nil {
					err = out.Encode(e)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&f.From, "from", "", "only from this time on, such as 2026-01-31T08:00:00Z; a day ago unless given")
	cmd.Flags().StringVar(&f.To, "to", "", "only before this time; now unless given")
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only events of this agent; - is what no agent did")
	cmd.Flags().StringVar(&f.After, "after", "", "the cursor of the last event seen")
	modelFilter(cmd, &f.ModelFilter)
	return cmd
}
