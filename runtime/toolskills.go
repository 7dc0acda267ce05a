package runtime

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/tools/skill"
)

// addSkills gives a door the skills of the app. They are for code that is granted the tool that does the same, or the one that runs their scripts.
func (b *toolbox) addSkills(handlers map[string]grant.Handler) {
	handlers[abi.CallSkillList] = func(ctx context.Context, _ []byte) ([]byte, error) {
		if err := b.maySkills(ctx, "skills.list", "skills.load", "skills.run"); err != nil {
			return nil, err
		}
		out := abi.Skills{Skills: []abi.SkillInfo{}}
		for page := (agent.Page{Limit: agent.MaxPage}); ; {
			list, next, err := skill.NewStore(b.r.store).List(ctx, b.job.App, page)
			if err != nil {
				return nil, err
			}
			for _, s := range list {
				out.Skills = append(out.Skills, abi.SkillInfo{Name: s.Name, Description: s.Description})
			}
			if page.After = next; next == "" {
				return encode(out), nil
			}
		}
	}
	handlers[abi.CallSkillLoad] = func(ctx context.Context, in []byte) ([]byte, error) {
		var q abi.SkillLoad
		if err := grant.Decode(in, &q); err != nil {
			return nil, err
		}
		if err := b.maySkills(ctx, "skills.load", "skills.run"); err != nil {
			return nil, err
		}
		s, f, body, err := skill.NewStore(b.r.store).Load(ctx, b.job.App, q.Name, q.Path)
		switch {
		case err != nil:
			return nil, err
		case !utf8.Valid(body):
			return nil, agent.Errorf(agent.Invalid, "%s of skill %s is no text, but %s", f.Path, s.Name, f.Type)
		}
		out := abi.SkillText{Text: string(body)}
		for _, other := range s.Files {
			out.Files = append(out.Files, other.Path)
		}
		return encode(out), nil
	}
}

// maySkills allows what one of these tools is granted for. Where none is, the refusal is that of the first.
func (b *toolbox) maySkills(ctx context.Context, tools ...string) error {
	if slices.ContainsFunc(tools, b.granted) {
		return nil
	}
	if !b.given(tools[0]) {
		return agent.Errorf(agent.Denied, "skills were not given to this script, which has %s", strings.Join(b.only, ", "))
	}
	return b.auth.Tool(ctx, tools[0])
}
