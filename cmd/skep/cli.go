package main

import (
	"io"

	"github.com/spf13/cobra"
)

// cli is what every verb shares: the standard streams and the global flags.
type cli struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	json             bool
	url, token, data string
	app              string
}

const longHelp = `Skep runs agents: code that a person or a model wrote, each call sealed in a WebAssembly cell of its own.

Start a server, then push code to it and call it:

  skep serve                          start a server on this machine
  skep new hello --lang ts            make a project
  skep dev hello/agent.ts             push it again at every save
  skep call hello greet '{"name":"Ada"}'

Clients find the server by SKEP_URL and SKEP_TOKEN, else by the data directory of the server on this machine.`

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:           "skep",
		Short:         "An agent cloud in one binary",
		Long:          longHelp,
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,

		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noVerb(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError("%v", err) })
	flags := root.PersistentFlags()
	flags.BoolVar(&c.json, "json", false, "print JSON, errors included")
	flags.StringVar(&c.url, "url", "", "the server's address (SKEP_URL)")
	flags.StringVar(&c.token, "token", "", "access token (SKEP_TOKEN)")
	flags.StringVar(&c.app, "app", "", "the app it is about (SKEP_APP); the token's, else default, unless given")
	flags.StringVar(&c.data, "data", "", "data directory of the server on this machine (SKEP_DATA)")

	root.AddCommand(
		newServe(c), newDemo(c), newDev(c), newNew(c), newPush(c), newPlugins(c), newAgent(c), newState(c), newCall(c), newCode(c), newRun(c), newChat(c), newLogs(c),
		newInstance(c), newAlarm(c), newTools(c), newPolicy(c), newApprovals(c), newProgram(c), newInspect(c), newReplay(c), newSessions(c), newFile(c), newSkill(c), newSandbox(c), newEnvironment(c), newImage(c),
		newApp(c), newModel(c), newSecret(c), newToken(c), newUsage(c), newAudit(c), newBackup(c), newRestore(c), newDoctor(c), newVersion(c), newWorker(), newDriver(),
	)
	for _, verb := range root.Commands() {
		tidyUsage(verb)
	}
	return root
}

// shortNames has the names that verbs have beside their own.
var shortNames = map[string]string{"list": "ls", "delete": "rm"}

// tidyUsage makes a wrong number of arguments a usage error that shows the right line, for verb and its sub-verbs, and gives them
// their short names.
func tidyUsage(verb *cobra.Command) {
	if s, ok := shortNames[verb.Name()]; ok {
		verb.Aliases = append(verb.Aliases, s)
	}
	if check := verb.Args; check != nil {
		verb.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError("%v; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, sub := range verb.Commands() {
		tidyUsage(sub)
	}
}

// shelf is a verb that only holds others: alone it shows its help, and a word it does not know is a usage error.
func shelf(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return noVerb(cmd, args[0])
		}
		return cmd.Help()
	}
	return cmd
}
