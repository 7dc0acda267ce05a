package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newSandbox(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "sandbox",
		Aliases: []string{"sandboxes"},
		Short:   "Open, list and use sandboxes, in which command-line agents work",
		Long: `A sandbox is a container, or another place of a provider's, with no network but the models and hosts that its agent was granted. Runs of an agent that has
one open it by themselves; these verbs look into it, and open one by hand.`,
		Example: "  skep sandbox providers\n  skep sandbox open coder\n  skep sandbox exec 01JQ8... -- make test\n  skep sandbox diff 01JQ8...",
	})
	cmd.AddCommand(newSandboxProviders(c), newSandboxOpen(c), newSandboxList(c), newSandboxShow(c), newSandboxDelete(c), newSandboxExec(c), newSandboxPs(c), newSandboxKill(c),
		newSandboxFile(c), newSandboxBackup(c), newSandboxRestore(c), newSandboxClone(c), newSandboxDiff(c), newSandboxPreview(c))
	cmd.AddCommand(newSandboxPets(c)...)
	return cmd
}

func newSandboxProviders(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "providers",
		Short: "Show where the server can make sandboxes, and what each place has",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			list, err := cl.SandboxProviders(cmd.Context())
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(list)
			}
			if len(list) == 0 {
				c.notef("the server has no sandboxes: start Docker or Podman on its machine, then skep serve --sandbox docker\n")
			}
			for i, p := range list {
				if i > 0 {
					c.printf("\n")
				}
				c.printProvider(p)
			}
			return nil
		},
	}
}

func (c *cli) printProvider(p agent.SandboxProvider) {
	state := "ready"
	if !p.Ready {
		state = "not ready: " + p.Error
	}
	c.printFields("name", p.Name, "state", state, "version", p.Version, "isolation", p.Isolation, "runtimes", strings.Join(p.Runtimes, ", "))
	w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	for _, k := range p.Capabilities {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", k.Name, k.Level, plain(k.Reason))
	}
	_ = w.Flush()
}

func newSandboxOpen(c *cli) *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:   "open AGENT",
		Short: "Open a sandbox of an agent, and print its id once it can be used",
		Long:  "Open a sandbox of an agent, and print its id once it can be used: the one of an agent that keeps its own, else a fresh one, which you delete or which ends by itself when it is idle.",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(agentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			sb, err := cl.OpenSandbox(cmd.Context(), args[0], agent.SessionID(session))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(sb)
			}
			c.printf("%s\n", sb.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "the session whose environment it is to have")
	return cmd
}

func newSandboxList(c *cli) *cobra.Command {
	var of string
	list := func(cl *client.Client, ctx context.Context, page agent.Page) (client.List[agent.Sandbox], error) {
		return cl.Sandboxes(ctx, of, page)
	}
	cmd := listVerb(c, "List sandboxes, newest first", list, table[agent.Sandbox]{
		what: "sandboxes", hint: "a run of an agent with an environment has one; skep sandbox open AGENT opens one", header: []string{"ID", "AGENT", "STATE", "ENVIRONMENT", "PROVIDER", "CREATED", "USED"},
		row: func(s agent.Sandbox) []string {
			return []string{string(s.ID), s.Agent, s.State.String(), s.Environment, s.Provider, when(s.Created), when(s.Used)}
		},
	})
	cmd.Flags().StringVar(&of, "agent", "", "only those of this agent")
	return cmd
}

func newSandboxShow(c *cli) *cobra.Command {
	return showVerb(c, "sandbox", func(cl *client.Client, ctx context.Context, id string) (agent.Sandbox, error) {
		return cl.Sandbox(ctx, agent.SandboxID(id))
	}, func(s agent.Sandbox) []string {
		problem := ""
		if s.Error != nil {
			problem = s.Error.Msg
		}
		return []string{
			"id", string(s.ID), "agent", s.Agent, "state", s.State.String(), "error", problem, "environment", s.Environment, "provider", s.Provider, "kept as", s.Keep.String(),
			"for", s.For, "session", string(s.Session), "run", string(s.Run), "generation", strconv.FormatInt(s.Generation, 10),
			"checkpoint", checkpointOf(s), "created", when(s.Created), "started", when(s.Started), "used", when(s.Used), "expires", when(s.Expires),
		}
	})
}

// checkpointOf tells what is kept of a pet while it hibernates, or was when it was made anew.
func checkpointOf(s agent.Sandbox) string {
	switch {
	case s.Checkpoint.Digest == "":
		return ""
	case s.Checkpoint.Pending:
		return keptFiles(s) + ", " + when(s.Checkpoint.Created) + ", to be put back"
	}
	return keptFiles(s) + ", " + when(s.Checkpoint.Created)
}

func newSandboxDelete(c *cli) *cobra.Command {
	return removeVerb(c, "sandbox", func(cl *client.Client, ctx context.Context, id string) error {
		return cl.DeleteSandbox(ctx, agent.SandboxID(id))
	})
}

