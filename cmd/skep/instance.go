package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newInstance(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "instance",
		Aliases: []string{"instances"},
		Short:   "Call, list, show, export and delete instances of an agent",
		Long: `An instance is one copy of an agent, named by a key that its callers choose: a user, a room, an order. It has storage, alarms and
children of its own, one call at a time, and is made by its first call.`,
		Example: `  skep instance call counter ada add 1
  skep instance list counter
  skep instance storage get counter ada n`,
	})
	storage := shelf(&cobra.Command{
		Use:   "storage",
		Short: "List, read, set and delete keys of an instance's storage",
		Long:  "An instance keeps keys and values in its storage. A change from outside waits for its turn, as a call does.",
	})
	storage.AddCommand(stateVerbs(c, statePlace{
		path: "skep instance storage", args: "AGENT KEY", name: "NAME", example: "counter ada",
		of:    func(args []string) client.Place { return client.Storage(args[0], args[1]) },
		whole: func(s agent.StateSize) string { return size(s.Bytes) + " in all, with what Skep keeps of the instance" },
	})...)
	cmd.AddCommand(newInstanceCall(c), newInstanceList(c), newInstanceShow(c), newInstanceConnect(c), newInstanceEvents(c), newInstanceExport(c), newInstanceDelete(c), storage)
	return cmd
}

func newInstanceCall(c *cli) *cobra.Command {
	var mediaType, once string
	var timeout time.Duration
	var stream bool
	cmd := &cobra.Command{
		Use:   "call AGENT KEY METHOD [INPUT]",
		Short: "Call a method of an instance and print what it returns",
		Long: "Call a method of an instance, in its turn, and print what it returns. What it changed is durable by then. An instance that is\nnot there is made.\n\n" +
			"What a generator yields is one list; with --stream each item is printed as it comes, a line of JSON each, then what it returns.\n\n" +
			inputHelp,
		Example: "  skep instance call counter ada add 1\n  skep instance call room lobby say '{\"text\":\"Hello\"}'\n  skep instance call counter ada count 10 --stream",
		Args:    cobra.RangeArgs(3, 4),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := c.input(args[3:], mediaType)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			if stream && once != "" {
				return &agent.Error{Kind: agent.Invalid, Msg: "--stream and --once exclude each other: what a call yields is not kept", Hint: "leave one of them out"}
			}
			if stream {
				return c.streamCall(cmd.Context(), cl, args, input, timeout)
			}
			output, usage, err := cl.CallInstanceOnce(cmd.Context(), args[0], args[1], args[2], once, input, timeout)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(callResult{output, usage})
			}
			return c.printBytes(output)
		},
	}
	cmd.ValidArgsFunction = c.complete(agentNames, instanceKeys, agentFunctions)
	cmd.Flags().StringVar(&mediaType, "type", "", "media type of the input")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "most time for the call, when less than the agent's limit")
	cmd.Flags().StringVar(&once, "once", "", "a `NAME` of your own; made again with it within a day, the call has no second effect")
	cmd.Flags().BoolVar(&stream, "stream", false, "print what the method yields as it comes")
	return cmd
}

// streamCall prints what a method yields, and what it returns if that is not null.
func (c *cli) streamCall(ctx context.Context, cl *client.Client, args []string, in agent.Payload, timeout time.Duration) error {
	line := func(v json.RawMessage) error {
		_, err := fmt.Fprintf(c.stdout, "%s\n", v)
		return err
	}
	result, err := cl.StreamInstance(ctx, args[0], args[1], args[2], in, timeout, line)
	if err != nil || string(result) == "null" {
		return err
	}
	return line(result)
}

func newInstanceList(c *cli) *cobra.Command {
	list := func(cl *client.Client, ctx context.Context, args []string, page agent.Page) (client.List[agent.Instance], error) {
		return cl.Instances(ctx, args[0], page)
	}
	cmd := listOf(c, "list AGENT", "List an agent's instances, in the order of their keys", list, table[agent.Instance]{
		what: "instances", hint: "skep instance call AGENT KEY METHOD makes one", header: []string{"KEY", "STATE", "ALARMS", "CHILDREN", "UPDATED"},
		row: func(i agent.Instance) []string {
			return []string{shownKey(i.Key), size(i.State.Bytes), strconv.FormatInt(i.Alarms, 10), strconv.FormatInt(i.Children, 10), when(i.Updated)}
		},
	})
	cmd.ValidArgsFunction = c.complete(agentNames)
	return cmd
}

func newInstanceShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show AGENT KEY",
		Short: "Show an instance: what it holds, its children, the state that clients see",
		Args:  cobra.ExactArgs(2),

		ValidArgsFunction: c.complete(placeArgs...),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			i, err := cl.Instance(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(i)
			}
			var parent string
			var own []string
			if i.Parent != nil {
				parent = instanceText(*i.Parent)
			}
			for _, child := range i.Own {
				own = append(own, instanceText(child))
			}
			c.printFields("agent", i.Agent, "key", shownKey(i.Key), "code", short(i.Version), "parent", parent, "children", strings.Join(own, ", "),
				"state", fmt.Sprintf("%d keys, %s", i.State.Keys, size(i.State.Bytes)), "shared", plain(compact(i.Shared)),
				"alarms", some(i.Alarms), "sockets", some(int64(i.Sockets)), "waiting", some(int64(i.Waiting)), "sending", some(i.Outbox),
				"commits", some(i.Commits), "created", when(i.Created), "updated", when(i.Updated))
			return nil
		},
	}
}

func instanceText(n agent.InstanceName) string { return n.Agent + " " + shownKey(n.Key) }

// some is a number, or nothing when there is none.
func some(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func newInstanceEvents(c *cli) *cobra.Command {
	var follow bool
	var after int64
	cmd := &cobra.Command{
		Use:     "events AGENT KEY",
		Aliases: []string{"logs"},
		Short:   "Print what an instance did and emitted outside of sessions",
		Example: "  skep instance events room lobby -f",
		Args:    cobra.ExactArgs(2),

		ValidArgsFunction: c.complete(placeArgs...),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			return c.printEvents(cmd.Context(), cl, client.InstanceLog(args[0], args[1]), after, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on at the end of the log, until Ctrl-C")
	cmd.Flags().Int64Var(&after, "after", 0, "number of the last event already seen")
	return cmd
}

func newInstanceExport(c *cli) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:     "export AGENT KEY",
		Short:   "Write an instance's state, alarms, children and events as NDJSON",
		Example: "  skep instance export room lobby --to lobby.ndjson",
		Args:    cobra.ExactArgs(2),

		ValidArgsFunction: c.complete(placeArgs...),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			return c.export(to, func(w io.Writer) error { return cl.ExportInstance(cmd.Context(), args[0], args[1], w) })
		},
	}
	registerTo(cmd, &to)
	return cmd
}

func newInstanceDelete(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete AGENT KEY...",
		Short: "Delete instances with their state, alarms, children, connections and waiting runs",
		Args:  cobra.MinimumNArgs(2),

		ValidArgsFunction: c.completeMany(placeArgs...),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.DeleteInstances(cmd.Context(), args[0], args[1:]...); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args[1:]})
			}
			for _, key := range args[1:] {
				c.printf("deleted %s %s\n", args[0], shownKey(key))
			}
			return nil
		},
	}
}
