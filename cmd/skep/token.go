package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newToken(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "token",
		Short: "Make, list and delete access tokens",
		Long: `Access tokens are for programs. Whoever has one can do what its role lets them, in its app or in all; its secret is shown once, when it
is made. An owner may do everything. A developer may push code, create agents, call and run them, read, and narrow what agents may do; what
gives an agent more, secrets, quotas, tokens, apps and backups take an owner.`,
	})
	cmd.AddCommand(newTokenCreate(c), newTokenList(c), newTokenDelete(c))
	return cmd
}

func newTokenCreate(c *cli) *cobra.Command {
	var lives time.Duration
	var role string
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make a token and print its secret, this once",
		Example: "  skep token create ci --role developer --app shop --expires 720h\n  SKEP_TOKEN=$(skep token create ci) skep agent list",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked := client.NewToken{Name: args[0], App: agent.App(c.app)}
			if err := asked.Role.UnmarshalText([]byte(role)); err != nil {
				return usageError("--role %s: use owner or developer", role)
			}
			if lives != 0 {
				asked.Expires = time.Now().Add(lives)
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			t, err := cl.CreateToken(cmd.Context(), asked)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(t)
			}
			c.printf("%s\n", t.Secret)
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", agent.Owner.String(), "owner or developer; with --app the token is good for that app alone")
	cmd.Flags().DurationVar(&lives, "expires", 0, "how long it works, such as 720h; for ever unless given")
	return cmd
}

func newTokenList(c *cli) *cobra.Command {
	return listVerb(c, "List tokens, newest first, without their secrets", (*client.Client).Tokens, table[agent.Token]{
		header: []string{"ID", "NAME", "ROLE", "APP", "CREATED", "EXPIRES"},
		row: func(t agent.Token) []string {
			return []string{string(t.ID), t.Name, t.Role.String(), or(string(t.App), "all"), when(t.Created), or(when(t.Expires), "never")}
		},
	})
}

func newTokenDelete(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID...",
		Short: "Delete tokens, all or none; they stop working at once",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			ids := make([]agent.TokenID, len(args))
			for i, a := range args {
				ids[i] = agent.TokenID(a)
			}
			if err := cl.DeleteTokens(cmd.Context(), ids...); err != nil {
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
