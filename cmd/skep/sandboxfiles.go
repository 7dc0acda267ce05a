package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/driver"
)

func newSandboxFile(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "file",
		Aliases: []string{"files"},
		Short:   "List, get, put and delete files of a sandbox",
		Long:    "List, get, put and delete files of a sandbox. A path is within the workspace, or absolute.",
		Example: "  skep sandbox file list 01JQ8...\n  skep sandbox file put 01JQ8... data.csv\n  skep sandbox file get 01JQ8... out.txt -o out.txt",
	})
	cmd.AddCommand(newSandboxLs(c), newSandboxGet(c), newSandboxPut(c), newSandboxRm(c))
	return cmd
}

func newSandboxLs(c *cli) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "list SANDBOX [FOLDER]",
		Short: "List files of a sandbox; those of its workspace unless a folder is given",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			dir := ""
			if len(args) > 1 {
				dir = args[1]
			}
			l, err := cl.SandboxList(cmd.Context(), agent.SandboxID(args[0]), dir, recursive)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(l)
			}
			w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
			for _, f := range l.Files {
				name := plain(f.Path)
				switch f.Type {
				case "dir":
					name += "/"
				case "link":
					name += " -> " + plain(f.Target)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", os.FileMode(f.Mode).Perm(), size(f.Size), when(f.Modified), name)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if l.More {
				c.notef("there are more files than these\n")
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "what is below, too")
	return cmd
}

// receives returns a verb that writes what open reads to stdout or a file.
func (c *cli) receives(cmd *cobra.Command, what string, open func(context.Context, *client.Client, []string) (io.ReadCloser, error)) *cobra.Command {
	var to string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to != "" && exists(to) {
			return &agent.Error{Kind: agent.Exists, Msg: to + " is there already", Hint: "name another file with -o"}
		}
		cl, err := c.client()
		if err != nil {
			return err
		}
		in, err := open(cmd.Context(), cl, args)
		if err != nil {
			return err
		}
		defer in.Close()
		return c.export(to, func(w io.Writer) error {
			if _, err := io.Copy(w, in); err != nil {
				return agent.Wrap(agent.Unavailable, err, what+" did not arrive whole")
			}
			return nil
		})
	}
	cmd.Flags().StringVarP(&to, "output", "o", "", "the `FILE` to write, which must not be there; standard output unless given")
	return cmd
}

func newSandboxGet(c *cli) *cobra.Command {
	return c.receives(&cobra.Command{
		Use:   "get SANDBOX PATH",
		Short: "Write a file of a sandbox to stdout or to a file",
		Args:  cobra.ExactArgs(2),
	}, "the file", func(ctx context.Context, cl *client.Client, args []string) (io.ReadCloser, error) {
		return cl.ReadSandbox(ctx, agent.SandboxID(args[0]), args[1])
	})
}

func newSandboxBackup(c *cli) *cobra.Command {
	var dir string
	cmd := c.receives(&cobra.Command{
		Use:     "backup SANDBOX [PATH]",
		Short:   "Write a folder of a sandbox as a tar archive",
		Example: "  skep sandbox backup 01JQ8... -o work.tar",
		Args:    cobra.RangeArgs(1, 2),
	}, "the archive", func(ctx context.Context, cl *client.Client, args []string) (io.ReadCloser, error) {
		return cl.ReadArchive(ctx, agent.SandboxID(args[0]), dir, strings.Join(args[1:], ""))
	})
	cmd.Flags().StringVar(&dir, "dir", "", "the folder; the workspace unless given")
	return cmd
}

func newSandboxDiff(c *cli) *cobra.Command {
	var base string
	var names bool
	cmd := c.receives(&cobra.Command{
		Use:   "diff SANDBOX",
		Short: "Show what was changed in the workspace of a sandbox, as a patch of git",
		Args:  cobra.ExactArgs(1),
	}, "the patch", func(ctx context.Context, cl *client.Client, args []string) (io.ReadCloser, error) {
		return cl.SandboxDiff(ctx, agent.SandboxID(args[0]), base)
	})
	patch := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !names && !c.json {
			return patch(cmd, args)
		}
		cl, err := c.client()
		if err != nil {
			return err
		}
		d, err := cl.SandboxChanges(cmd.Context(), agent.SandboxID(args[0]), base)
		if err != nil {
			return err
		}
		if c.json {
			return c.printJSON(d)
		}
		c.printChanges(d.Changed)
		return nil
	}
	cmd.Flags().StringVar(&base, "base", "", "commit to compare with; what the workspace began with unless given")
	cmd.Flags().BoolVar(&names, "stat", false, "list the files, and how many lines each has gained and lost")
	return cmd
}

