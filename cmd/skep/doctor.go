package main

import (
	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/doctor"
)

func newDoctor(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Examine a data directory while no server runs",
		Long: `Read all of a data directory, verify every record and blob, and say what is wrong and what to do. It needs the directory for
itself, so stop the server first. The exit code is 1 when something is damaged.`,
		Example: "  skep doctor\n  skep doctor --data /srv/skep --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.dataDir()
			if err != nil {
				return err
			}
			r, err := doctor.Examine(cmd.Context(), dir, nil)
			if err != nil {
				return err
			}
			if c.json {
				err = c.printJSON(r)
			} else {
				c.printReport(r)
			}
			if err == nil && r.Damaged() {
				err = silent{agent.Internal}
			}
			return err
		},
	}
}

func (c *cli) printReport(r doctor.Report) {
	for _, f := range r.Findings {
		c.printf("%-6s  %s: %s\n", f.Level, f.Check, f.Found)
		if f.Do != "" {
			c.printf("        do: %s\n", f.Do)
		}
	}
	if r.Damaged() {
		c.printf("%s is damaged\n", r.Data)
		return
	}
	c.printf("%s is sound\n", r.Data)
}
