package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/tools/skill"
)

func newSkill(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "skill",
		Aliases: []string{"skills"},
		Short:   "Add, list, show, read and remove skills",
		Long: `A skill is a folder of instructions with a SKILL.md, which agents load by its exact name when they need it. Its scripts are files:
adding a skill runs nothing and grants nothing.`,
		Example: "  skep skill add ./pdf-forms\n  skep skill read pdf-forms",
	})
	cmd.AddCommand(newSkillAdd(c), newSkillList(c), newSkillShow(c), newSkillRead(c), newSkillRemove(c))
	return cmd
}

func newSkillAdd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "add DIR...",
		Short:   "Add skills, or change those of the same names",
		Long:    "Add skills, each a folder with a SKILL.md or a zip archive of one. One that is there already is changed.",
		Example: "  skep skill add ./pdf-forms\n  skep skill add skills/*",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all [][]byte
			for _, dir := range args { // before anything is sent
				zip, err := skillZip(dir)
				if err != nil {
					return err
				}
				all = append(all, zip)
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			added := []agent.Skill{}
			for _, zip := range all {
				sk, changed, err := cl.PutSkill(cmd.Context(), zip)
				if err != nil {
					return err
				}
				added = append(added, sk)
				switch {
				case c.json:
				case changed:
					c.printf("added skill %s, %s\n", sk.Name, countOf(len(sk.Files), "file"))
				default:
					c.printf("skill %s is there already as it is\n", sk.Name)
				}
			}
			if c.json {
				return c.printJSON(added)
			}
			return nil
		},
	}
}

// skillZip packs the folder or reads the archive at name. Errors name files as they are found on disk.
func skillZip(name string) ([]byte, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "cannot read " + name, Err: err, Hint: "name a folder with a SKILL.md, or a zip archive of one"}
	}
	var b skill.Bundle
	if st.IsDir() {
		b, err = skill.FromDir(os.DirFS(name))
	} else {
		var zip []byte
		if st.Size() > skill.MaxBytes {
			return nil, agent.Exceeded(agent.LimitUpload, "%s has more than %d bytes", name, skill.MaxBytes)
		}
		if zip, err = os.ReadFile(name); err == nil {
			b, err = skill.FromZip(zip)
		}
	}
	if err == nil {
		return b.Zip()
	}
	e, ok := errors.AsType[*agent.Error](err)
	if !ok {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "cannot read " + name, Err: err}
	}
	local := *e
	if local.Pos.File != "" {
		local.Pos.File = filepath.Join(name, filepath.FromSlash(local.Pos.File))
	} else {
		local.Msg = name + ": " + local.Msg
	}
	return nil, &local
}

func newSkillList(c *cli) *cobra.Command {
	return listVerb(c, "List skills in the order of their names", (*client.Client).Skills, table[agent.Skill]{
		what: "skills", hint: "add one with: skep skill add DIR", header: []string{"NAME", "FILES", "CHANGED", "DESCRIPTION"},
		row: func(s agent.Skill) []string {
			return []string{s.Name, fmt.Sprint(len(s.Files)), when(s.Updated), shownValue(agent.Text(s.Description))}
		},
	})
}

func newSkillShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show what a skill is for, and its files",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(skillNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := cl.Skill(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(s)
			}
			var metadata []string
			for k, v := range s.Metadata {
				metadata = append(metadata, plain(k+"="+v))
			}
			slices.Sort(metadata)
			c.printFields("name", s.Name, "description", plain(s.Description), "license", plain(s.License), "needs", plain(s.Compatibility),
				"asks for", plain(strings.Join(s.Allowed, " ")), "metadata", strings.Join(metadata, " "), "digest", string(s.Digest), "revision", fmt.Sprint(s.Rev),
				"added", when(s.Created), "changed", when(s.Updated))
			fmt.Fprintln(c.stdout)
			var rows [][]string
			for _, f := range s.Files {
				rows = append(rows, []string{shownKey(f.Path), size(f.Size), f.Type})
			}
			c.printTable([]string{"FILE", "SIZE", "TYPE"}, rows)
			return nil
		},
	}
}

func newSkillRead(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "read NAME [PATH]",
		Short:   "Write a file of a skill to stdout: SKILL.md unless another is named",
		Example: "  skep skill read pdf-forms\n  skep skill read pdf-forms scripts/fill.py > fill.py",
		Args:    cobra.RangeArgs(1, 2),

		ValidArgsFunction: c.complete(skillNames, skillFiles),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			file := skill.Main
			if len(args) == 2 {
				file = args[1]
			}
			body, mediaType, err := cl.SkillFile(cmd.Context(), args[0], file)
			if err != nil {
				return err
			}
			p := agent.Payload{Type: mediaType, Body: body}
			if c.json {
				return c.printJSON(map[string]any{"name": args[0], "path": file, "content": p})
			}
			return c.printBytes(p)
		},
	}
}

func newSkillRemove(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME...",
		Aliases: []string{"delete", "rm"},
		Short:   "Remove skills",
		Args:    cobra.MinimumNArgs(1),

		ValidArgsFunction: c.completeMany(skillNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := cl.DeleteSkill(cmd.Context(), name); err != nil {
					return err
				}
				if !c.json {
					c.printf("removed skill %s\n", name)
				}
			}
			if c.json {
				return c.printJSON(map[string]any{"removed": args})
			}
			return nil
		},
	}
}

func skillNames(ctx context.Context, cl *client.Client, _ []string) (out []string, err error) {
	l, err := cl.Skills(ctx, agent.Page{Limit: agent.MaxPage})
	for _, s := range l.Items {
		out = append(out, s.Name)
	}
	return out, err
}

func skillFiles(ctx context.Context, cl *client.Client, before []string) (out []string, err error) {
	s, err := cl.Skill(ctx, before[0])
	for _, f := range s.Files {
		out = append(out, f.Path)
	}
	return out, err
}
