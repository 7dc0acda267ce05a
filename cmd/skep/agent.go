package main

import (
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
	cmd.AddCommand(newAgentCreate(c), newAgentList(c), newAgentShow(c), newAgentUpdate(c), newAgentDelete(c))
	return cmd
}

// agentFlags are the parts of an agent that create and update share.
type agentFlags struct {
	plugin, description string
	config, grants      []string
	limits              []string
}

func (f *agentFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.plugin, "plugin", "", "the code: NAME for the newest version, NAME@VERSION to pin one")
	flags.StringVar(&f.description, "description", "", "what the agent is for")
	flags.StringArrayVar(&f.config, "config", nil, "a plain setting `KEY=VALUE` the code may read; may be given more than once")
	flags.StringSliceVar(&f.grants, "grant-agent", nil, "`NAME` of another agent it may call; may be given more than once")
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
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := f.settings()
			if err != nil {
				return err
			}
			limits, err := parseLimits(f.limits)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			a, err := cl.CreateAgent(cmd.Context(), client.NewAgent{
				Name: args[0], Plugin: or(f.plugin, args[0]), Description: f.description, Config: config,
				Grants: agent.AgentGrants(f.grants...), Limits: limits,
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			c.printf("created agent %s on plugin %s\n", a.Name, a.Plugin)
			return nil
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func newAgentList(c *cli) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List agents, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			agents, err := collect(cmd.Context(), p.limit, cl.Agents)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(agents)
			}
			if len(agents) == 0 {
				c.printEmpty("agents", "skep push FILE --agent NAME makes one")
				return nil
			}
			var rows [][]string
			for _, a := range agents {
				rows = append(rows, []string{a.Name, a.Plugin, when(a.Updated), a.Description})
			}
			c.printTable([]string{"NAME", "PLUGIN", "UPDATED", "DESCRIPTION"}, rows)
			return nil
		},
	}
	p.register(cmd)
	return cmd
}

func newAgentShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show an agent and what it can do",
		Args:  cobra.ExactArgs(1),
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
			p, err := cl.Plugin(cmd.Context(), a.Plugin)
			if err != nil {
				return err
			}
			var config []string
			for _, key := range slices.Sorted(maps.Keys(a.Config)) {
				config = append(config, key+"="+a.Config[key])
			}
			c.printFields("name", a.Name, "description", a.Description, "plugin", a.Plugin+" ("+p.Version+", "+short(p.Digest)+")",
				"functions", strings.Join(p.Exports, ", "), "config", strings.Join(config, ", "),
				"may", strings.Join(a.Grants.Words(), "; "), "limits", limitsText(a.Limits),
				"id", string(a.ID), "created", when(a.Created), "updated", when(a.Updated))
			return nil
		},
	}
}

func newAgentUpdate(c *cli) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:     "update NAME",
		Short:   "Change an agent; what is not named stays as it is",
		Long:    "Change an agent. What is not named stays as it is; settings, grants and limits are each replaced as a whole.",
		Example: "  skep agent update hello --plugin hello@1.1\n  skep agent update hello --config word=Salve --limit wall=1m",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			patch, err := f.patch(cmd.Flags())
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			a, err := cl.UpdateAgent(cmd.Context(), args[0], patch)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			c.printf("updated agent %s\n", a.Name)
			return nil
		},
	}
	f.register(cmd.Flags())
	return cmd
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
	if flags.Changed("grant-agent") {
		grants := agent.AgentGrants(f.grants...)
		p.Grants = &grants
	}
	if flags.Changed("limit") {
		limits, err := parseLimits(f.limits)
		if err != nil {
			return p, err
		}
		p.Limits = &limits
	}
	if p == (client.AgentPatch{}) {
		return p, usageError("nothing to change: name at least one of --plugin, --description, --config, --grant-agent, --limit")
	}
	return p, nil
}

func newAgentDelete(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete agents, all or none; their code, sessions and runs stay",
		Args:  cobra.MinimumNArgs(1),
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
