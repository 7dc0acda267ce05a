package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newModelRoute(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "route",
		Short: "Name ordered lists of models, one of which answers",
	})
	cmd.AddCommand(newRouteSet(c),
		listVerb(c, "List routes to models, by name", (*client.Client).ModelRoutes, table[agent.ModelRoute]{
			what: "routes", hint: "skep model route set cheap PROVIDER/MODEL",
			header: []string{"NAME", "MODELS", "ALSO ASKED FOR AS", "CACHE"},
			row: func(r agent.ModelRoute) []string {
				return []string{"@" + r.Name, candidates(r), words(r.Models, "-"), cacheWords(r)}
			},
		}),
		showVerb(c, "route", (*client.Client).ModelRoute, func(r agent.ModelRoute) []string {
			var over []string
			for _, f := range r.FailOver {
				over = append(over, f.String())
			}
			first := "asked in order"
			if r.Weighted {
				first = "the first is drawn by weight"
			}
			return []string{
				"name", "@" + r.Name, "description", r.Description, "models", candidates(r), "order", first, "also asked for as", strings.Join(r.Models, ", "),
				"attempts", strconv.Itoa(r.Attempts), "fail over", strings.Join(over, ", "), "cache", cacheWords(r),
				"revision", strconv.FormatInt(r.Revision, 10), "changed", when(r.Changed),
			}
		}),
		removeVerb(c, "route", (*client.Client).DeleteModelRoute))
	return cmd
}

