package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

//go:embed providers.json
var presetsJSON []byte

// preset is what is known of a vendor.
type preset struct {
	Name      string           `json:"name"`
	URL       string           `json:"url"`
	Protocols []agent.Protocol `json:"protocols"`
	Vendor    string           `json:"vendor"` // in the price table, where that is not its name
	Keys      string           `json:"keys"`   // where one gets a key
	Own       bool             `json:"own"`    // a program on one's own machine: it needs no key, and costs nothing
}

func presets() []preset {
	var all []preset
	if err := json.Unmarshal(presetsJSON, &all); err != nil {
		panic(err) // a test reads it
	}
	return all
}

func newModelProvider(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "provider",
		Short: "Set who serves models, with their addresses and keys",
	})
	cmd.AddCommand(newProviderAdd(c, "add"), newProviderAdd(c, "set"),
		listVerb(c, "List providers of models, by name", (*client.Client).Providers, table[agent.Provider]{
			what: "providers", hint: "skep model provider add openai --key-stdin",
			header: []string{"NAME", "PROTOCOLS", "ADDRESS", "KEYS", "MODELS", "STATE"},
			row: func(p agent.Provider) []string {
				return []string{p.Name, protocols(p), address(p), strconv.Itoa(len(p.Keys)), or(strings.Join(p.Models, ", "), "not said"), providerState(p)}
			},
		}),
		showVerb(c, "provider", (*client.Client).Provider, providerFields), removeVerb(c, "provider", (*client.Client).DeleteProvider), newProviderPresets(c))
	return cmd
}

func protocols(p agent.Provider) string {
	var names []string
	for _, s := range p.Protocols {
		names = append(names, s.String())
	}
	return strings.Join(names, ", ")
}

func address(p agent.Provider) string {
	if p.Script != "" {
		return "script " + short(p.Script)
	}
	return p.URL
}

func providerState(p agent.Provider) string {
	if p.Disabled {
		return "disabled"
	}
	return "on"
}

func providerFields(p agent.Provider) []string {
	var keys, prices, header []string
	for _, k := range p.Keys {
		keys = append(keys, k.Secret)
		if k.Weight > 1 {
			keys[len(keys)-1] += fmt.Sprintf(" (weight %d)", k.Weight)
		}
	}
	for _, m := range p.Prices {
		prices = append(prices, fmt.Sprintf("%s %s in, %s out", m.Model, money(m.Input), money(m.Output)))
	}
	for name := range p.Header {
		header = append(header, name)
	}
	slices.Sort(header)
	return []string{
		"name", p.Name, "description", p.Description, "address", address(p), "protocols", protocols(p), "keys", words(keys, "none"), "auth", p.Auth,
		"header", strings.Join(header, ", "), "models", words(p.Models, "not said"), "vendor", p.Vendor, "prices", words(prices, "of the table"),
		"state", providerState(p), "revision", strconv.FormatInt(p.Revision, 10), "changed", when(p.Changed),
	}
}

func newProviderPresets(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "presets",
		Short: "List vendors whose addresses and protocols are known",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.json {
				return c.printJSON(presets())
			}
			var rows [][]string
			for _, p := range presets() {
				rows = append(rows, []string{p.Name, p.URL, protocols(agent.Provider{Protocols: p.Protocols}), or(p.Keys, "no key is needed")})
			}
			c.printTable([]string{"NAME", "ADDRESS", "PROTOCOLS", "KEYS"}, rows)
			return nil
		},
	}
}

// providerFlags say what a provider is.
type providerFlags struct {
	preset, url, auth, description, vendor, script, file string
	protocols, secrets, headers, models, prices          []string
	private, disabled, keyStdin                          bool
	wait, idle                                           time.Duration
}

