package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newFile(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "file",
		Aliases: []string{"files"},
		Short:   "List, get, put and delete files of a session",
		Long: `A session keeps files: attachments that you put there for its agent, and artifacts that its runs leave, below artifacts/RUN/.
A file has up to 64 MB, a session up to 10,000 of them.`,
		Example: "  skep file put 01JQ8... report.pdf\n  skep file list 01JQ8... --prefix artifacts/\n  skep file get 01JQ8... artifacts/01JQ9.../chart.png -o chart.png",
	})
	cmd.AddCommand(newFileList(c), newFileGet(c), newFilePut(c), newFileDelete(c))
	return cmd
}

func newFileList(c *cli) *cobra.Command {
	var prefix string
	list := func(cl *client.Client, ctx context.Context, args []string, page agent.Page) (client.List[agent.File], error) {
		return cl.Files(ctx, agent.SessionID(args[0]), prefix, page)
	}
	cmd := listOf(c, "list SESSION", "List a session's files in the order of their paths", list, table[agent.File]{
		what: "such files", hint: "put one there with: skep file put SESSION FILE", header: []string{"PATH", "SIZE", "TYPE", "REVISION", "CHANGED"},
		row: func(f agent.File) []string {
			return []string{shownKey(f.Path), size(f.Size), f.Type, fmt.Sprint(f.Rev), when(f.Updated)}
		},
	})
	cmd.Flags().StringVar(&prefix, "prefix", "", "what the paths begin with")
	cmd.ValidArgsFunction = c.complete(sessionIDs)
	return cmd
}

