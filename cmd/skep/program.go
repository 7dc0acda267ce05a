package main

import (
	"encoding/json"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/tools/program"
)

func newProgram(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "program",
		Aliases: []string{"programs"},
		Short:   "Run bounded programs of tool calls, which are JSON",
		Long: `A program is JSON that lists, reads, searches, compares, repeats and decides by calling tools, and changes things only in change sets
that a person approves as a whole. Models that should not write code can write these.`,
		Example: "  skep program check todos.json\n  skep program run todos.json '{\"dir\":\"/notes\"}'\n  skep program schema",
	})
	cmd.AddCommand(newProgramRun(c), newProgramCheck(c), newProgramSchema(c))
	return cmd
}

func newProgramRun(c *cli) *cobra.Command {
	var f codeFlags
	cmd := &cobra.Command{
		Use:   "run FILE [INPUT]",
		Short: "Check a program, run it, and print what it returns",
		Long: `Check a program, run it, and print what it returns. FILE may be - for standard input. It is a durable run of an agent, which may call the
tools that its agent is granted, within the app's policy. Where a person has to approve something, the run waits, and goes on when skep approvals
approve has answered. Ctrl-C cancels it.

` + inputHelp,
		Example: "  skep program run todos.json '{\"dir\":\"/notes\"}'\n  skep program run --detach todos.json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := c.readProgram(args[0])
			if err != nil {
				return err
			}
			input, err := c.jsonInput(args[1:])
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			started, err := cl.RunProgram(cmd.Context(), client.Program{
				Program: text, Input: input, Agent: f.agent, Session: agent.SessionID(f.session), Wait: new(int),
			})
			if err != nil {
				return err
			}
			return c.begun(cmd.Context(), cl, started, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "`AGENT` that it runs for; \"code\", which is made when it is needed, unless given")
	flags.StringVar(&f.session, "session", "", "session to run in; a new one unless given")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the run's id and leave it running")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print the result only")
	return cmd
}

// readProgram reads a program and checks it by itself, so that mistakes are told where no server is needed to find them.
func (c *cli) readProgram(name string) (json.RawMessage, error) {
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(io.LimitReader(c.stdin, program.MaxBytes+1))
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "read the program", Err: err}
	}
	if _, err := program.Parse(b); err != nil {
		if e := agent.AsError(err); e.Pos.File != "" && name != "-" {
			e.Pos.File = name
		}
		return nil, err
	}
	return b, nil
}

func newProgramCheck(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check a program, and the tools that it calls; run nothing",
		Example: "  skep program check todos.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := c.readProgram(args[0])
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			checked, err := cl.CheckProgram(cmd.Context(), text)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(checked)
			}
			c.printf("the program is right; it has %s steps\n", strconv.Itoa(checked.Steps))
			var rows [][]string
			for _, t := range checked.Tools {
				rows = append(rows, []string{plain(t.Name), t.Effect.String()})
			}
			if len(rows) > 0 {
				c.printTable([]string{"TOOL", "EFFECT"}, rows)
			}
			return nil
		},
	}
}

func newProgramSchema(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of programs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := c.stdout.Write(program.Schema())
			return err
		},
	}
}
