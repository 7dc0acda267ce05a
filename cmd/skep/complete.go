package main

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// completer lists what one argument may be, given those before it.
type completer func(ctx context.Context, cl *client.Client, before []string) ([]string, error)

// placeArgs are the arguments that name an instance.
var placeArgs = []completer{agentNames, instanceKeys}

// completeTime is how long a shell waits for a server.
const completeTime = 2 * time.Second

// complete asks the server for what each argument may be.
func (c *cli) complete(args ...completer) cobra.CompletionFunc { return c.completion(args, false) }

// completeMany is complete for a verb whose last argument may be repeated.
func (c *cli) completeMany(args ...completer) cobra.CompletionFunc { return c.completion(args, true) }

func (c *cli) completion(args []completer, many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, before []string, begun string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		at := len(before)
		if many {
			at = min(at, len(args)-1)
		}
		if at >= len(args) {
			return nil, none
		}
		cl, err := c.client()
		if err != nil {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		all, err := args[at](ctx, cl, before)
		if err != nil {
			return nil, none
		}
		var out []string
		for _, s := range all {
			if strings.HasPrefix(s, begun) && !strings.ContainsFunc(s, unicode.IsControl) {
				out = append(out, s)
			}
		}
		return out, none
	}
}

func agentNames(ctx context.Context, cl *client.Client, _ []string) (out []string, err error) {
	l, err := cl.Agents(ctx, agent.Page{Limit: agent.MaxPage})
	for _, a := range l.Items {
		out = append(out, a.Name)
	}
	return out, err
}

func instanceKeys(ctx context.Context, cl *client.Client, before []string) (out []string, err error) {
	l, err := cl.Instances(ctx, before[0], agent.Page{Limit: agent.MaxPage})
	for _, i := range l.Items {
		out = append(out, i.Key)
	}
	return out, err
}

func alarmNames(ctx context.Context, cl *client.Client, before []string) (out []string, err error) {
	l, err := cl.Alarms(ctx, before[0], before[1], agent.Page{Limit: agent.MaxPage})
	for _, a := range l.Items {
		out = append(out, a.Name)
	}
	return out, err
}

// runIDs lists the newest runs.
func runIDs(ctx context.Context, cl *client.Client, _ []string) (out []string, err error) {
	l, err := cl.Runs(ctx, client.RunFilter{}, agent.Page{Limit: agent.MaxPage})
	for _, r := range l.Items {
		out = append(out, string(r.ID))
	}
	return out, err
}

// agentFunctions lists what an agent's code has.
func agentFunctions(ctx context.Context, cl *client.Client, before []string) ([]string, error) {
	a, err := cl.Agent(ctx, before[0])
	if err != nil {
		return nil, err
	}
	p, err := pluginOf(ctx, cl, a)
	return p.Exports, err
}
