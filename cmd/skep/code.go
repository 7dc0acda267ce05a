package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// codeFlags are those of skep code that are of scripts with tools only.
type codeFlags struct {
	tools          []string
	agent, session string
	detach, quiet  bool
}

func newCode(c *cli) *cobra.Command {
	var expr, lang, function string
	var f codeFlags
	cmd := &cobra.Command{
		Use:   "code [FILE] [INPUT]",
		Short: "Run a script: sealed, or with tools",
		Long: `Run a script and print what its default export returns, or in Python its function main. Console output goes to standard error. FILE
may be - for standard input.

Without --tools it runs once in a cell that is granted nothing, and nothing of it is kept.

With --tools it is code mode: a durable run of an agent, in a cell without network, that may call the tools that are named, of those that
its agent is granted and within the app's policy. The script may be a module, one function, or statements that may await and return. It is
checked against the tools' schemas before it begins. What it does is shown on standard error as it happens. Where a person has to approve
a call, the run waits, and goes on when skep approvals approve has answered. Ctrl-C cancels it.

` + inputHelp,
		Example: `  skep code sums.ts '[1,2,3]'
  skep code -e 'export default () => 6 * 7'
  skep code --tools 'fs.*,git.git_log' report.ts
  skep code --tools '*' -e 'return await tools.search("read a file")'`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			code := client.Code{Code: expr, Language: lang, Function: function}
			if expr == "" {
				if len(args) == 0 {
					return usageError("name a file, or give the code with -e")
				}
				if err := c.readCode(args[0], &code); err != nil {
					return err
				}
				args = args[1:]
			}
			input, err := c.jsonInput(args)
			if err != nil {
				return err
			}
			code.Input = input
			cl, err := c.client()
			if err != nil {
				return err
			}
			if len(f.tools) > 0 || f.agent != "" {
				return c.codeWithTools(cmd.Context(), cl, code, f)
			}
			if f.session != "" || f.detach || f.quiet {
				return usageError("--session, --detach and --quiet belong to --tools")
			}
			result, err := cl.RunCode(cmd.Context(), code)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(result)
			}
			for _, line := range result.Logs {
				io.WriteString(c.stderr, line.Level.String()+": "+line.Message+"\n")
			}
			return c.printBytes(*result.Output)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&expr, "eval", "e", "", "the code itself")
	flags.StringVar(&lang, "lang", "", "ts, js or python; ts unless the file's name says otherwise")
	flags.StringVar(&function, "function", "", "the export to call instead of the default one; not with --tools")
	flags.StringSliceVar(&f.tools, "tools", nil, "`NAMES` of tools that it may call: SERVER.TOOL, SERVER.*, or *")
	flags.StringVar(&f.agent, "agent", "", "with --tools: `AGENT` that it runs for; \"code\", which is made when it is needed, unless given")
	flags.StringVar(&f.session, "session", "", "with --tools: session to run in; a new one unless given")
	flags.BoolVarP(&f.detach, "detach", "d", false, "with --tools: print the run's id and leave it running")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "with --tools: print the result only")
	return cmd
}

// codeWithTools runs a script of code mode and shows what it does.
func (c *cli) codeWithTools(ctx context.Context, cl *client.Client, code client.Code, f codeFlags) error {
	code.Tools, code.Agent, code.Session, code.Wait = f.tools, f.agent, agent.SessionID(f.session), new(int)
	started, err := cl.RunCode(ctx, code)
	if err != nil {
		return err
	}
	return c.begun(ctx, cl, started, f)
}

// begun shows what a run of a script or of a program does and prints its result, or with --detach only which it is.
func (c *cli) begun(ctx context.Context, cl *client.Client, started client.CodeResult, f codeFlags) error {
	if f.detach {
		if c.json {
			return c.printJSON(started)
		}
		c.printf("%s\n", started.Run)
		return nil
	}
	events := c.stderr
	if c.json {
		events = c.stdout
	}
	return c.follow(ctx, cl, agent.Run{ID: started.Run, Session: started.Session}, attachment{events: events, quiet: f.quiet, owned: true})
}

func (c *cli) readCode(name string, code *client.Code) error {
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(c.stdin)
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "read the code", Err: err}
	}
	code.Code = string(b)
	if languages := map[string]string{".js": "js", ".mjs": "js", ".py": "python"}; code.Language == "" {
		code.Language = languages[filepath.Ext(name)]
	}
	return nil
}
