package main

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newModelKey(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "key",
		Short: "Make keys that are good for models alone",
		Long: `A virtual key lets a program ask models, and nothing else: as its OpenAI, Anthropic or Gemini key, with this server as the address. Its calls are counted
for its name, its user and its agent; limits can bound each key.`,
	})
	remove := removeVerb(c, "key", (*client.Client).DeleteModelKey)
	remove.Use, remove.Short = "remove ID", "Remove a key, which stops working at once"
	show := showVerb(c, "key", (*client.Client).ModelKey, keyFields)
	show.Use = "show ID"
	cmd.AddCommand(newKeyCreate(c),
		listVerb(c, "List virtual keys, oldest first, without their values", (*client.Client).ModelKeys, table[agent.ModelKey]{
			what: "keys", hint: "skep model key create NAME",
			header: []string{"ID", "NAME", "BEGINS WITH", "MODELS", "AGENT", "USER", "EXPIRES", "STATE"},
			row: func(k agent.ModelKey) []string {
				return []string{k.ID, k.Name, k.Hint, words(k.Models, "all"), or(k.Agent, "-"), or(k.User, "-"), keyEnd(k), keyState(k)}
			},
		}), show, keySwitch(c, "disable", true), keySwitch(c, "enable", false), remove)
	return cmd
}

func keyEnd(k agent.ModelKey) string {
	if k.Run != "" {
		return "with run " + string(k.Run)
	}
	return or(when(k.Expires), "never")
}

func keyState(k agent.ModelKey) string {
	switch {
	case k.Disabled:
		return "disabled"
	case !k.Expires.IsZero() && !time.Now().Before(k.Expires):
		return "expired"
	}
	return "on"
}

func keyFields(k agent.ModelKey) []string {
	return []string{
		"id", k.ID, "name", k.Name, "begins with", k.Hint, "agent", k.Agent, "session", string(k.Session), "run", string(k.Run), "user", k.User,
		"models", words(k.Models, "all"), "expires", keyEnd(k), "state", keyState(k), "created", when(k.Created),
	}
}

func newKeyCreate(c *cli) *cobra.Command {
	var k client.NewModelKey
	var lives string
	var given bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key and print its value, this once",
		Long: `Make a virtual key and print its value, this once. With --value-stdin the key has a value that clients have already, of at least 10 bytes, which is read from
standard input.`,
		Example: "  export OPENAI_API_KEY=$(skep model key create laptop --models @cheap --expires 30d)",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.Name = args[0]
			if lives != "" {
				d, err := readSpan("expires", lives)
				if err != nil {
					return err
				}
				k.Expires = time.Now().Add(d)
			}
			if given {
				b, err := c.secretValue(agent.SecretValue, "")
				if err != nil {
					return err
				}
				if err := json.Unmarshal(b, &k.Value); err != nil {
					return err
				}
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			out, err := cl.CreateModelKey(cmd.Context(), k)
			if err != nil {
				return err
			}
			if given {
				out.Value = ""
			}
			switch {
			case c.json:
				return c.printJSON(out)
			case given:
				c.printf("made key %s (%s)\n", out.Name, out.ID)
			default:
				c.printf("%s\n", out.Value)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&k.Models, "models", nil, "what it may ask for: @ROUTE or PROVIDER/MODEL, with *; all unless given")
	f.StringVar(&k.Agent, "agent", "", "on whose behalf it calls")
	f.StringVar((*string)(&k.Run), "run", "", "run that it dies with")
	f.StringVar((*string)(&k.Session), "session", "", "session that its calls are counted for")
	f.StringVar(&k.User, "user", "", "whom its calls are counted for; a request may not say otherwise")
	f.StringVar(&lives, "expires", "", "how long it works, such as 12h or 30d; for ever unless given")
	f.BoolVar(&given, "value-stdin", false, "read its value from standard input, and do not draw one")
	return cmd
}

func keySwitch(c *cli, verb string, disabled bool) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " ID",
		Short: strings.ToUpper(verb[:1]) + verb[1:] + " a key",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			k, err := cl.UpdateModelKey(cmd.Context(), args[0], client.ModelKeyPatch{Disabled: &disabled})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(k)
			}
			c.printf("%sd key %s\n", verb, k.Name)
			return nil
		},
	}
}
