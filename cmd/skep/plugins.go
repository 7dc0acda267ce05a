package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newPlugins(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "plugins",
		Aliases: []string{"plugin"},
		Short:   "List, show and download the code that was pushed",
		Long:    "A plugin is agent code, immutable under its name and version. skep push stores one.",
	})
	cmd.AddCommand(newPluginList(c), newPluginShow(c), newPluginGet(c))
	return cmd
}

func newPluginList(c *cli) *cobra.Command {
	return listVerb(c, "List plugins, newest first", (*client.Client).Plugins, table[agent.Plugin]{
		what: "plugins", hint: "skep push FILE stores one", header: []string{"NAME", "VERSION", "KIND", "SIZE", "DIGEST", "CREATED"},
		row: func(p agent.Plugin) []string {
			return []string{p.Name, p.Version, p.Kind.String(), size(p.Size), short(p.Digest), when(p.Created)}
		},
	})
}

func newPluginShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME|NAME@VERSION|DIGEST",
		Short: "Show a plugin and its functions",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			p, err := cl.Plugin(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(p)
			}
			c.printPlugin(p)
			return nil
		},
	}
}

func (c *cli) printPlugin(p agent.Plugin) {
	var asks string
	if p.Asks != nil {
		asks = strings.Join(p.Asks.Words(), "; ")
	}
	c.printFields("name", p.Name, "version", p.Version, "kind", p.Kind.String(), "main", p.Main, "size", size(p.Size),
		"functions", strings.Join(p.Exports, ", "), "asks to", asks, "digest", string(p.Digest), "created", when(p.Created))
}

func newPluginGet(c *cli) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "get NAME|NAME@VERSION|DIGEST",
		Short:   "Download a plugin's file",
		Example: "  skep plugins get hello@1.0 -o hello.zip",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			name, b, err := cl.PluginContent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			switch {
			case out == "-":
				_, err := c.stdout.Write(b)
				return err
			case out == "":
				out = or(filepath.Base(name), "plugin")
			}
			if err := os.WriteFile(out, b, 0o644); err != nil {
				return agent.Wrap(agent.Invalid, err, "write "+out)
			}
			c.printf("wrote %s (%s)\n", out, size(int64(len(b))))
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write, or - for standard output; the plugin's own name unless given")
	return cmd
}
