package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newSecret(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "secret",
		Short: "Set, bind and rotate secrets, which agents use and nobody reads",
		Long: `A secret is a value that agents may put into requests without ever seeing it. It goes only to the hosts and places that it is bound to,
for agents that were granted it. There is no way to read it back.`,
	})
	cmd.AddCommand(newSecretSet(c), newSecretList(c), newSecretShow(c), newSecretBind(c), newSecretRollback(c), newSecretRewrap(c), newSecretDelete(c))
	return cmd
}

// bindingFlags say where a secret may go.
type bindingFlags struct {
	to, in, bind []string
	description  string
}

func (f *bindingFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.to, "to", nil, "`TARGET` of requests it may go into, such as 'https://api.example.com/v1/**'; may be given more than once")
	flags.StringArrayVar(&f.in, "in", nil, "`PLACE` in those of --to: header:NAME, query:NAME, body:NAME or body:/JSON/POINTER; header:authorization unless given")
	flags.StringArrayVar(&f.bind, "bind", nil, "both at once: `'TARGET PLACE...'`; may be given more than once")
	flags.StringVar(&f.description, "description", "", "what it is for")
}

// bindings returns what the flags say, or nil when they say nothing.
func (f *bindingFlags) bindings() (*[]agent.Binding, error) {
	texts := slices.Clone(f.bind)
	for _, to := range f.to {
		texts = append(texts, strings.Join(append([]string{to}, f.in...), " "))
	}
	if len(f.in) > 0 && len(f.to) == 0 {
		return nil, usageError("--in says where in the requests of --to, which is not there")
	}
	if len(texts) == 0 {
		return nil, nil
	}
	bs := make([]agent.Binding, len(texts))
	for i, text := range texts {
		if err := bs[i].UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
	}
	return &bs, nil
}

func (f *bindingFlags) describe(flags *pflag.FlagSet) *string {
	if !flags.Changed("description") {
		return nil
	}
	return &f.description
}

