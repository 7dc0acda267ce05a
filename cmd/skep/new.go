package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/internal/scaffold"
)

func newNew(c *cli) *cobra.Command {
	var lang string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Make a project for a new agent",
		Long: `Make a project for a new agent: a directory with the agent, what an editor needs to understand it, and a README.
Nothing that is already there is overwritten.`,
		Example: "  skep new hello\n  skep new counter --lang rust",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var l scaffold.Lang
			if err := l.UnmarshalText([]byte(lang)); err != nil {
				return err
			}
			name := filepath.Base(args[0])
			files, err := scaffold.Write(args[0], name, l)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"name": name, "dir": args[0], "files": files})
			}
			for _, f := range files {
				c.printf("wrote %s\n", filepath.Join(args[0], filepath.FromSlash(f)))
			}
			c.printf("\nnow try:\n  skep dev %s%c\n", filepath.Clean(args[0]), os.PathSeparator)
			return nil
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "ts", "language of the agent: ts, go, rust, as (AssemblyScript), c or python")
	return cmd
}
