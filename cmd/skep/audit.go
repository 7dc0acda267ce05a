package main

import (
	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/api/client"
)

func newAudit(c *cli) *cobra.Command {
	var follow bool
	var filter client.AuditFilter
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Print who changed what, which secrets were used, and what agents were refused",
		Long: `Print the app's audit log: each change of agents, grants, secrets, tokens, quotas and apps with the token that made it, each use of a
secret with where it went, each link to a sandbox with who asked for it, and what agents asked for that they were not granted.`,
		Example: "  skep audit --since 24h\n  skep audit -f --kind secret.used --agent mailer",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			return c.printEvents(cmd.Context(), cl, client.AuditLog(filter), 0, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on at the end of the log, until Ctrl-C")
	cmd.Flags().StringVar(&filter.Since, "since", "", "only what came later: a duration such as 24h, or a time such as 2026-01-31T08:00:00Z")
	cmd.Flags().StringVar(&filter.Kind, "kind", "", "only one kind: changed, secret.used or grant.refused")
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only what this agent did, and what was done to it")
	return cmd
}
