package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newAgent(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "agent",
		Short: "Create, list, show, change and delete agents",
		Long:  "An agent is a plugin with a name, settings, grants and limits. skep push --agent NAME makes one along with its code.",
	})
	cmd.AddCommand(newAgentCreate(c), newAgentList(c), newAgentShow(c), newAgentUpdate(c), newAgentDelete(c), newAgentGrants(c))
	return cmd
}

// agentFlags are the parts of an agent that create and update share.
type agentFlags struct {
	plugin, description string
	config              []string
	limits, quota       []string
	grant               grantFlags
	grantsFile          string
	asked, yes          bool
	sandbox             sandboxFlags
}

func (f *agentFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.plugin, "plugin", "", "the code: NAME for the newest version, NAME@VERSION to pin one")
	flags.StringVar(&f.description, "description", "", "what the agent is for")
	flags.StringArrayVar(&f.config, "config", nil, "a plain setting `KEY=VALUE` the code may read; may be given more than once")
	f.grant.register(flags, "grant")
	flags.StringVar(&f.grantsFile, "grants-file", "", "JSON `FILE` with all it may do, in place of what it was granted before")
	flags.BoolVar(&f.asked, "grant-asked", false, "let it do what its code asks for, after showing that")
	flags.BoolVar(&f.yes, "yes", false, "do not ask before granting what the code asks for")
	quotaFlag(flags, &f.quota)
	f.sandbox.register(flags)
	flags.StringSliceVar(&f.limits, "limit", nil, "a limit `NAME=VALUE` for each call, such as wall=30s or memory=64MB; may be given more than once")
}

func (f *agentFlags) settings() (map[string]string, error) {
	if len(f.config) == 0 {
		return nil, nil
	}
	config := make(map[string]string, len(f.config))
	for _, pair := range f.config {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usageError("--config %s: write KEY=VALUE", pair)
		}
		config[key] = value
	}
	return config, nil
}

func newAgentCreate(c *cli) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an agent",
		Example: "  skep agent create hello --plugin hello\n  skep agent create hello-it --plugin hello@1.0 --config word=Ciao --grant-agent text-tool",
		Args:    f.grant.oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := f.settings()
			if err != nil {
				return err
			}
			limits, err := parseLimits(f.limits)
			if err != nil {
				return err
			}
			quota, err := parseQuota(f.quota)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			use, err := f.sandbox.use(cmd.Flags(), nil)
			if err != nil {
				return err
			}
			ref := f.plugin
			if ref == "" && use == nil {
				ref = args[0]
			}
			granted, err := f.granted(cmd.Context(), c, cl, ref)
			if err != nil {
				return err
			}
			a, err := cl.CreateAgent(cmd.Context(), client.NewAgent{
				Name: args[0], Plugin: ref, Description: f.description, Config: config, Grants: granted, Limits: limits, Quota: quota, Sandbox: use,
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			c.printf("created agent %s on %s\n", a.Name, madeOf(a))
			return c.hintGrants(cmd.Context(), cl, a, false)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// granted returns all that the flags grant to an agent on a plugin.
func (f *agentFlags) granted(ctx context.Context, c *cli, cl *client.Client, plugin string) (g agent.Grants, err error) {
	if f.grantsFile != "" {
		if g, err = readGrants(f.grantsFile); err != nil {
			return g, err
		}
	}
	if f.asked {
		p, err := cl.Plugin(ctx, plugin)
		if err != nil {
			return g, err
		}
		asked, err := c.accept(p, f.yes)
		if err != nil {
			return g, err
		}
		g = g.With(asked)
	}
	more, err := f.grant.grants()
	return g.With(more), err
}

// hintGrants tells what an agent's code asks for and was not granted; with all, what it may do now, too.
func (c *cli) hintGrants(ctx context.Context, cl *client.Client, a agent.Agent, all bool) error {
	p, err := pluginOf(ctx, cl, a)
	if err != nil {
		return err
	}
	if words := a.Grants.Words(); all && len(words) > 0 {
		c.printf("it may\n")
		c.printWords(words)
	} else if all {
		c.printf("it may reach nothing outside its cell\n")
	}
	c.hintAsked(a.Name, p.Asks, a.Grants)
	return c.hintSecrets(ctx, cl, a.Grants)
}

// pluginOf is the code of an agent; none of one that runs only code that it is given.
func pluginOf(ctx context.Context, cl *client.Client, a agent.Agent) (agent.Plugin, error) {
	if a.Plugin == "" {
		return agent.Plugin{}, nil
	}
	return cl.Plugin(ctx, a.Plugin)
}

// hintSecrets names the secrets that were granted and are not there, which may be a slip of the pen.
func (c *cli) hintSecrets(ctx context.Context, cl *client.Client, g agent.Grants) error {
	for _, s := range g.Secrets {
		_, err := cl.Secret(ctx, s.Name)
		if err == nil {
			continue
		}
		if agent.KindOf(err) != agent.NotFound {
			return err
		}
		fmt.Fprintf(c.stderr, "there is no secret %s yet: skep secret set %s\n", s.Name, s.Name)
	}
	return nil
}

func newAgentList(c *cli) *cobra.Command {
	return listVerb(c, "List agents, newest first", (*client.Client).Agents, table[agent.Agent]{
		what: "agents", hint: "skep push FILE --agent NAME makes one", header: []string{"NAME", "PLUGIN", "UPDATED", "DESCRIPTION"},
		row: func(a agent.Agent) []string { return []string{a.Name, a.Plugin, when(a.Updated), a.Description} },
	})
}

func newAgentShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show an agent and what it can do",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(agentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			a, err := cl.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			p, err := pluginOf(cmd.Context(), cl, a)
			if err != nil {
				return err
			}
			plugin := ""
			if a.Plugin != "" {
				plugin = a.Plugin + " (" + p.Version + ", " + short(p.Digest) + ")"
			}
			var config []string
			for _, key := range slices.Sorted(maps.Keys(a.Config)) {
				config = append(config, key+"="+a.Config[key])
			}
			c.printFields("name", a.Name, "description", a.Description, "plugin", plugin,
				"functions", strings.Join(p.Exports, ", "), "sandbox", sandboxWords(a.Sandbox), "config", strings.Join(config, ", "),
				"may", strings.Join(a.Grants.Words(), "; "), "limits", limitsText(a.Limits),
				"id", string(a.ID), "created", when(a.Created), "updated", when(a.Updated))
			return nil
		},
	}
}

