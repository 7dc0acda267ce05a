package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/image"
)

func newImage(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "Make, list and delete images of sandboxes",
		Long: `An image has the files that a sandbox begins with: a shell, git, and the command-line agents that work in it. They are made here, of files, and given to
the container engine of this machine (Docker or Podman); no registry is asked.`,
	})
	cmd.AddCommand(newImageBuild(c), newImageList(c), newImageDelete(c))
	return cmd
}

const imageBuildHelp = `Make an image out of a base, command-line agents and packages of npm.

The base is one of
  host    programs of this machine, with the libraries that they need; takes seconds
  debian  a minimal Debian from its mirrors, with git and ripgrep; takes minutes, and root
  IMAGE   one that the engine has

Command-line agents come from npm, whose hashes are checked, in versions that are known to work:
%s
NAME@VERSION asks for another version. Nothing of a package is run while the image is made. Packages of npm are kept for the next time.`

func newImageBuild(c *cli) *cobra.Command {
	var s image.Spec
	var engine, dockerfile string
	cmd := &cobra.Command{
		Use:   "build NAME[:TAG]",
		Short: "Make an image",
		Long:  fmt.Sprintf(imageBuildHelp, knownAgents()),
		Example: `  skep image build skep/agents --cli codex --cli opencode
  skep image build skep/claude --base debian --cli claude --package deb:python3
  skep image build team/agents --base golang:1.26 --cli codex
  skep image build team/agents --cli codex --dockerfile agents/`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Name, s.Now = args[0], time.Now()
			if err := c.tellLicences(s.CLIs); err != nil {
				return err
			}
			if dockerfile != "" {
				return c.writeDockerfile(s, dockerfile)
			}
			return c.buildImage(cmd.Context(), s, engine)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Base, "base", image.Host, "host, debian, or an image")
	flags.StringSliceVar(&s.CLIs, "cli", nil, "a command-line agent, NAME or NAME@VERSION; may be repeated")
	flags.StringSliceVar(&s.Packages, "package", nil, "deb:NAME (--base debian) or npm:NAME@VERSION; may be repeated")
	flags.StringSliceVar(&s.More, "program", nil, "another program of this machine (--base host), by name or path; may be repeated")
	flags.StringVar(&s.Suite, "suite", "bookworm", "release of Debian")
	flags.StringVar(&s.Mirror, "mirror", "", "mirror of Debian; that of the tool that makes the base unless given")
	flags.StringVar(&s.Cache, "cache", "", "folder in which packages of npm are kept; one below the user's own for caches unless given")
	flags.StringVar(&dockerfile, "dockerfile", "", "make no image: write a Dockerfile and what it needs into this folder")
	engineFlag(cmd, &engine)
	return cmd
}

func engineFlag(cmd *cobra.Command, engine *string) {
	cmd.Flags().StringVar(engine, "engine", "", "address of Docker or Podman (DOCKER_HOST); whichever runs here unless given")
}

// knownAgents lists the command-line agents that have a name, one a line.
func knownAgents() string {
	var text strings.Builder
	for _, known := range image.CLIs() {
		fmt.Fprintf(&text, "  %-9s %s %s\n", known.Name, known.Package, known.Version)
	}
	return text.String()
}

// tellLicences says what there is to know before something is downloaded that is not free to pass on.
func (c *cli) tellLicences(words []string) error {
	for _, word := range words {
		known, err := image.FindCLI(word)
		if err != nil {
			return err
		}
		if known.Licence != "" {
			c.notef("%s\n", known.Licence)
		}
	}
	return nil
}

func (c *cli) buildImage(ctx context.Context, s image.Spec, engine string) error {
	e, err := image.Dial(engine)
	if err != nil {
		return err
	}
	defer e.Close()
	b := c.newBar("image")
	var step string
	s.Progress = func(p image.Progress) {
		if p.Step != step && b.w == nil && !c.json {
			c.notef("%s\n", p.Step) // who reads a log sees the steps, too
		}
		if p.Total == 0 {
			b.step(p.Step)
		} else if p.Step != step {
			b.clear()
		}
		step = p.Step
		b.set(p.Done, p.Total)
	}
	im, err := image.Build(ctx, e, s)
	b.clear()
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(im)
	}
	verb := "made"
	if im.Reused {
		verb = "there already, of the same files:"
	}
	c.printf("%s image %s (%s)\n", verb, im.Name, size(im.Size))
	for _, in := range im.Manifest.CLIs {
		c.printf("  %s %s\n", in.Name, in.Version)
	}
	return nil
}

func (c *cli) writeDockerfile(s image.Spec, dir string) error {
	files, err := image.WriteDockerfile(s, dir)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(map[string]any{"dir": dir, "files": files})
	}
	c.printf("wrote %d files; make the image with: docker build -t %s %s\n", len(files), s.Name, dir)
	return nil
}

func newImageList(c *cli) *cobra.Command {
	var engine string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that were made by skep image build",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := image.Dial(engine)
			if err != nil {
				return err
			}
			defer e.Close()
			list, err := e.List(cmd.Context())
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"items": append([]image.Image{}, list...)})
			}
			if len(list) == 0 {
				c.printEmpty("images", "make one with: skep image build NAME --cli codex")
				return nil
			}
			c.printTable([]string{"NAME", "BASE", "CONTENTS", "SIZE", "CREATED"}, imageRows(list))
			return nil
		},
	}
	engineFlag(cmd, &engine)
	return cmd
}

func imageRows(list []image.Image) [][]string {
	var rows [][]string
	for _, im := range list {
		name := im.Name
		if name == "" { // a newer one has its name, and a sandbox still uses it
			name = short(agent.Digest(im.ID))
		}
		var contents []string
		for _, in := range im.Manifest.CLIs {
			contents = append(contents, in.Name+" "+in.Version)
		}
		rows = append(rows, []string{name, im.Manifest.Base, strings.Join(contents, ", "), size(im.Size), when(im.Manifest.Created)})
	}
	return rows
}

func newImageDelete(c *cli) *cobra.Command {
	var engine string
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete images that were made by skep image build",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := image.Dial(engine)
			if err != nil {
				return err
			}
			defer e.Close()
			for _, name := range args {
				if err := e.Delete(cmd.Context(), name); err != nil {
					return err
				}
				if !c.json {
					c.printf("deleted image %s\n", name)
				}
			}
			if c.json {
				return c.printJSON(map[string]any{"deleted": args})
			}
			return nil
		},
	}
	engineFlag(cmd, &engine)
	return cmd
}
