package main

import (
	"context"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// sandboxFlags say what sandbox an agent has.
type sandboxFlags struct {
	environment, cli, command, model, keep, permissions string
	none                                                bool
}

func (f *sandboxFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.environment, "environment", "", "it has a sandbox of this environment: NAME, or NAME@REVISION to stay with one")
	flags.StringVar(&f.cli, "cli", "", "the command-line agent that does its work: "+strings.Join(agent.CLIs(), ", "))
	flags.StringVar(&f.command, "cli-command", "", "with --cli acp, the program that speaks ACP and its arguments")
	flags.StringVar(&f.model, "model", "", "the model that the CLI asks, as @ROUTE or PROVIDER/MODEL; @main unless given")
	flags.StringVar(&f.keep, "keep", "", "pet keeps one sandbox from run to run, cattle has a fresh one for each run; cattle unless given")
	flags.StringVar(&f.permissions, "permissions", "", "who decides what the CLI may do: policy, or all for nobody; policy unless given")
	flags.BoolVar(&f.none, "no-sandbox", false, "it has no sandbox any more")
}

var sandboxFlagNames = []string{"environment", "cli", "cli-command", "model", "keep", "permissions"}

// use returns what the flags say, or nil when none of them was given. What is not named stays as it was.
func (f *sandboxFlags) use(flags *pflag.FlagSet, was *agent.SandboxUse) (*agent.SandboxUse, error) {
	given := false
	for _, name := range sandboxFlagNames {
		given = given || flags.Changed(name)
	}
	if !given {
		return nil, nil
	}
	if f.none {
		return nil, usageError("--no-sandbox takes the sandbox away: give it alone")
	}
	var out agent.SandboxUse
	if was != nil {
		out = *was
	}
	for name, set := range map[string]func() error{
		"environment": func() error { out.Environment = f.environment; return nil },
		"cli":         func() error { out.CLI = f.cli; return nil },
		"cli-command": func() error { out.Command = strings.Fields(f.command); return nil },
		"model":       func() error { out.Model = f.model; return nil },
		"keep":        func() error { return out.Keep.UnmarshalText([]byte(f.keep)) },
		"permissions": func() error { return out.Permissions.UnmarshalText([]byte(f.permissions)) },
	} {
		if !flags.Changed(name) {
			continue
		}
		if err := set(); err != nil {
			return nil, usageError("--%s: %s", name, agent.AsError(err).Msg)
		}
	}
	if out.Environment == "" {
		return nil, usageError("which environment? --environment NAME; skep environment list shows those there are")
	}
	return &out, nil
}

// patch adds to a patch of an agent what the flags change.
func (f *sandboxFlags) patch(ctx context.Context, c *cli, flags *pflag.FlagSet, name string, p *client.AgentPatch) error {
	if f.none {
		p.Sandbox = &agent.SandboxUse{}
		_, err := f.use(flags, nil)
		return err
	}
	probe, err := f.use(flags, &agent.SandboxUse{Environment: "unnamed"})
	if err != nil || probe == nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	a, err := cl.Agent(ctx, name)
	if err != nil {
		return err
	}
	use, err := f.use(flags, a.Sandbox)
	if err == nil && !reflect.DeepEqual(use, a.Sandbox) {
		p.Sandbox = use
	}
	return err
}

// sandboxWords tells what sandbox an agent has.
func sandboxWords(u *agent.SandboxUse) string {
	if u == nil {
		return ""
	}
	out := []string{"environment " + u.Environment}
	if u.CLI != "" {
		out = append(out, "cli "+strings.Join(append([]string{u.CLI}, u.Command...), " "), "model "+or(u.Model, "@main"))
	}
	return strings.Join(append(out, "kept as "+u.Keep.String(), "permissions by "+u.Permissions.String()), ", ")
}

// madeOf says what an agent is made of.
func madeOf(a agent.Agent) string {
	if a.Plugin != "" {
		return "plugin " + a.Plugin
	}
	return sandboxWords(a.Sandbox)
}

func completeSandbox(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("cli", cobra.FixedCompletions(agent.CLIs(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("keep", cobra.FixedCompletions([]string{"pet", "cattle"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("permissions", cobra.FixedCompletions([]string{"policy", "all"}, cobra.ShellCompDirectiveNoFileComp))
}