func candidates(r agent.ModelRoute) string {
	var list []string
	for _, k := range r.Candidates {
		s := strings.TrimSuffix(k.Provider+"/"+k.Model, "/")
		if k.Weight > 1 {
			s += "=" + strconv.Itoa(k.Weight)
		}
		if k.When != nil {
			s += " (when it fits)"
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

func cacheWords(r agent.ModelRoute) string {
	if r.Cache == 0 {
		return "off"
	}
	return r.Cache.String()
}

func newRouteSet(c *cli) *cobra.Command {
	var r agent.ModelRoute
	var file, cache string
	var over, weights []string
	cmd := &cobra.Command{
		Use:   "set NAME [PROVIDER/MODEL...]",
		Short: "Make a route, or replace one",
		Long: `Make a route, or replace one. It is asked for as @NAME. The models are asked in their order: the next one when a provider is out of room or order before it
has said anything. --file takes what flags have no word for, such as conditions, as skep model route show --json prints it.`,
		Example: "  skep model route set cheap groq/llama-3.1-8b-instant openai/gpt-4o-mini\n  skep model route set ab openai/gpt-4o anthropic/claude-sonnet-4-5 --weighted --weight openai/gpt-4o=9 --cache 1h",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			var err error
			out := agent.ModelRoute{}
			if err := fromFile(file, &out); err != nil {
				return err
			}
			if len(args) > 1 {
				out.Candidates = nil
			}
			for _, s := range args[1:] {
				provider, model, _ := strings.Cut(s, "/")
				out.Candidates = append(out.Candidates, agent.Candidate{Provider: provider, Model: model})
			}
			for _, s := range weights {
				at := strings.LastIndexByte(s, '=')
				n, err := strconv.Atoi(s[at+1:])
				found := false
				for i := range out.Candidates {
					k := &out.Candidates[i]
					if at > 0 && err == nil && strings.TrimSuffix(k.Provider+"/"+k.Model, "/") == s[:at] {
						k.Weight, found = n, true
					}
				}
				if !found {
					return usageError("--weight %s: write PROVIDER/MODEL=NUMBER of one of the route's models", s)
				}
			}
			if len(out.Candidates) == 0 {
				return usageError("which models? write skep model route set NAME PROVIDER/MODEL...")
			}
			for flag, set := range map[string]func(){
				"models": func() { out.Models = r.Models }, "weighted": func() { out.Weighted = r.Weighted }, "attempts": func() { out.Attempts = r.Attempts },
				"cache-tools": func() { out.CacheTools = r.CacheTools }, "description": func() { out.Description = r.Description },
				"deadline": func() { out.Deadline = r.Deadline },
			} {
				if flags.Changed(flag) {
					set()
				}
			}
			if flags.Changed("cache") {
				if out.Cache, err = readSpan("cache", cache); err != nil {
					return err
				}
			}
			for _, s := range over {
				var f agent.FaultClass
				if err := f.UnmarshalText([]byte(s)); err != nil {
					return usageError("--fail-over %s: use context_length or content", s)
				}
				out.FailOver = append(out.FailOver, f)
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			out.Name, out.Revision = strings.TrimPrefix(args[0], "@"), 0
			if out, err = cl.PutModelRoute(cmd.Context(), out); err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			c.printf("set route @%s: %s\n", out.Name, candidates(out))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.Models, "models", nil, "names that clients ask for and that lead here; may have *")
	f.BoolVar(&r.Weighted, "weighted", false, "draw the first model by weight")
	f.StringArrayVar(&weights, "weight", nil, "`PROVIDER/MODEL=NUMBER`: its share beside the others; 1 unless given")
	f.IntVar(&r.Attempts, "attempts", 0, "most calls to providers for one request; 3 unless given")
	f.DurationVar(&r.Deadline, "deadline", 0, "time for all attempts until the first content")
	f.StringSliceVar(&over, "fail-over", nil, "further reasons to ask the next model: context_length, content")
	f.StringVar(&cache, "cache", "", "how long an answer to the same request is good, such as 1h; none is kept unless given")
	f.BoolVar(&r.CacheTools, "cache-tools", false, "keep answers to requests that offer tools, too")
	f.StringVar(&r.Description, "description", "", "what it is for")
	f.StringVar(&file, "file", "", "`FILE` with a route in JSON; arguments and other flags come on top")
	return cmd
}

func newModelLimit(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "limit",
		Short: "Bound requests, tokens and spending, for the app or each agent, key or user",
	})
	cmd.AddCommand(newLimitSet(c),
		listVerb(c, "List limits, by name", (*client.Client).ModelLimits, table[agent.ModelLimit]{
			what: "limits", hint: "skep model limit set daily --window 1d --spend 5",
			header: []string{"NAME", "EACH", "WINDOW", "REQUESTS", "TOKENS", "SPEND", "OF", "INSTEAD"},
			row: func(l agent.ModelLimit) []string {
				return []string{
					l.Name, l.Each.String(), window(l.Window), bound(l.Requests, strconv.FormatInt(l.Requests, 10)), bound(l.Tokens, strconv.FormatInt(l.Tokens, 10)),
					bound(l.Spend, money(l.Spend)), words(l.Models, "all models"), or(l.Instead, "refusal"),
				}
			},
		}),
		showVerb(c, "limit", (*client.Client).ModelLimit, func(l agent.ModelLimit) []string {
			return []string{
				"name", l.Name, "each", l.Each.String(), "only", strings.Join(l.Match, ", "), "models", words(l.Models, "all"), "window", window(l.Window),
				"requests", bound(l.Requests, strconv.FormatInt(l.Requests, 10)), "tokens", bound(l.Tokens, strconv.FormatInt(l.Tokens, 10)),
				"spend", bound(l.Spend, money(l.Spend)), "unpriced", bound(l.Unpriced, money(l.Unpriced)+" a call"), "instead", or(l.Instead, "refusal"),
				"revision", strconv.FormatInt(l.Revision, 10), "changed", when(l.Changed),
			}
		}),
		newLimitUse(c),
		removeVerb(c, "limit", (*client.Client).DeleteModelLimit))
	return cmd
}

func newLimitUse(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "use NAME",
		Short:   "Show what is used of a limit now, and by whom",
		Long:    "Show what is used of a limit now, and by whom, the most frequent first. What calls under way may use is counted, until they have ended.",
		Example: "  skep model limit use daily",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			l, err := cl.ModelLimit(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			used, err := cl.ModelLimitUse(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(used)
			}
			if len(used) == 0 {
				c.printf("nothing is used of the limit %s in %s\n", l.Name, window(l.Window))
				return nil
			}
			number := func(n int64) string { return strconv.FormatInt(n, 10) }
			of := func(used, bound int64, form func(int64) string) string {
				if bound == 0 {
					return form(used)
				}
				return form(used) + " of " + form(bound)
			}
			var rows [][]string
			for _, u := range used {
				rows = append(rows, []string{u.Who, of(u.Requests, l.Requests, number), of(u.Tokens, l.Tokens, number), of(u.Spend, l.Spend, money)})
			}
			c.printTable([]string{strings.ToUpper(l.Each.String()), "REQUESTS", "TOKENS", "SPEND"}, rows)
			return nil
		},
	}
}

func bound(n int64, s string) string {
	if n == 0 {
		return "-"
	}
	return s
}

func window(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	return d.String()
}

func newLimitSet(c *cli) *cobra.Command {
	var l agent.ModelLimit
	var each, in, spend, unpriced string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a limit, or replace one",
		Long: `Make a limit, or replace one. It is strict, also for calls at once: a call holds the most that it may use, and gives back what it did not. Windows below a
day slide; from a day on they are whole days in UTC, today included. What was used before a limit was made counts.`,
		Example: "  skep model limit set daily --window 1d --spend 5\n  skep model limit set each-user --each user --window 1h --requests 100 --tokens 200000 --instead @cheap",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := l.Each.UnmarshalText([]byte(each)); err != nil {
				return usageError("--each %s: use app, agent, key, user or org", each)
			}
			if l.Window, err = readSpan("window", in); err != nil {
				return err
			}
			if spend != "" {
				if l.Spend, err = dollars("spend", spend); err != nil {
					return err
				}
			}
			if unpriced != "" {
				if l.Unpriced, err = dollars("unpriced", unpriced); err != nil {
					return err
				}
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			l.Name = args[0]
			out, err := cl.PutModelLimit(cmd.Context(), l)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			c.printf("set limit %s for each %s in %s\n", out.Name, out.Each, window(out.Window))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&each, "each", "app", "whose use is counted together: app, agent, key, user, or org for all apps of the server")
	f.StringSliceVar(&l.Match, "match", nil, "only agents or users with these names, or keys with these ids; may have *")
	f.StringSliceVar(&l.Models, "models", nil, "only calls of these: @ROUTE or PROVIDER/MODEL, with *")
	f.StringVar(&in, "window", "1d", "a minute to 31 days, such as 1m, 1h or 30d")
	f.Int64Var(&l.Requests, "requests", 0, "most requests")
	f.Int64Var(&l.Tokens, "tokens", 0, "most tokens, in and out")
	f.StringVar(&spend, "spend", "", "most `DOLLARS`")
	f.StringVar(&unpriced, "unpriced", "", "with --spend: `DOLLARS` that a call counts for whose price is not known; such calls are refused unless given")
	f.StringVar(&l.Instead, "instead", "", "route as @NAME to ask when the limit is reached; a refusal unless given")
	return cmd
}

func newModelGuard(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "guard",
		Short: "Look at what goes to models and comes from them, and take out or refuse what must not",
	})
	cmd.AddCommand(newGuardSet(c),
		listVerb(c, "List guardrails, by name", (*client.Client).Guardrails, table[agent.Guardrail]{
			what: "guardrails", hint: "skep model guard set mail --find email",
			header: []string{"NAME", "FINDS", "LOOKS AT", "DOES", "OF"},
			row: func(g agent.Guardrail) []string {
				return []string{g.Name, finds(g), looksAt(g), does(g), words(g.Models, "all models")}
			},
		}),
		showVerb(c, "guardrail", (*client.Client).Guardrail, func(g agent.Guardrail) []string {
			return []string{
				"name", g.Name, "finds", strings.Join(g.Find, ", "), "patterns", strings.Join(g.Patterns, "  "), "words", strings.Join(g.Words, ", "),
				"looks at", looksAt(g), "does", does(g), "agents", words(g.Agents, "all"), "models", words(g.Models, "all"),
				"revision", strconv.FormatInt(g.Revision, 10), "changed", when(g.Changed),
			}
		}),
		removeVerb(c, "guardrail", (*client.Client).DeleteGuardrail))
	return cmd
}

