package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/backup"
)

func newRestore(c *cli) *cobra.Command {
	var from string
	var o backup.Options
	var kind string
	cmd := &cobra.Command{
		Use:   "restore --from FILE",
		Short: "Make a data directory of a backup",
		Long: `Make a data directory of a backup. The directory must be empty or not there; it is verified in full before it gets its name.
The kind of store may be another than that of the backup: this is how a data directory is converted. The next skep serve writes a
new owner.token; tokens made before keep working. Where there are secrets it needs the vault key of the backup's time: --vault-key.`,
		Example: "  skep restore --from skep.backup --data /srv/skep\n  skep restore --from skep.backup --data /srv/new --store pebble",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return usageError("say where from: skep restore --from FILE")
			}
			if err := o.Engine.UnmarshalText([]byte(kind)); err != nil || kind == "memory" {
				return usageError("--store %s: use badger or pebble", kind)
			}
			dir, err := c.dataDir()
			if err != nil {
				return err
			}
			f, err := os.Open(filepath.Clean(from))
			if err != nil {
				return &agent.Error{Kind: agent.NotFound, Msg: "cannot read the backup", Err: err}
			}
			defer f.Close()
			m, sum, err := backup.Restore(cmd.Context(), f, dir, &o)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"data": dir, "manifest": m, "holds": sum})
			}
			c.printf("%d records and %d blobs of %s are in %s, verified\n", sum.Records, sum.Blobs, when(m.Created), dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the backup `FILE`")
	cmd.Flags().StringVar(&kind, "store", "", "kind of store to make: badger or pebble; badger unless given")
	return cmd
}
