package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
)

func newModelRecord(c *cli) *cobra.Command {
	var to string
	var calls int
	cmd := &cobra.Command{
		Use:   "record PROVIDER --to FILE",
		Short: "Record what a provider answers, to tell it again without the provider",
		Long: `Record what a provider answers from now on, until Ctrl-C or --calls. The file is a script: a provider that is added with it tells the same answers to
the same conversations, without a network, a key or a cost. Keys of the provider are not in the file. What was asked is not in it either, but what was
answered is.`,
		Example: "  skep model record openai --to openai.jsonl\n  skep model provider add recorded --script openai.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usageError("where to? write --to FILE")
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			var f *os.File
			n := 0
			errEnough := errors.New("enough")
			err = cl.RecordProvider(cmd.Context(), args[0], func(line []byte) error {
				if len(line) == 0 {
					if f, err = os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
						return err
					}
					c.notef("recording calls to %s; stop with Ctrl-C\n", args[0])
					return nil
				}
				if _, err := f.Write(append(line, '\n')); err != nil {
					return err
				}
				if n++; n == calls {
					return errEnough
				}
				return nil
			})
			if f != nil {
				if closed := f.Close(); closed != nil {
					return closed
				}
			}
			if f == nil || cmd.Context().Err() == nil && !errors.Is(err, errEnough) {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"provider": args[0], "file": to, "calls": n})
			}
			c.printf("recorded %d calls to %s in %s\n", n, args[0], to)
			if n > 0 {
				c.notef("tell them again: skep model provider add recorded --script %s\n", to)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "file to write; one that is there is replaced")
	cmd.Flags().IntVar(&calls, "calls", 0, "stop after so many calls; at Ctrl-C unless given")
	return cmd
}