// printChanges lists changed files.
func (c *cli) printChanges(list []client.ChangedFile) {
	w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	for _, f := range list {
		lines := fmt.Sprintf("+%d -%d", f.Added, f.Removed)
		if f.Added < 0 {
			lines = "no text"
		}
		name := plain(f.Path)
		if f.From != "" {
			name = plain(f.From) + " -> " + name
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Op, lines, name)
	}
	_ = w.Flush()
}

func newSandboxPut(c *cli) *cobra.Command {
	var executable bool
	cmd := &cobra.Command{
		Use:     "put SANDBOX FILE [PATH]",
		Short:   "Write a file of a sandbox",
		Long:    "Write a file of a sandbox: under its own name in the workspace, or at another path. FILE is - for standard input; then a PATH is needed.",
		Example: "  skep sandbox file put 01JQ8... data.csv\n  skep sandbox file put 01JQ8... tool /home/agent/bin/tool --executable",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := filepath.Base(args[1])
			switch {
			case len(args) == 3:
				to = args[2]
			case args[1] == "-":
				return usageError("say where standard input is to go: skep sandbox file put SANDBOX - PATH")
			}
			in, n, err := c.openLocal(args[1])
			if err != nil {
				return err
			}
			defer in.Close()
			cl, err := c.client()
			if err != nil {
				return err
			}
			var mode uint32
			if executable {
				mode = 0o755
			}
			f, err := cl.WriteSandbox(cmd.Context(), agent.SandboxID(args[0]), to, mode, in, n)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(f)
			}
			c.printf("put %s (%s)\n", plain(f.Path), size(f.Size))
			return nil
		},
	}
	cmd.Flags().BoolVarP(&executable, "executable", "x", false, "so that it can be run")
	return cmd
}

func newSandboxRm(c *cli) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "delete SANDBOX PATH",
		Short: "Delete a file of a sandbox",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.DeleteInSandbox(cmd.Context(), agent.SandboxID(args[0]), args[1], recursive); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args[1]})
			}
			c.printf("deleted %s\n", plain(args[1]))
			return nil
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "a folder with all that is in it")
	return cmd
}

func newSandboxRestore(c *cli) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "restore SANDBOX FILE",
		Short:   "Unpack a tar archive in a folder of a sandbox",
		Example: "  skep sandbox restore 01JQ8... work.tar",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := os.Open(args[1])
			if err != nil {
				return &agent.Error{Kind: agent.Invalid, Msg: "cannot read " + args[1], Err: err}
			}
			defer in.Close()
			st, err := in.Stat()
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.WriteArchive(cmd.Context(), agent.SandboxID(args[0]), dir, in, st.Size()); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"restored": args[1]})
			}
			c.printf("unpacked %s\n", args[1])
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the folder; the workspace unless given")
	return cmd
}

func newSandboxClone(c *cli) *cobra.Command {
	var ref string
	cmd := &cobra.Command{
		Use:   "clone SANDBOX URL|FOLDER",
		Short: "Bring a git repository, or a folder of yours, into the workspace of a sandbox",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := driver.CheckRepoURL(args[1]); err != nil {
				return err
			}
			if ref != "" && !isURL(args[1]) {
				return usageError("--ref is for a repository that is cloned by its URL; of a folder of yours, what is checked out is sent")
			}
			var r client.Repo
			if isURL(args[1]) {
				r, err = cl.CloneRepo(cmd.Context(), agent.SandboxID(args[0]), args[1], ref)
			} else {
				var in *os.File
				if in, err = packFolder(args[1]); err != nil {
					return err
				}
				defer in.Close()
				var st os.FileInfo
				if st, err = in.Stat(); err == nil {
					r, err = cl.PutRepo(cmd.Context(), agent.SandboxID(args[0]), in, st.Size())
				}
			}
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(r)
			}
			c.printf("%d files at commit %s\n", r.Files, r.Commit[:min(12, len(r.Commit))])
			return nil
		},
	}
	cmd.Flags().StringVar(&ref, "ref", "", "branch, tag or commit of a URL")
	return cmd
}

// isURL tells a repository that is cloned from a folder of this machine.
func isURL(s string) bool {
	return slices.ContainsFunc([]string{"https://", "http://", "ssh://", "git://", "git@"}, func(p string) bool { return strings.HasPrefix(s, p) })
}
