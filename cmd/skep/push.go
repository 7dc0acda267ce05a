package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/plugins"
)

func newPush(c *cli) *cobra.Command {
	var name, version, agentName string
	var check bool
	cmd := &cobra.Command{
		Use:   "push FILE|DIR",
		Short: "Store agent code on the server",
		Long: `Store agent code on the server, as a plugin. FILE is a script, a Python file, a WebAssembly module or a zip package; DIR is packed,
with the packages that its package.json depends on, or compiled first when it holds a program in Go, Rust, AssemblyScript or C. A version stays as it is for ever; without
--version, and without one in skep.json, each change gets a version made of the time.

--check only says what is wrong: the server prepares the code without storing it, and the TypeScript checker goes over it when one
is installed (tsgo or tsc, in node_modules or on the PATH).`,
		Example: "  skep push hello.ts --agent hello\n  skep push . --version 1.2.0\n  skep push hello --check",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := c.readCodeAt(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p.name, p.version = or(name, p.name), or(version, p.version)
			cl, err := c.client()
			if err != nil {
				return err
			}
			if check {
				return c.check(cmd.Context(), cl, p)
			}
			pushed, err := c.push(cmd.Context(), cl, p, false)
			if err != nil {
				return err
			}
			return c.bind(cmd.Context(), cl, pushed, agentName)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the plugin; the file's or directory's unless given")
	cmd.Flags().StringVar(&version, "version", "", "version of the plugin, such as 1.2.0")
	cmd.Flags().StringVar(&agentName, "agent", "", "create this agent on the code, or move it there")
	cmd.Flags().BoolVar(&check, "check", false, "say what is wrong with the code, and store nothing")
	return cmd
}

// parcel is code on its way to the server.
type parcel struct {
	upload
	at            string // what the user named
	dir           string // the directory that the code's paths are below
	kind          agent.CodeKind
	name, version string
	digest        agent.Digest // as the server will compute it
}

// readCodeAt loads the code at name and finds out what the server would: a bad package is refused before it is sent.
func (c *cli) readCodeAt(ctx context.Context, name string) (parcel, error) {
	up, err := c.loadUpload(ctx, name)
	p := parcel{upload: up, at: name, dir: name}
	if info, statErr := os.Stat(name); statErr == nil && !info.IsDir() {
		p.dir = filepath.Dir(name)
	}
	if err != nil {
		return p, withSource(err, p.dir)
	}
	src, manifest, err := plugins.Open(up.File, up.Type, up.Body, nil)
	if err != nil {
		return p, withSource(err, p.dir)
	}
	p.kind, p.name, p.version = src.Kind, or(manifest.Name, up.Name), manifest.Version
	body := up.Body
	if src.Kind != agent.Wasm && filepath.Ext(up.File) != ".zip" {
		if body, err = plugins.Pack(src.Files); err != nil {
			return p, err
		}
	}
	p.digest = agent.DigestOf(body)
	return p, nil
}

// pushed is a plugin on the server. unchanged tells that it was the newest already.
type pushed struct {
	Plugin    agent.Plugin `json:"plugin"`
	Unchanged bool         `json:"unchanged"`
	Agent     *agent.Agent `json:"agent,omitempty"`
}

// push stores a parcel, unless no version was asked for and the newest has the same code.
func (c *cli) push(ctx context.Context, cl *client.Client, p parcel, dev bool) (pushed, error) {
	if p.version == "" {
		newest, err := cl.Plugin(ctx, p.name)
		switch {
		case err == nil && newest.Digest == p.digest:
			return pushed{Plugin: newest, Unchanged: true}, nil
		case err != nil && agent.KindOf(err) != agent.NotFound:
			return pushed{}, err
		}
		p.version = timeVersion(time.Now(), dev)
	}
	b := c.newBar("push " + p.name)
	defer b.clear()
	plugin, err := cl.PutPlugin(ctx, client.Upload{
		Name: p.name, Version: p.version, Filename: p.File, Type: p.Type, Body: p.Body,
	}, func(pr client.Progress) {
		if pr.Total > 0 {
			b.set(pr.Done, pr.Total)
		} else {
			b.step(pr.Stage)
		}
	})
	if err != nil {
		return pushed{}, p.explain(err)
	}
	return pushed{Plugin: plugin}, nil
}

// timeVersion makes a version of the time, so that versions sort as they were made.
func timeVersion(t time.Time, dev bool) string {
	v := t.UTC().Format("20060102.150405.000")
	if dev {
		return "dev-" + v
	}
	return v
}

// bind points the agent called name at what was pushed, if one was named, and tells what was done.
func (c *cli) bind(ctx context.Context, cl *client.Client, p pushed, name string) error {
	var done string
	if name != "" {
		a, change, err := point(ctx, cl, name, p.Plugin, false)
		if err != nil {
			return err
		}
		p.Agent, done = &a, change
	}
	if c.json {
		return c.printJSON(p)
	}
	verb := "pushed"
	if p.Unchanged {
		verb = "unchanged:"
	}
	c.printf("%s %s@%s (%s, %s)\n", verb, p.Plugin.Name, p.Plugin.Version, p.Plugin.Kind, size(p.Plugin.Size))
	if len(p.Plugin.Exports) > 0 {
		c.printf("functions: %s\n", strings.Join(p.Plugin.Exports, ", "))
	}
	if asks := p.Plugin.Asks; asks != nil && !asks.Empty() {
		c.printf("asks to\n")
		c.printWords(asks.Words())
	}
	if done != "" {
		c.printf("agent %s %s\n", name, done)
		c.hintAsked(name, p.Plugin.Asks, p.Agent.Grants)
	}
	return nil
}

// point makes agent name run plugin, creating the agent when there is none. It follows the plugin's newest version, unless pin is
// set or the agent was pinned before. It also returns what it did, for a person.
func point(ctx context.Context, cl *client.Client, name string, plugin agent.Plugin, pin bool) (agent.Agent, string, error) {
	pinned := plugin.Name + "@" + plugin.Version
	ref := plugin.Name
	if pin {
		ref = pinned
	}
	a, err := cl.Agent(ctx, name)
	if err != nil && agent.KindOf(err) != agent.NotFound {
		return a, "", err
	}
	if err != nil {
		a, err = cl.CreateAgent(ctx, client.NewAgent{Name: name, Plugin: ref})
		return a, "created", err
	}
	if strings.HasPrefix(a.Plugin, plugin.Name+"@") {
		ref = pinned
	}
	if a.Plugin == ref {
		return a, "runs it now", nil
	}
	a, err = cl.UpdateAgent(ctx, name, client.AgentPatch{Plugin: &ref})
	return a, "now runs " + ref, err
}

// check reports what the type checker and the server say of a parcel.
func (c *cli) check(ctx context.Context, cl *client.Client, p parcel) error {
	typed := false
	if tool := typeChecker(p.dir); tool != "" && p.kind == agent.Script && filepath.Ext(p.at) != ".zip" {
		typed = true
		if err := typeCheck(ctx, tool, p.at); err != nil {
			return withSource(err, p.dir)
		}
	}
	found, err := cl.CheckPlugin(ctx, client.Upload{Name: p.name, Version: p.version, Filename: p.File, Type: p.Type, Body: p.Body}, nil)
	if err != nil {
		return p.explain(err)
	}
	if c.json {
		return c.printJSON(map[string]any{"exports": found.Exports, "fetch": found.Fetch, "types_checked": typed})
	}
	c.printf("ok: %s\n", p.at)
	c.printf("functions: %s\n", strings.Join(found.Exports, ", "))
	if p.kind == agent.Script && !typed {
		c.printf("types were not checked: no tsgo or tsc found (npm install typescript)\n")
	}
	return nil
}

// explain adds to an error of the server what only this side knows: where the source is, and that it was a single file.
func (p parcel) explain(err error) error {
	var e *agent.Error
	if errors.As(err, &e) && e.Hint == "" && isCode(p.at) && (strings.Contains(e.Msg, "was not found") || strings.Contains(e.Msg, "No module named")) {
		hinted := *e
		hinted.Hint = "push the directory, so that its other files and packages go along: skep push " + p.dir
		err = &hinted
	}
	return withSource(err, p.dir)
}

// sourceError is an error in code that lies below dir on this machine, so that its line can be shown.
type sourceError struct {
	error
	dir string
}

func (e sourceError) Unwrap() error { return e.error }

// withSource makes the place of err, if it has one, a path on this machine.
func withSource(err error, dir string) error {
	var e *agent.Error
	if !errors.As(err, &e) || e.Pos.File == "" {
		return err
	}
	local := *e
	local.Msg = strings.TrimPrefix(local.Msg, e.Pos.String()+": ") // it is shown in front of the message
	if _, statErr := os.Stat(e.Pos.File); statErr != nil || !filepath.IsAbs(e.Pos.File) {
		if at := filepath.Join(dir, filepath.FromSlash(e.Pos.File)); exists(at) {
			local.Pos.File = at
		}
	}
	return sourceError{&local, dir}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