func newSecretSet(c *cli) *cobra.Command {
	var f bindingFlags
	var kind, file string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Give a secret a new value, read from standard input",
		Long: `Give a secret a new value, which becomes its next version. The value is read from standard input, or typed without an echo on a terminal;
one newline at its end is left out. It is never an argument. The value of a typed secret is a JSON object of strings:

  basic       username, password
  aws         access_key_id, secret_access_key; session_token, region and service may be left out
  github_app  app_id, installation_id, private_key; api_url may be left out
  oauth       token_url, client_id, client_secret; scope and audience may be left out

Without --to or --bind a secret keeps its bindings; a new one is bound to nothing, and goes nowhere.`,
		Example: `  printf %s "$TOKEN" | skep secret set github --to 'https://api.github.com/**'
  skep secret set maps --bind 'GET https://maps.example.com query:key' --from-file key.txt
  skep secret set shop --kind basic --to https://shop.example.com < login.json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := onlyName(args); err != nil {
				return err
			}
			s := client.NewSecret{Description: f.describe(cmd.Flags())}
			if cmd.Flags().Changed("kind") {
				if err := s.Kind.UnmarshalText([]byte(kind)); err != nil || s.Kind == agent.UnknownSecret {
					return usageError("--kind %s: use value, basic, aws, github_app or oauth", kind)
				}
			}
			var err error
			if s.Bindings, err = f.bindings(); err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			if s.Kind == agent.UnknownSecret {
				s.Kind = agent.SecretValue
				was, err := cl.Secret(cmd.Context(), args[0])
				if err == nil {
					s.Kind = was.Kind
				} else if agent.KindOf(err) != agent.NotFound {
					return err
				}
			}
			if s.Value, err = c.secretValue(s.Kind, file); err != nil {
				return err
			}
			out, err := cl.SetSecret(cmd.Context(), args[0], s)
			clear(s.Value)
			return c.sayChanged(out, err, "set")
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&kind, "kind", "", "value, basic, aws, github_app or oauth; what it is already, else value, unless given")
	cmd.Flags().StringVar(&file, "from-file", "", "read the value from `FILE` instead")
	return cmd
}

// onlyName takes one argument. What else is given may be the value, and is not repeated.
func onlyName(args []string) error {
	if len(args) > 1 {
		return &agent.Error{
			Kind: agent.Invalid, Msg: "a secret's value is never an argument: it would be in the shell's history, and every user of this machine could see it",
			Hint: "pipe it: printf %s \"$TOKEN\" | skep secret set NAME; and count that value as known to others if it was a real one",
		}
	}
	if len(args) == 0 {
		return usageError("which secret? write skep secret set NAME")
	}
	return nil
}

// sayChanged prints a secret that was changed.
func (c *cli) sayChanged(s client.SecretDetail, err error, done string) error {
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(s)
	}
	c.printf("%s secret %s, version %d is current\n", done, s.Name, s.Version)
	if len(s.Bindings) == 0 {
		c.printf("it is bound to nothing and goes nowhere: skep secret bind %s --to https://...\n", s.Name)
	} else if done == "set" && s.Version == 1 {
		c.printf("an agent may use it once it is granted: skep agent update AGENT --grant-secret %s\n", s.Name)
	}
	return nil
}

func newSecretList(c *cli) *cobra.Command {
	return listVerb(c, "List secrets, newest first, without their values", (*client.Client).Secrets, table[agent.Secret]{
		what: "secrets", hint: "skep secret set NAME makes one", header: []string{"NAME", "KIND", "VERSION", "UPDATED", "BOUND TO"},
		row: func(s agent.Secret) []string {
			return []string{s.Name, s.Kind.String(), strconv.Itoa(s.Version), when(s.Updated), bindingWords(s.Bindings)}
		},
	})
}

func bindingWords(bs []agent.Binding) string {
	texts := make([]string, len(bs))
	for i, b := range bs {
		texts[i] = b.String()
	}
	return or(strings.Join(texts, "; "), "nothing")
}

func newSecretShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show what a secret is bound to and its versions, without their values",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := cl.Secret(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(s)
			}
			c.printFields("name", s.Name, "description", s.Description, "kind", s.Kind.String(), "bound to", bindingWords(s.Bindings),
				"created", when(s.Created), "updated", when(s.Updated))
			var rows [][]string
			for _, v := range s.Versions {
				current := ""
				if v.Version == s.Version {
					current = "current"
				}
				rows = append(rows, []string{strconv.Itoa(v.Version), v.Kind.String(), when(v.Created), v.Key, current})
			}
			c.printTable([]string{"VERSION", "KIND", "CREATED", "VAULT KEY", ""}, rows)
			return nil
		},
	}
}

func newSecretBind(c *cli) *cobra.Command {
	var f bindingFlags
	var nowhere bool
	cmd := &cobra.Command{
		Use:   "bind NAME",
		Short: "Change where a secret may go; its value stays",
		Long:  "Change where a secret may go. All its bindings are replaced; its value stays.",
		Example: `  skep secret bind github --to 'https://api.github.com/**' --to 'https://uploads.github.com/**'
  skep secret bind maps --bind 'GET https://maps.example.com query:key'
  skep secret bind old --nowhere`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			patch := client.SecretPatch{Description: f.describe(cmd.Flags())}
			var err error
			if patch.Bindings, err = f.bindings(); err != nil {
				return err
			}
			if nowhere {
				if patch.Bindings != nil {
					return usageError("--nowhere and a binding say different things")
				}
				patch.Bindings = &[]agent.Binding{}
			}
			if patch == (client.SecretPatch{}) {
				return usageError("nothing to change: name at least one of --to, --bind, --nowhere, --description")
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := cl.UpdateSecret(cmd.Context(), args[0], patch)
			if err == nil && nowhere && !c.json {
				c.printf("secret %s goes nowhere any more\n", s.Name)
				return nil
			}
			return c.sayChanged(s, err, "changed")
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&nowhere, "nowhere", false, "bind it to nothing")
	return cmd
}
