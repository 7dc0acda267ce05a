package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newEnvironment(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "environment",
		Aliases: []string{"environments", "env"},
		Short:   "Set, list, show and delete environments of sandboxes",
		Long: `An environment is a template of sandboxes: an image, a setup script, variables, what may be reached, sizes. Each change is a new revision; a session stays
with the one that it has begun with.`,
		Example: "  skep environment set work --image skep/agents --setup setup.sh\n  skep environment show work@1",
	})
	cmd.AddCommand(newEnvironmentSet(c),
		listVerb(c, "List environments in their newest revisions, by name", (*client.Client).Environments, environmentTable()),
		newRevisions(c),
		showVerb(c, "environment", (*client.Client).Environment, environmentFields),
		removeVerb(c, "environment", (*client.Client).DeleteEnvironment))
	return cmd
}

func environmentTable() table[agent.Environment] {
	return table[agent.Environment]{
		what: "environments", hint: "skep environment set NAME --image IMAGE makes one", header: []string{"NAME", "IMAGE", "PROVIDER", "CREATED", "DESCRIPTION"},
		row: func(e agent.Environment) []string {
			return []string{e.Ref(), e.Image, or(e.Provider, "-"), when(e.Created), e.Description}
		},
	}
}

func newRevisions(c *cli) *cobra.Command {
	return listOf(c, "revisions NAME", "List the revisions of an environment, oldest first",
		func(cl *client.Client, ctx context.Context, args []string, page agent.Page) (client.List[agent.Environment], error) {
			return cl.EnvironmentRevisions(ctx, args[0], page)
		}, environmentTable())
}

func environmentFields(e agent.Environment) []string {
	var vars, network []string
	for _, name := range slices.Sorted(maps.Keys(e.Variables)) {
		vars = append(vars, name+"="+e.Variables[name])
	}
	for _, t := range e.Network {
		network = append(network, t.String())
	}
	return []string{
		"name", e.Name, "revision", strconv.FormatInt(e.Revision, 10), "description", e.Description, "image", e.Image, "provider", e.Provider, "runtime", e.Runtime,
		"packages", strings.Join(e.Packages, ", "), "setup", e.Setup, "variables", strings.Join(vars, ", "), "may reach", or(strings.Join(network, ", "), "models only"), "requires", strings.Join(e.Requires, ", "),
		"size", sandboxSize(e.Size), "idle", cmp.Or(e.Idle, agent.DefaultSandboxIdle).String(), "life", sandboxLife(e.Life), "created", when(e.Created),
	}
}

func sandboxLife(d time.Duration) string {
	if d == 0 {
		return agent.DefaultSandboxLife.String() + "; of a pet without end"
	}
	return d.String()
}

func sandboxSize(s agent.SandboxSize) string {
	return fmt.Sprintf("memory %s, %s processors, %d processes, disk %s", size(cmp.Or(s.Memory, agent.DefaultSandboxMemory)),
		strconv.FormatFloat(cmp.Or(s.CPUs, agent.DefaultSandboxCPUs), 'g', -1, 64), cmp.Or(s.Pids, agent.DefaultSandboxPids), size(cmp.Or(s.Disk, agent.DefaultSandboxDisk)))
}

