package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newState(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "state",
		Short: "List, read, set and delete keys of an agent's state",
		Long:  "An agent that was granted state keeps keys and values there. Its cells share them; they are gone when it is deleted.",
	})
	cmd.AddCommand(stateVerbs(c, statePlace{
		path: "skep state", args: "AGENT", name: "KEY", example: "hello", of: func(args []string) client.Place { return client.AgentState(args[0]) },
		whole: func(s agent.StateSize) string { return fmt.Sprintf("%d keys in all, %s", s.Keys, size(s.Bytes)) },
	})...)
	return cmd
}

// statePlace is where the verbs about keys and values find them: args names it, of leads there.
type statePlace struct {
	path, args, example string
	name                string // what the help calls a key of it
	of                  func(args []string) client.Place
	whole               func(agent.StateSize) string
}

// n is how many arguments name the place.
func (p statePlace) n() int { return len(strings.Fields(p.args)) }

// examples fills in the beginning of each line, which is a verb with a %s where the place is.
func (p statePlace) examples(lines ...string) string {
	for i, line := range lines {
		lines[i] = "  " + p.path + " " + strings.Replace(line, "%s", p.example, 1)
	}
	return strings.Join(lines, "\n")
}

func stateVerbs(c *cli, p statePlace) []*cobra.Command {
	verbs := []*cobra.Command{newStateList(c, p), newStateGet(c, p), newStateSet(c, p), newStateDelete(c, p)}
	for _, v := range verbs {
		v.ValidArgsFunction = c.complete(placeArgs[:p.n()]...)
	}
	return verbs
}

func newStateList(c *cli, at statePlace) *cobra.Command {
	var p pageFlags
	var r agent.StateRange
	cmd := &cobra.Command{
		Use:     "list " + at.args,
		Short:   "List keys in the order of their bytes",
		Example: at.examples("list %s --prefix user/", "list %s --limit 0 --json > state.json"),
		Args:    cobra.ExactArgs(at.n()),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			all, total, more := []agent.StateEntry{}, agent.StateSize{}, true
			for more && (p.limit == 0 || len(all) < p.limit) {
				r.Limit = agent.MaxPage
				if p.limit > 0 {
					r.Limit = min(p.limit-len(all), agent.MaxPage)
				}
				page, err := cl.ListState(cmd.Context(), at.of(args), r)
				if err != nil {
					return err
				}
				all, total = append(all, page.Items...), page.Size
				r.After, more = page.Next, page.Next != ""
			}
			if c.json {
				return c.printJSON(all)
			}
			if len(all) == 0 {
				c.printEmpty("such keys", "there are "+at.whole(total))
				return nil
			}
			var rows [][]string
			for _, e := range all {
				rows = append(rows, []string{shownKey(e.Key), fmt.Sprint(e.Version), shownValue(e.Value)})
			}
			c.printTable([]string{"KEY", "VERSION", "VALUE"}, rows)
			c.notef("%s\n", at.whole(total))
			return nil
		},
	}
	cmd.Flags().StringVar(&r.Prefix, "prefix", "", "what the keys begin with")
	cmd.Flags().StringVar(&r.Start, "start", "", "the first key")
	cmd.Flags().StringVar(&r.End, "end", "", "the key before which the list ends")
	cmd.Flags().BoolVar(&r.Reverse, "reverse", false, "from the last key to the first")
	p.register(cmd)
	return cmd
}

// shownKey is a key in one line: quoted where it would not be read as it is.
func shownKey(k string) string {
	if q := fmt.Sprintf("%q", k); q != `"`+k+`"` || strings.Contains(k, " ") {
		return q
	}
	return k
}

// shownValue is what fits of a value in one line.
func shownValue(v agent.Payload) string {
	const most = 60
	if !(v.IsJSON() || v.IsText()) || !utf8.Valid(v.Body) {
		return fmt.Sprintf("%s of %s", size(int64(len(v.Body))), v.Type)
	}
	s := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, string(v.Body))), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

func newStateGet(c *cli, at statePlace) *cobra.Command {
	return &cobra.Command{
		Use:   "get " + at.args + " " + at.name,
		Short: "Write the value of a key to stdout",
		Args:  cobra.ExactArgs(at.n() + 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			e, err := cl.State(cmd.Context(), at.of(args), args[at.n()])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(e)
			}
			return c.printBytes(e.Value)
		},
	}
}

func newStateSet(c *cli, at statePlace) *cobra.Command {
	var mediaType string
	var version int64
	cmd := &cobra.Command{
		Use:     "set " + at.args + " " + at.name + " INPUT",
		Short:   "Set a key",
		Long:    "Set a key to a value.\n\n" + inputHelp,
		Example: at.examples(`set %s greeting '"Ciao"'`, "set %s logo @logo.png", "set %s lock mine --if-version 0"),
		Args:    cobra.ExactArgs(at.n() + 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := c.input(args[at.n()+1:], mediaType)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			n, err := cl.SetState(cmd.Context(), at.of(args), args[at.n()], v, ifVersion(cmd, &version))
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"version": n})
			}
			c.printf("set %s, version %d\n", shownKey(args[at.n()]), n)
			return nil
		},
	}
	cmd.Flags().StringVar(&mediaType, "type", "", "media type of the value")
	registerIfVersion(cmd, &version)
	return cmd
}

func newStateDelete(c *cli, at statePlace) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use:   "delete " + at.args + " " + at.name,
		Short: "Delete a key",
		Args:  cobra.ExactArgs(at.n() + 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if err := cl.DeleteState(cmd.Context(), at.of(args), args[at.n()], ifVersion(cmd, &version)); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args[at.n()]})
			}
			c.printf("deleted %s\n", shownKey(args[at.n()]))
			return nil
		},
	}
	registerIfVersion(cmd, &version)
	return cmd
}

func registerIfVersion(cmd *cobra.Command, version *int64) {
	cmd.Flags().Int64Var(version, "if-version", 0, "only if the key has this version, where 0 means that it is not there")
}

func ifVersion(cmd *cobra.Command, version *int64) *int64 {
	if !cmd.Flags().Changed("if-version") {
		return nil
	}
	return version
}