func newFileGet(c *cli) *cobra.Command {
	var to string
	var offset, length int64
	cmd := &cobra.Command{
		Use:     "get SESSION PATH",
		Short:   "Write a file, or a part of it, to stdout or to a file",
		Example: "  skep file get 01JQ8... notes.md\n  skep file get 01JQ8... artifacts/01JQ9.../chart.png -o chart.png",
		Args:    cobra.ExactArgs(2),

		ValidArgsFunction: c.complete(sessionIDs, filePaths),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(to); to != "" && err == nil {
				return &agent.Error{Kind: agent.Exists, Msg: to + " is there already", Hint: "name another file with -o"}
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			in, err := cl.File(cmd.Context(), agent.SessionID(args[0]), args[1], offset, length)
			if err != nil {
				return err
			}
			defer in.Close()
			if to == "" && (c.json || isTTY(c.stdout)) {
				return c.showFile(args[1], in)
			}
			return c.export(to, func(w io.Writer) error {
				n, err := io.Copy(w, in)
				if err == nil && in.Size >= 0 && n < in.Size {
					err = io.ErrUnexpectedEOF
				}
				if err != nil {
					return agent.Wrap(agent.Unavailable, err, "the file did not arrive whole")
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&to, "output", "o", "", "the `FILE` to write, which must not be there; standard output unless given")
	cmd.Flags().Int64Var(&offset, "offset", 0, "the first byte")
	cmd.Flags().Int64Var(&length, "length", 0, "most bytes; all unless given")
	return cmd
}

// showFile writes JSON, or text to a terminal, and refuses what is none.
func (c *cli) showFile(path string, in *client.FileBody) error {
	b, err := io.ReadAll(in)
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "the file did not arrive whole")
	}
	if c.json {
		return c.printJSON(map[string]any{"path": path, "content": agent.Payload{Type: in.Type, Body: b}})
	}
	if !utf8.Valid(b) {
		return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("the file is %d bytes of %s, not for a terminal", len(b), in.Type), Hint: "send it to a file with -o FILE"}
	}
	return c.printBytes(agent.Payload{Type: in.Type, Body: b})
}

func newFilePut(c *cli) *cobra.Command {
	var mediaType string
	var rev ifRev
	cmd := &cobra.Command{
		Use:   "put SESSION FILE [PATH]",
		Short: "Put a file there, under its own name or another path",
		Long:  "Put a file there, in place of one of the same path. FILE is - for standard input; then a PATH is needed.",
		Example: "  skep file put 01JQ8... report.pdf\n  skep file put 01JQ8... ./data.csv in/data.csv\n" +
			"  git diff | skep file put 01JQ8... - in/change.patch --type text/x-diff",
		Args: cobra.RangeArgs(2, 3),

		ValidArgsFunction: c.complete(sessionIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, n, err := c.openLocal(args[1])
			if err != nil {
				return err
			}
			defer in.Close()
			to := filepath.Base(args[1])
			switch {
			case len(args) == 3:
				to = args[2]
			case args[1] == "-":
				return usageError("say under which path standard input is to be kept: skep file put SESSION - PATH")
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			f, err := cl.PutFile(cmd.Context(), agent.SessionID(args[0]), to, mediaType, rev.given(cmd), in, n)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(f)
			}
			c.printf("put %s (%s, %s), revision %d\n", shownKey(f.Path), size(f.Size), f.Type, f.Rev)
			return nil
		},
	}
	cmd.Flags().StringVar(&mediaType, "type", "", "media type; told from the path and the first bytes unless given")
	rev.register(cmd)
	return cmd
}

// ifRev is the revision that a file must have, where the flag is given.
type ifRev int64

func (r *ifRev) register(cmd *cobra.Command) {
	cmd.Flags().Int64Var((*int64)(r), "if-rev", 0, "only if the file has this revision, where 0 means that it is not there")
}

func (r *ifRev) given(cmd *cobra.Command) *int64 {
	if !cmd.Flags().Changed("if-rev") {
		return nil
	}
	return (*int64)(r)
}

// local is a file to send.
type local interface {
	io.ReadSeeker
	io.Closer
}

// openLocal opens a regular file, or a copy of standard input, and tells its size.
func (c *cli) openLocal(name string) (_ local, size int64, err error) {
	var f *os.File
	if name == "-" {
		if f, err = os.CreateTemp("", "skep-*"); err != nil {
			return nil, 0, err
		}
		defer os.Remove(f.Name()) // its name goes at once, its bytes when it is closed
		if _, err = io.Copy(f, io.LimitReader(c.stdin, agent.MaxFile+1)); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
	} else {
		f, err = os.Open(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, &agent.Error{Kind: agent.Invalid, Msg: "there is no file " + name}
	}
	if err != nil {
		return nil, 0, &agent.Error{Kind: agent.Invalid, Msg: "cannot read " + name, Err: err}
	}
	st, err := f.Stat()
	switch {
	case err == nil && !st.Mode().IsRegular():
		err = &agent.Error{Kind: agent.Invalid, Msg: name + " is no regular file"}
	case err == nil && st.Size() > agent.MaxFile:
		err = &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitInput, Msg: fmt.Sprintf("%s has more than %d bytes", name, agent.MaxFile), Hint: "put it in several files"}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

func newFileDelete(c *cli) *cobra.Command {
	var rev ifRev
	cmd := &cobra.Command{
		Use:   "delete SESSION PATH",
		Short: "Delete a file",
		Args:  cobra.ExactArgs(2),

		ValidArgsFunction: c.complete(sessionIDs, filePaths),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.DeleteFile(cmd.Context(), agent.SessionID(args[0]), args[1], rev.given(cmd)); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args[1]})
			}
			c.printf("deleted %s\n", shownKey(args[1]))
			return nil
		},
	}
	rev.register(cmd)
	return cmd
}

func sessionIDs(ctx context.Context, cl *client.Client, _ []string) (out []string, err error) {
	l, err := cl.Sessions(ctx, "", agent.Page{Limit: agent.MaxPage})
	for _, s := range l.Items {
		out = append(out, string(s.ID))
	}
	return out, err
}

func filePaths(ctx context.Context, cl *client.Client, before []string) (out []string, err error) {
	l, err := cl.Files(ctx, agent.SessionID(before[0]), "", agent.Page{Limit: agent.MaxPage})
	for _, f := range l.Items {
		out = append(out, f.Path)
	}
	return out, err
}