func (f *providerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.preset, "preset", "", "vendor whose address and protocols to take; NAME unless given, where it is one (skep model provider presets)")
	flags.StringVar(&f.url, "url", "", "base URL, as the vendor's own SDK takes it")
	flags.StringSliceVar(&f.protocols, "protocol", nil, "how it is spoken to, best first: openai-chat, openai-responses, openai-embeddings, anthropic, gemini")
	flags.BoolVar(&f.keyStdin, "key-stdin", false, "read its key from standard input, and keep it as the secret model-NAME, which goes to its address alone")
	flags.StringSliceVar(&f.secrets, "secret", nil, "secret that is its key; more than one make a pool")
	flags.StringVar(&f.auth, "auth", "", "header that takes the key: Authorization, as Bearer, or another; as the protocol has it unless given")
	flags.StringArrayVar(&f.headers, "header", nil, "`NAME=VALUE` that is sent with each call")
	flags.StringSliceVar(&f.models, "models", nil, "names of what it serves, or patterns with *")
	flags.StringArrayVar(&f.prices, "price", nil, "`MODEL=IN,OUT` in dollars for a million tokens, before the price table; MODEL may have *")
	flags.StringVar(&f.vendor, "vendor", "", "its name in the price table; by address and name unless given")
	flags.StringVar(&f.script, "script", "", "`FILE` with turns of a scripted provider, which needs no network")
	flags.BoolVar(&f.private, "private", false, "its address may be a private one, where the server allows that")
	flags.BoolVar(&f.disabled, "disabled", false, "no call goes to it")
	flags.DurationVar(&f.wait, "wait", 0, "longest wait until an answer begins")
	flags.DurationVar(&f.idle, "idle", 0, "longest silence within a stream")
	flags.StringVar(&f.description, "description", "", "what it is for")
	flags.StringVar(&f.file, "file", "", "`FILE` with a provider in JSON, as show --json prints it; other flags come on top")
}

// apply changes p to what the flags say.
func (f *providerFlags) apply(flags *pflag.FlagSet, p *client.NewProvider) error {
	if flags.Changed("url") && flags.Changed("script") {
		return usageError("a provider has an address or a script: give --url or --script, not both")
	}
	if err := fromFile(f.file, &p.Provider); err != nil {
		return err
	}
	for flag, set := range map[string]func() error{
		"url":         func() error { p.URL, p.Script = f.url, ""; return nil },
		"auth":        func() error { p.Auth = f.auth; return nil },
		"models":      func() error { p.Models = f.models; return nil },
		"vendor":      func() error { p.Vendor = f.vendor; return nil },
		"private":     func() error { p.Private = f.private; return nil },
		"disabled":    func() error { p.Disabled = f.disabled; return nil },
		"wait":        func() error { p.Headers = f.wait; return nil },
		"idle":        func() error { p.Idle = f.idle; return nil },
		"description": func() error { p.Description = f.description; return nil },
		"protocol": func() error {
			p.Protocols = make([]agent.Protocol, len(f.protocols))
			for i, s := range f.protocols {
				if err := p.Protocols[i].UnmarshalText([]byte(s)); err != nil || p.Protocols[i] == agent.NoProtocol {
					return usageError("--protocol %s: use openai-chat, openai-responses, openai-embeddings, anthropic or gemini", s)
				}
			}
			return nil
		},
		"secret": func() error {
			p.Keys = nil
			for _, s := range f.secrets {
				p.Keys = append(p.Keys, agent.ProviderKey{Secret: s})
			}
			return nil
		},
		"header": func() error {
			p.Header = map[string]string{}
			for _, h := range f.headers {
				name, value, ok := strings.Cut(h, "=")
				if !ok {
					return usageError("--header %s: write NAME=VALUE", h)
				}
				p.Header[name] = value
			}
			return nil
		},
		"price": func() error {
			p.Prices = nil
			for _, s := range f.prices {
				model, amounts, _ := strings.Cut(s, "=")
				in, out, ok := strings.Cut(amounts, ",")
				if !ok {
					return usageError("--price %s: write MODEL=IN,OUT in dollars for a million tokens", s)
				}
				price := agent.ModelPrice{Model: model}
				var err error
				if price.Input, err = dollars("price", in); err != nil {
					return err
				}
				if price.Output, err = dollars("price", out); err != nil {
					return err
				}
				p.Prices = append(p.Prices, price)
			}
			return nil
		},
		"script": func() error {
			b, err := os.ReadFile(f.script)
			if err != nil {
				return agent.Wrap(agent.Invalid, err, "read "+f.script)
			}
			p.Turns, p.URL, p.Script = string(b), "", ""
			return nil
		},
	} {
		if flags.Changed(flag) {
			if err := set(); err != nil {
				return err
			}
		}
	}
	return nil
}