func newEnvironmentSet(c *cli) *cobra.Command {
	var env agent.Environment
	var file, setup, memory, disk string
	var vars, network []string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make an environment, or its next revision",
		Long: `Make an environment, or its next revision; what is not named stays as it is, and what is named empty, as in --require "", is taken away. --network lets
what runs in a sandbox reach a target, as far as its agent is granted that, too. --file takes all of it as JSON, as skep environment show --json prints it.`,
		Example: "  skep environment set work --image skep/agents\n  skep environment set work --setup setup.sh --var NODE_ENV=test --memory 4GB --network https://api.example.com",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			out, err := cl.Environment(cmd.Context(), args[0])
			if err != nil && agent.KindOf(err) != agent.NotFound {
				return err
			}
			if err := fromFile(file, &out); err != nil {
				return err
			}
			out.Name = args[0]
			flags := cmd.Flags()
			for flag, set := range map[string]func() error{
				"image":       func() error { out.Image = env.Image; return nil },
				"description": func() error { out.Description = env.Description; return nil },
				"provider":    func() error { out.Provider = env.Provider; return nil },
				"runtime":     func() error { out.Runtime = env.Runtime; return nil },
				"package":     func() error { out.Packages = filled(env.Packages); return nil },
				"require":     func() error { out.Requires = filled(env.Requires); return nil },
				"cpus":        func() error { out.Size.CPUs = env.Size.CPUs; return nil },
				"pids":        func() error { out.Size.Pids = env.Size.Pids; return nil },
				"idle":        func() error { out.Idle = env.Idle; return nil },
				"life":        func() error { out.Life = env.Life; return nil },
				"memory":      func() (err error) { out.Size.Memory, err = sizeFlag("memory", memory); return err },
				"disk":        func() (err error) { out.Size.Disk, err = sizeFlag("disk", disk); return err },
				"var":         func() (err error) { out.Variables, err = pairs("var", filled(vars)); return err },
				"network":     func() (err error) { out.Network, err = targets("network", filled(network)); return err },
				"setup": func() error {
					if setup == "" {
						out.Setup = ""
						return nil
					}
					b, err := os.ReadFile(setup)
					if err != nil {
						return &agent.Error{Kind: agent.Invalid, Msg: "cannot read the setup script " + setup, Err: err}
					}
					out.Setup = string(b)
					return nil
				},
			} {
				if !flags.Changed(flag) {
					continue
				}
				if err := set(); err != nil {
					return err
				}
			}
			if out.Image == "" {
				return usageError("which image? --image IMAGE; skep image build makes one, skep image list shows those there are")
			}
			was := out.Revision
			if out, err = cl.PutEnvironment(cmd.Context(), out); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			if out.Revision == was {
				c.printf("environment %s is as it was\n", out.Ref())
				return nil
			}
			c.printf("environment %s\n", out.Ref())
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&env.Image, "image", "", "what a sandbox is made of")
	flags.StringVar(&env.Description, "description", "", "what it is for")
	flags.StringVar(&env.Provider, "provider", "", "docker, podman or kubernetes; the server's first unless given")
	flags.StringVar(&env.Runtime, "runtime", "", "of the provider's, such as runsc")
	flags.StringArrayVar(&env.Packages, "package", nil, "a `PACKAGE` that the image has to have, else no sandbox is made of it: deb:NAME, npm:NAME@VERSION, or npm:NAME for any version; may be given more than once")
	flags.StringArrayVar(&env.Requires, "require", nil, "a `CAPABILITY` that has to be enforced, as skep sandbox providers names them; may be given more than once")
	flags.StringVar(&setup, "setup", "", "a script for sh, run in the workspace before any work: a `FILE`")
	flags.StringArrayVar(&vars, "var", nil, "a variable `NAME=VALUE` of what runs in it, never a secret; may be given more than once")
	flags.StringArrayVar(&network, "network", nil, "a `TARGET` that may be reached, such as https://api.example.com; may be given more than once")
	flags.StringVar(&memory, "memory", "", "such as 4GB; 2GB unless given")
	flags.StringVar(&disk, "disk", "", "of the workspace, the home and /tmp together; 1GB unless given")
	flags.Float64Var(&env.Size.CPUs, "cpus", 0, "processors; 2 unless given")
	flags.Int64Var(&env.Size.Pids, "pids", 0, "processes and threads; 512 unless given")
	flags.DurationVar(&env.Idle, "idle", 0, "how long a sandbox stays that nobody uses; 30m unless given")
	flags.DurationVar(&env.Life, "life", 0, "the longest that a sandbox is there; 24h unless given, for a pet without end")
	flags.StringVar(&file, "file", "", "JSON `FILE` with all of it; - is standard input")
	return cmd
}

// filled drops empty values: a flag that is given once, and empty, stands for an empty list.
func filled(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// sizeFlag reads a size; "" is 0, for the default.
func sizeFlag(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := parseSize(s)
	if err != nil || n < 0 {
		return 0, usageError("--%s %s: write a number of bytes, with MB or GB", flag, s)
	}
	return n, nil
}

func targets(flag string, list []string) ([]agent.Target, error) {
	var out []agent.Target
	for _, s := range list {
		t, err := agent.ParseTarget(s)
		if err != nil {
			return nil, usageError("--%s %s: %s", flag, s, agent.AsError(err).Msg)
		}
		out = append(out, t)
	}
	return out, nil
}
