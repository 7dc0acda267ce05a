package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
)

func registerTo(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "to", "", "the `FILE` to write, which must not be there; standard output unless given")
}

// export writes what write writes to standard output, or to a file that is whole or not there at all.
func (c *cli) export(to string, write func(io.Writer) error) (err error) {
	if to == "" {
		return write(c.stdout)
	}
	if _, err := os.Stat(to); err == nil {
		return &agent.Error{Kind: agent.Exists, Msg: to + " is there already", Hint: "name another file with --to"}
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-*") // CreateTemp uses mode 0600
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "cannot write to " + to, Err: err}
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	b := c.newBar("export")
	w := &counted{w: f, show: func(n int64) { b.step(size(n)) }}
	err = write(w)
	b.clear()
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), to); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(map[string]any{"file": to, "size": w.n})
	}
	c.printf("wrote %s (%s)\n", to, size(w.n))
	return nil
}

// counted tells how much was written.
type counted struct {
	w    io.Writer
	n    int64
	show func(int64)
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.show(c.n)
	return n, err
}
