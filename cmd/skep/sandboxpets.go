package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// outlives is said by the verbs that take a checkpoint.
const outlives = "What is in the folders memory and sessions of its workspace is kept"

// newSandboxPets are the verbs for a sandbox that an agent keeps, as a whole.
func newSandboxPets(c *cli) []*cobra.Command {
	return []*cobra.Command{
		petVerb(c, "recreate", "Make a sandbox that an agent keeps anew, in the newest revision of its environment",
			outlives+", and put back into the new one byte for byte. All else of its workspace and home is deleted, with what the CLI knows of its sessions.",
			(*client.Client).RecreateSandbox, func(s agent.Sandbox) string {
				return fmt.Sprintf("made anew of %s, with %s", s.Environment, keptFiles(s))
			}),
		petVerb(c, "hibernate", "Keep of a sandbox that an agent keeps no more than its memory and its sessions, until its next use",
			outlives+" by the server; the container and its volume are deleted. The next use makes another, and puts it back byte for byte.",
			(*client.Client).HibernateSandbox, func(s agent.Sandbox) string { return "hibernates, with " + keptFiles(s) }),
		petVerb(c, "reset", "Delete all that is kept in a sandbox that an agent keeps",
			"Delete all that is kept in a sandbox that an agent keeps: its workspace, with memory and sessions, its home and its checkpoint. The next use begins with nothing, in the newest revision of its environment.",
			(*client.Client).ResetSandbox, func(agent.Sandbox) string { return "reset: nothing of it is kept" }),
		newSandboxCheckpoint(c),
	}
}

func petVerb(c *cli, verb, short, long string, do func(*client.Client, context.Context, agent.SandboxID) (agent.Sandbox, error), told func(agent.Sandbox) string) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " SANDBOX",
		Short: short,
		Long:  long + "\n\nIt is refused while a run works in it.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := do(cl, cmd.Context(), agent.SandboxID(args[0]))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(s)
			}
			c.printf("%s\n", plain(told(s)))
			return nil
		},
	}
}

// keptFiles tells what a checkpoint has.
func keptFiles(s agent.Sandbox) string {
	if s.Checkpoint.Files == 0 {
		return "nothing kept"
	}
	return fmt.Sprintf("%d files and folders kept (%s)", s.Checkpoint.Files, size(s.Checkpoint.Bytes))
}

func newSandboxCheckpoint(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint SANDBOX",
		Short: "Show what was kept when a sandbox was last made anew, or began to hibernate",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			m, err := cl.SandboxCheckpoint(cmd.Context(), agent.SandboxID(args[0]))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(m)
			}
			c.printFields("sandbox", string(m.Sandbox), "generation", strconv.FormatInt(m.Generation, 10), "environment", m.Environment, "created", when(m.Created),
				"digest", string(m.Digest), "bytes", size(m.Bytes))
			w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "PATH\tSIZE\tSHA256")
			for _, f := range m.Files {
				name, bytes := f.Path, ""
				if f.Target != "" {
					name += " -> " + f.Target
				}
				if f.Type == "file" {
					bytes = size(f.Size)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", plain(name), bytes, f.Digest)
			}
			return w.Flush()
		},
	}
}
