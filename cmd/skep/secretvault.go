package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skep-dev/skep/agent"
)

// maxSecretInput is more than any value may have, so that the server is what refuses one.
const maxSecretInput = 256 << 10

// secretValue reads a value, from file or from standard input, and returns it as the API takes it.
func (c *cli) secretValue(kind agent.SecretKind, file string) (json.RawMessage, error) {
	b, err := c.readSecret(kind, file)
	if err != nil {
		return nil, err
	}
	defer clear(b)
	if len(b) > maxSecretInput {
		return nil, agent.Errorf(agent.Invalid, "the value is longer than %d bytes", maxSecretInput)
	}
	value := bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(value) == 0:
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "the value is empty", Hint: `pipe it: printf %s "$TOKEN" | skep secret set NAME`}
	case !utf8.Valid(value):
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "the value is not text in UTF-8", Hint: "encode it, such as with base64"}
	case kind == agent.SecretValue:
		return json.Marshal(string(value))
	case !json.Valid(value):
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "the value of a secret of kind " + kind.String() + " is a JSON object, and this is not valid JSON",
			Hint: "skep secret set --help lists its members",
		}
	}
	return bytes.Clone(value), nil
}

func (c *cli) readSecret(kind agent.SecretKind, file string) ([]byte, error) {
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, agent.Wrap(agent.Invalid, err, "read the value")
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxSecretInput+1))
	}
	if in, ok := c.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		what := "value"
		if kind != agent.SecretValue {
			what = "value, JSON on one line"
		}
		fmt.Fprintf(c.stderr, "%s (it is not shown): ", what)
		b, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(c.stderr)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(c.stdin, maxSecretInput+1))
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "read standard input")
	}
	return b, nil
}

func newSecretRollback(c *cli) *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use:     "rollback NAME --version N",
		Short:   "Make an earlier version the current one",
		Example: "  skep secret show github\n  skep secret rollback github --version 3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if version < 1 {
				return usageError("which version? skep secret show %s lists them; name one with --version", args[0])
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := cl.RollbackSecret(cmd.Context(), args[0], version)
			return c.sayChanged(s, err, "rolled back")
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "the version, one of those that are kept")
	return cmd
}

func newSecretRewrap(c *cli) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "rewrap --to KEY",
		Short: "Put all secrets under another vault key, while the server runs",
		Long: `Put all secrets of all apps under another vault key, while the server runs. Values stay encrypted on the way, and agents go on using them.
The file of a file: key is made by the server where there is none; the identity of an age: key is made before, by age-keygen -o FILE. What was
cut off is ended by doing it again, or at the next start. From then on the server must be started with --vault-key KEY.`,
		Example: "  skep secret rewrap --to file:/etc/skep/vault-2.key\n  skep secret rewrap --to hcvault://vault.example.com:8200/transit/keys/skep",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return usageError("to which key? name it with --to")
			}
			key, err := absKey(to)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			done, err := cl.RewrapSecrets(cmd.Context(), key)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(done)
			}
			c.printf("%d secrets with %d versions were put under key %s\nstart the server with --vault-key %s from now on\n", done.Secrets, done.Versions, done.Key, done.Source)
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `KEY`, as skep serve --vault-key takes it, where the server finds it")
	return cmd
}

func newSecretDelete(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete secrets with all their versions",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := cl.DeleteSecret(cmd.Context(), name); err != nil {
					return err
				}
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args})
			}
			c.printf("deleted %s\n", strings.Join(args, ", "))
			return nil
		},
	}
}
