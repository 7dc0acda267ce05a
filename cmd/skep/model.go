package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newModel(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "model",
		Short: "Ask models; set providers, routes, limits, guardrails and keys",
		Long: `The model gateway takes what agents and programs ask models to who serves them. A provider is who serves models, with keys that are secrets. A
route is a name such as @cheap for an ordered list of models, one of which answers. A key is good for models alone, so that a program needs no token.`,
	})
	cmd.AddCommand(newModelList(c), newModelAsk(c), newModelTest(c), newModelProvider(c), newModelRoute(c), newModelLimit(c), newModelGuard(c), newModelKey(c), newModelRecord(c), newModelLog(c))
	return cmd
}

func newModelList(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List what may be asked for: routes, and models that providers say they have",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			all, err := cl.Models(cmd.Context())
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(all)
			}
			if len(all) == 0 {
				c.printEmpty("models", "skep model provider add openai --key-stdin")
				return nil
			}
			var rows [][]string
			for _, m := range all {
				rows = append(rows, []string{m.ID, or(m.Provider, "-"), m.Title})
			}
			c.printTable([]string{"MODEL", "PROVIDER", "TITLE"}, rows)
			return nil
		},
	}
}

func newModelAsk(c *cli) *cobra.Command {
	var q client.ModelAsk
	cmd := &cobra.Command{
		Use:   "ask MODEL [TEXT...]",
		Short: "Ask a model, and print what it says as it comes",
		Long: `Ask a model, and print what it says as it comes. MODEL is a route as @NAME, a model as PROVIDER/MODEL, or a name that leads to one. Without a text, or
with -, the question is read from standard input.`,
		Example: "  skep model ask @cheap 'Why do bees dance?'\n  skep model ask openai/gpt-4o --system 'Answer in one word.' - < question.txt",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Model, q.Text = args[0], strings.Join(args[1:], " ")
			if q.Text == "" || q.Text == "-" {
				b, err := io.ReadAll(io.LimitReader(c.stdin, 16<<20))
				if err != nil {
					return err
				}
				if q.Text = string(b); strings.TrimSpace(q.Text) == "" {
					return usageError("what is the question? write skep model ask MODEL TEXT")
				}
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			var each func(string) error
			if !c.json {
				each = func(piece string) error {
					_, err := io.WriteString(c.stdout, piece)
					return err
				}
			}
			a, err := cl.AskModel(cmd.Context(), q, each)
			if !c.json && a.Text != "" && !strings.HasSuffix(a.Text, "\n") {
				c.printf("\n")
			}
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(a)
			}
			if a.Stop == "length" {
				c.notef("the answer is cut off: it is as long as it may be (--max-tokens)\n")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&q.System, "system", "", "how it shall answer")
	cmd.Flags().StringVar(&q.User, "user", "", "whom the call is counted for")
	cmd.Flags().Int64Var(&q.MaxTokens, "max-tokens", 0, "longest answer, in tokens; what the provider allows unless given")
	return cmd
}

func newModelTest(c *cli) *cobra.Command {
	var model string
	cmd := &cobra.Command{
		Use:   "test PROVIDER",
		Short: "Ask a provider for a word, to see that it answers",
		Long: `Make one small call to a provider, to see that its address, its key and its protocol are right. The call is counted like any other. A provider
that does not say which models it has needs --model.`,
		Example: "  skep model test openai --model gpt-4o-mini",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if model == "" {
				p, err := cl.Provider(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				for _, m := range p.Models {
					if !strings.Contains(m, "*") {
						model = m
						break
					}
				}
				if model == "" {
					return usageError("provider %s names no model: say which with --model", args[0])
				}
			}
			began := time.Now()
			a, err := cl.AskModel(cmd.Context(), client.ModelAsk{Model: args[0] + "/" + model, Text: "Answer with the word: ok", MaxTokens: 64}, nil)
			if err != nil {
				return err
			}
			took := time.Since(began)
			if c.json {
				return c.printJSON(map[string]any{"provider": args[0], "model": a.Model, "text": a.Text, "input": a.Input, "output": a.Output, "took": took})
			}
			c.printf("%s answers: %s\n", args[0], strconv.Quote(a.Text))
			c.printFields("model", a.Model, "tokens", fmt.Sprintf("%d in, %d out", a.Input, a.Output), "took", lasting(took))
			return nil
		},
	}
	cmd.Flags().StringVar(&model, "model", "", "which of its models to ask; the first that it names unless given")
	return cmd
}

// removeVerb is the verb that deletes a record.
func removeVerb(c *cli, what string, remove func(*client.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a " + what,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := remove(cl, cmd.Context(), strings.TrimPrefix(args[0], "@")); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"removed": args})
			}
			c.printf("removed %s %s\n", what, args[0])
			return nil
		},
	}
}

// showVerb is the verb that shows a record; fields are for a person.
func showVerb[T any](c *cli, what string, show func(*client.Client, context.Context, string) (T, error), fields func(T) []string) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a " + what,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			v, err := show(cl, cmd.Context(), strings.TrimPrefix(args[0], "@"))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(v)
			}
			c.printFields(fields(v)...)
			return nil
		},
	}
}

// fromFile reads a record from a JSON file into v, when there is a file.
func fromFile(path string, v any) error {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return agent.Wrap(agent.Invalid, err, "read "+path)
	}
	return nil
}

func words(list []string, none string) string { return or(strings.Join(list, ", "), none) }

// readSpan reads a time that may be in days, such as 30d.
func readSpan(flag, s string) (time.Duration, error) {
	if digits, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n > 0 && n < 100_000 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, usageError("--%s %s: write a time such as 90s, 24h or 30d", flag, s)
	}
	return d, nil
}

// dollars reads an amount of money as millionths of a dollar.
func dollars(flag, s string) (int64, error) {
	whole, part, _ := strings.Cut(strings.TrimPrefix(s, "$"), ".")
	if whole+part != "" && len(part) <= 6 {
		n, err := strconv.ParseUint(or(whole, "0"), 10, 64)
		micro, err2 := strconv.ParseUint(part+strings.Repeat("0", 6-len(part)), 10, 64)
		if err == nil && err2 == nil && n < 1e12 {
			return int64(n*1_000_000 + micro), nil
		}
	}
	return 0, usageError("--%s %s: write dollars, such as 5 or 0.25; a millionth is the least", flag, s)
}

// money writes millionths of a dollar.
func money(micro int64) string {
	s := fmt.Sprintf("%d.%06d", micro/1_000_000, micro%1_000_000)
	for strings.HasSuffix(s, "0") && len(s)-strings.IndexByte(s, '.') > 3 {
		s = s[:len(s)-1]
	}
	return "$" + s
}