// start is what a new provider begins with.
func (f *providerFlags) start(name string) (client.NewProvider, preset, error) {
	p := client.NewProvider{Provider: agent.Provider{Name: name}}
	wanted := or(f.preset, name)
	for _, known := range presets() {
		if known.Name != wanted {
			continue
		}
		if f.preset == "" && (f.url != "" || f.script != "" || f.file != "") {
			break
		}
		p.URL, p.Protocols, p.Vendor, p.Private = known.URL, known.Protocols, known.Vendor, known.Own
		if known.Own {
			p.Prices = []agent.ModelPrice{{Model: "*"}}
		}
		return p, known, nil
	}
	if f.preset != "" {
		return p, preset{}, usageError("--preset %s: there is none of that name; skep model provider presets lists them", f.preset)
	}
	if f.url == "" && f.script == "" && f.file == "" {
		return p, preset{}, usageError("where is %s? give --url and --protocol, --script, or --preset with a vendor that skep model provider presets lists", name)
	}
	return p, preset{}, nil
}

func newProviderAdd(c *cli, verb string) *cobra.Command {
	var f providerFlags
	cmd := &cobra.Command{
		Use:   verb + " NAME",
		Short: map[string]string{"add": "Add a provider of models", "set": "Change a provider of models: what the flags say, and nothing else"}[verb],
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, name := cmd.Context(), args[0]
			cl, err := c.client()
			if err != nil {
				return err
			}
			was, err := cl.Provider(ctx, name)
			var p client.NewProvider
			var known preset
			switch {
			case verb == "set" && err == nil:
				p.Provider = was
			case verb == "add" && err == nil:
				return &agent.Error{Kind: agent.Exists, Msg: "provider " + name + " is there already", Hint: "change it with skep model provider set"}
			case verb == "add" && agent.KindOf(err) == agent.NotFound:
				if p, known, err = f.start(name); err != nil {
					return err
				}
			default:
				return err
			}
			rev := p.Revision
			if err := f.apply(cmd.Flags(), &p); err != nil {
				return err
			}
			p.Name, p.Revision = name, rev
			if f.keyStdin {
				secret, err := c.keepKey(cmd, cl, p)
				if err != nil {
					return err
				}
				if !slices.ContainsFunc(p.Keys, func(k agent.ProviderKey) bool { return k.Secret == secret }) {
					p.Keys = append(p.Keys, agent.ProviderKey{Secret: secret})
				}
			}
			out, err := cl.PutProvider(ctx, p)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			c.printf("%s provider %s (%s)\n", map[string]string{"add": "added", "set": "changed"}[verb], out.Name, address(out))
			if known.Keys != "" && len(out.Keys) == 0 {
				c.notef("it has no key yet: get one at %s, then\n  skep model provider set %s --key-stdin\n", known.Keys, name)
			} else if verb == "add" {
				c.notef("try it: skep model test %s --model MODEL\n", name)
			}
			return nil
		},
	}
	if verb == "add" {
		cmd.Long = `Add a provider of models. The vendors that skep model provider presets lists need a name and a key only. Any other server that speaks one of the
protocols takes --url and --protocol. The key is read from standard input, never an argument; it is kept in the vault, and goes to the provider's address alone.`
		cmd.Example = `  printf %s "$OPENAI_API_KEY" | skep model provider add openai --key-stdin
  skep model provider add local --preset ollama --models llama3.2
  skep model provider add mine --url https://models.example.com/v1 --protocol openai-chat --secret mine-key
  skep model provider add fake --script turns.json --models bee-1`
	}
	f.register(cmd.Flags())
	return cmd
}

// keepKey keeps a provider's key, which is read from standard input, as a secret that goes to the provider's address alone.
func (c *cli) keepKey(cmd *cobra.Command, cl *client.Client, p client.NewProvider) (secret string, err error) {
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" {
		return "", usageError("--key-stdin is for a provider that has an address")
	}
	places := []string{"header:authorization", "header:x-api-key", "header:x-goog-api-key"}
	if p.Auth != "" {
		places = []string{"header:" + strings.ToLower(p.Auth)}
	}
	var b agent.Binding
	if err := b.UnmarshalText([]byte(u.Scheme + "://" + u.Host + "/** " + strings.Join(places, " "))); err != nil {
		return "", err
	}
	s := client.NewSecret{Kind: agent.SecretValue, Bindings: &[]agent.Binding{b}}
	description := "key of the provider " + p.Name
	s.Description = &description
	if s.Value, err = c.secretValue(agent.SecretValue, ""); err != nil {
		return "", err
	}
	defer clear(s.Value)
	name := "model-" + p.Name
	_, err = cl.SetSecret(cmd.Context(), name, s)
	return name, err
}