func newAgentUpdate(c *cli) *cobra.Command {
	var f agentFlags
	var revoke grantFlags
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change an agent; what is not named stays as it is",
		Long: `Change an agent. What is not named stays as it is; settings, limits and quotas are each replaced as a whole. --grant-... adds to what it
may do, with limits behind it if there are any, and --revoke-... takes away from it, also from calls and runs under way; --grants-file replaces all of it.`,
		Example: "  skep agent update hello --plugin hello@1.1\n  skep agent update hello --config word=Salve --limit wall=1m\n" +
			"  skep agent update hello --grant-http 'GET https://api.example.com/v1/**' --grant-secret api-key\n" +
			"  skep agent update hello --grant-http 'POST https://api.example.com/mail per_call=1 per_day=200'\n  skep agent update hello --revoke-secret api-key",
		Args: f.grant.oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			patch, err := f.patch(cmd.Flags())
			if err != nil {
				return err
			}
			if err := f.sandbox.patch(cmd.Context(), c, cmd.Flags(), args[0], &patch); err != nil {
				return err
			}
			less, err := revoke.grants()
			if err != nil {
				return err
			}
			for _, s := range less.Secrets {
				if len(s.To) > 0 {
					return usageError("--revoke-secret %s: name the secret alone; --grant-secret %s=TARGET narrows where it may go", s.Name, s.Name)
				}
			}
			if !less.Empty() {
				patch.Revoke = &less
			}
			if patch == (client.AgentPatch{}) && !f.asked {
				return usageError("nothing to change: see skep agent update --help for what can be")
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			if f.asked {
				if err := f.grantAsked(cmd.Context(), c, cl, args[0], &patch); err != nil {
					return err
				}
			}
			a, err := cl.UpdateAgent(cmd.Context(), args[0], patch)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			c.printf("updated agent %s\n", a.Name)
			return c.hintGrants(cmd.Context(), cl, a, patch.Grants != nil || patch.Grant != nil || patch.Revoke != nil)
		},
	}
	f.register(cmd.Flags())
	revoke.register(cmd.Flags(), "revoke")
	return cmd
}

// grantAsked adds to a patch what the agent's code asks for, as it will be.
func (f *agentFlags) grantAsked(ctx context.Context, c *cli, cl *client.Client, name string, patch *client.AgentPatch) error {
	ref := f.plugin
	if ref == "" {
		a, err := cl.Agent(ctx, name)
		if err != nil {
			return err
		}
		ref = a.Plugin
	}
	p, err := cl.Plugin(ctx, ref)
	if err != nil {
		return err
	}
	more, err := c.accept(p, f.yes)
	if err != nil {
		return err
	}
	if patch.Grant != nil {
		more = more.With(*patch.Grant)
	}
	patch.Grant = &more
	return nil
}

// patch holds what was named on the command line.
func (f *agentFlags) patch(flags *pflag.FlagSet) (client.AgentPatch, error) {
	var p client.AgentPatch
	if flags.Changed("plugin") {
		p.Plugin = &f.plugin
	}
	if flags.Changed("description") {
		p.Description = &f.description
	}
	if flags.Changed("config") {
		config, err := f.settings()
		if err != nil {
			return p, err
		}
		p.Config = &config
	}
	if f.grantsFile != "" {
		grants, err := readGrants(f.grantsFile)
		if err != nil {
			return p, err
		}
		p.Grants = &grants
	}
	more, err := f.grant.grants()
	if err != nil {
		return p, err
	}
	if !more.Empty() {
		p.Grant = &more
	}
	if flags.Changed("quota") {
		quota, err := parseQuota(f.quota)
		if err != nil {
			return p, err
		}
		p.Quota = &quota
	}
	if flags.Changed("limit") {
		limits, err := parseLimits(f.limits)
		if err != nil {
			return p, err
		}
		p.Limits = &limits
	}
	return p, nil
}

func newAgentDelete(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete agents, all or none, with their instances; their code, sessions and runs stay",
		Args:  cobra.MinimumNArgs(1),

		ValidArgsFunction: c.completeMany(agentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.DeleteAgents(cmd.Context(), args...); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args})
			}
			c.printf("deleted %s\n", strings.Join(args, ", "))
			return nil
		},
	}
}