func finds(g agent.Guardrail) string {
	list := append([]string{}, g.Find...)
	if n := len(g.Patterns); n > 0 {
		list = append(list, strconv.Itoa(n)+" patterns")
	}
	if n := len(g.Words); n > 0 {
		list = append(list, strconv.Itoa(n)+" words")
	}
	return strings.Join(list, ", ")
}

func looksAt(g agent.Guardrail) string {
	switch {
	case g.Prompt && g.Response:
		return "prompts and answers"
	case g.Prompt:
		return "prompts"
	}
	return "answers"
}

func does(g agent.Guardrail) string {
	if g.Block {
		return "refuses"
	}
	return "takes out"
}

func newGuardSet(c *cli) *cobra.Command {
	var g agent.Guardrail
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a guardrail, or replace one",
		Long: `Make a guardrail, or replace one. It looks at prompts, answers or both, arguments of tools included, whole or streamed. What it finds is replaced by [NAME],
or refused with --block. --find takes ` + strings.Join(agent.GuardFinders(), ", ") + `.`,
		Example: "  skep model guard set private --find email,card,iban\n  skep model guard set project --word Bluebird --block --prompt --response=false",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			g.Name = args[0]
			out, err := cl.PutGuardrail(cmd.Context(), g)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			c.printf("set guardrail %s: %s %s in %s\n", out.Name, does(out), finds(out), looksAt(out))
			return nil
		},
	}
	guardFlags(cmd.Flags(), &g)
	return cmd
}

func guardFlags(f *pflag.FlagSet, g *agent.Guardrail) {
	f.StringSliceVar(&g.Find, "find", nil, "what is built in, separated by commas")
	f.StringArrayVar(&g.Patterns, "pattern", nil, "regular `EXPRESSION` (RE2); may be given more than once")
	f.StringArrayVar(&g.Words, "word", nil, "whole `WORD`, in any case; may be given more than once")
	f.BoolVar(&g.Prompt, "prompt", true, "look at what goes to models")
	f.BoolVar(&g.Response, "response", true, "look at what comes from them")
	f.BoolVar(&g.Block, "block", false, "refuse, and do not take out")
	f.StringSliceVar(&g.Agents, "agents", nil, "only calls of these agents; may have *")
	f.StringSliceVar(&g.Models, "models", nil, "only calls of these: @ROUTE or PROVIDER/MODEL, with *")
}
