package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/backup"
	"github.com/skep-dev/skep/store/engine"
)

func newBackup(c *cli) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "backup --to FILE",
		Short: "Write everything that is stored to one file",
		Long: `Write everything that is stored, as it is at one moment, to one file: from the running server, or from the data directory when
none runs. The file is read again and verified before it gets its name. Secrets are in it as ciphertext, of no
use without the vault key, which is not in it; all other data is in the clear: keep it as you would the data directory. Access tokens keep working after skep restore; the file owner.token is not in the backup.`,
		Example: "  skep backup --to skep-$(date +%F).backup",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return usageError("say where to: skep backup --to FILE")
			}
			m, sum, size_, err := c.backup(cmd.Context(), to)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"file": to, "size": size_, "manifest": m, "holds": sum})
			}
			c.printf("%d records and %d blobs are in %s (%s)\n", sum.Records, sum.Blobs, to, size(size_))
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `FILE` to write; it must not be there")
	return cmd
}

// backup writes and verifies the file at path, which is whole or not there at all.
func (c *cli) backup(ctx context.Context, path string) (m backup.Manifest, sum backup.Summary, size int64, err error) {
	if _, err := os.Stat(path); err == nil {
		return m, sum, 0, &agent.Error{Kind: agent.Exists, Msg: path + " is there already", Hint: "name another file with --to"}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // CreateTemp uses mode 0600
	if err != nil {
		return m, sum, 0, &agent.Error{Kind: agent.Invalid, Msg: "cannot write to " + path, Err: err}
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err = c.writeBackup(ctx, f); err != nil {
		return m, sum, 0, err
	}
	if size, err = f.Seek(0, io.SeekCurrent); err != nil {
		return m, sum, 0, err
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return m, sum, 0, err
	}
	if m, sum, err = backup.Check(ctx, f); err != nil {
		return m, sum, 0, err
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return m, sum, 0, err
	}
	return m, sum, size, os.Rename(f.Name(), path)
}

// writeBackup asks the server that the flags and the environment name, or that runs here; else it opens the data directory.
func (c *cli) writeBackup(ctx context.Context, w io.Writer) error {
	dir, err := c.dataDir()
	if err != nil {
		return err
	}
	remote := or(c.url, os.Getenv("SKEP_URL")) != ""
	if _, err := os.Stat(filepath.Join(dir, serverFile)); err == nil || remote {
		cl, err := c.client()
		if err == nil {
			err = cl.Backup(ctx, w)
		}
		if remote || agent.KindOf(err) != agent.Unavailable {
			return err
		}
		// A server that was killed has left its file behind.
	}
	return backupDir(ctx, dir, w)
}

// backupDir writes a backup of a data directory that no server uses.
func backupDir(ctx context.Context, dir string, w io.Writer) (err error) {
	kind, err := engine.Detect(dir)
	if err != nil {
		return err
	}
	if kind == engine.Unknown {
		return &agent.Error{Kind: agent.NotFound, Msg: "there is no store in " + dir, Hint: "name the data directory with --data, or a server with --url"}
	}
	db, err := engine.Open(dir, kind, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	_, err = backup.Write(ctx, st, w, backup.Manifest{Skep: version, Created: time.Now()})
	return err
}