func newSandboxExec(c *cli) *cobra.Command {
	var x client.Exec
	var vars []string
	var stdin bool
	cmd := &cobra.Command{
		Use:   "exec SANDBOX -- COMMAND [ARGUMENT...]",
		Short: "Run a program in a sandbox, with its output as it comes",
		Long: `Run a program in a sandbox, with its output as it comes, and end with its exit status, which is 1 when a signal or the timeout has ended it. A single word with
spaces is a line for sh. --background prints the id of the program and leaves it running; skep sandbox ps and kill find it again. --json prints how it has
ended, with the end of its output.`,
		Example: "  skep sandbox exec 01JQ8... -- make test\n  skep sandbox exec 01JQ8... 'ls -l | head'\n  skep sandbox exec 01JQ8... --background -- npm run dev",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if x.Env, err = pairs("var", vars); err != nil {
				return err
			}
			if stdin {
				b, err := io.ReadAll(io.LimitReader(c.stdin, maxExecInput+1))
				if err != nil {
					return err
				}
				if len(b) > maxExecInput {
					return &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitInput, Msg: fmt.Sprintf("standard input has more than %d bytes", maxExecInput), Hint: "skep sandbox file put copies a file into the sandbox"}
				}
				x.Stdin = string(b)
			}
			x.Command = args[1:]
			cl, err := c.client()
			if err != nil {
				return err
			}
			return c.exec(cmd.Context(), cl, agent.SandboxID(args[0]), x)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &agent.Error{Kind: agent.Invalid, Msg: err.Error(), Hint: "a command with flags of its own stands behind --, as in: skep sandbox exec SANDBOX -- ls -l"}
	})
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	flags.StringVar(&x.Dir, "dir", "", "where it runs; the workspace unless given")
	flags.StringArrayVar(&vars, "var", nil, "a variable `NAME=VALUE`; may be given more than once")
	flags.DurationVar(&x.Timeout, "timeout", 0, "how long it may run; 10m unless given")
	flags.BoolVar(&x.Background, "background", false, "leave it running, and print its id")
	flags.BoolVarP(&stdin, "stdin", "i", false, "pass standard input on, up to 512 KB")
	return cmd
}

const maxExecInput = 512 << 10

// exec runs a program and shows its output.
func (c *cli) exec(ctx context.Context, cl *client.Client, id agent.SandboxID, x client.Exec) error {
	if x.Background || c.json {
		res, err := cl.Exec(ctx, id, x)
		if err != nil {
			return err
		}
		switch {
		case !c.json:
			c.printf("process %s\n", res.ID)
			return nil
		case x.Background:
			return c.printJSON(res)
		}
		if err := c.printJSON(res); err != nil || res.Code == 0 {
			return err
		}
		return ended(res.Code)
	}
	process := ""
	for out, err := range cl.ExecStream(ctx, id, x) {
		if err != nil {
			if ctx.Err() != nil && process != "" {
				ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				defer stop()
				_ = cl.SignalProcess(ctx, id, process, "")
				return agent.Errorf(agent.Cancelled, "the program was ended")
			}
			return err
		}
		if out.ID != "" {
			process = out.ID
		}
		if _, err := io.WriteString(c.stdout, out.Stdout); err != nil {
			return err
		}
		if _, err := io.WriteString(c.stderr, out.Stderr); err != nil {
			return err
		}
		if x := out.Exit; x != nil && x.Code != 0 {
			if x.Code < 0 {
				c.notef("%s\n", x)
			}
			return ended(x.Code)
		}
	}
	return nil
}

// ended is the exit status of skep after a program that ended so: 1 when that was by a signal.
func ended(code int) error {
	if code < 0 {
		code = 1
	}
	return exited{code}
}

func newSandboxPs(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "ps SANDBOX",
		Short: "List the programs that were started in a sandbox",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			list, err := cl.SandboxProcesses(cmd.Context(), agent.SandboxID(args[0]))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(list)
			}
			w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tPID\tSTATE\tSTARTED\tCOMMAND")
			for _, p := range list {
				state := "running"
				if p.Ended {
					state = "ended with " + strconv.Itoa(p.Code)
				}
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", plain(p.ID), p.PID, state, when(p.Started), plain(clip(strings.Join(p.Command, " "))))
			}
			return w.Flush()
		},
	}
}

func newSandboxKill(c *cli) *cobra.Command {
	var signal string
	cmd := &cobra.Command{
		Use:   "kill SANDBOX PROCESS",
		Short: "End a program and all that it has started",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.SignalProcess(cmd.Context(), agent.SandboxID(args[0]), args[1], signal); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"signalled": args[1]})
			}
			c.printf("sent %s to %s\n", or(signal, "TERM, then KILL"), args[1])
			return nil
		},
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", "", "its name, such as INT; TERM, followed by KILL, unless given")
	return cmd
}

func newSandboxPreview(c *cli) *cobra.Command {
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "preview SANDBOX PORT",
		Short: "Make a link by which a browser sees what listens at a port of a sandbox",
		Long: `Make a link by which a browser sees what listens at a port of a sandbox. Whoever has the link can use it until it expires. Pages run as of an origin of their own,
without cookies; addresses within them have to be relative.`,
		Example: "  skep sandbox exec 01JQ8... --background -- npm run dev\n  skep sandbox preview 01JQ8... 5173",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.Atoi(args[1])
			if err != nil {
				return usageError("%s is no port: a port is a number from 1 to 65535", args[1])
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			l, err := cl.LinkPort(cmd.Context(), agent.SandboxID(args[0]), port, lasts)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(l)
			}
			c.printf("%s\n", l.URL)
			c.notef("good until %s\n", when(l.Expires))
			return nil
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long it lasts, up to 24h; 1h unless given")
	return cmd
}
