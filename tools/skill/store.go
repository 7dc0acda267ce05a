package skill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Store keeps skills of apps, each under its name. It is safe for concurrent use.
type Store struct{ st *store.Store }

// NewStore returns the skills that are kept in st.
func NewStore(st *store.Store) *Store { return &Store{st} }

// Put keeps a skill, in place of one of the same name, and returns it with its revision. One that is there already as it is stays so:
// changed is false then.
func (s *Store) Put(ctx context.Context, app agent.App, b Bundle) (_ agent.Skill, changed bool, err error) {
	if err := CheckName(b.Skill.Name); err != nil {
		return agent.Skill{}, false, err
	}
	was, err := s.get(ctx, app, b.Skill.Name)
	switch {
	case err == nil && was.Digest == b.Skill.Digest:
		return was, false, nil
	case err != nil && agent.KindOf(err) != agent.NotFound:
		return agent.Skill{}, false, err
	}
	sk := b.Skill
	sk.App, sk.Rev, sk.Updated = app, 0, time.Now().UTC()
	if sk.Created = was.Created; sk.Created.IsZero() {
		sk.Created = sk.Updated
	}
	for _, f := range sk.Files {
		if _, err := s.st.PutBlob(ctx, b.Files[f.Path]); err != nil {
			return agent.Skill{}, false, err
		}
	}
	sk.Rev, err = s.st.PutDoc(ctx, store.Skills, app, sk.Name, store.AnyRev, sk) // of two at once the later counts
	if err != nil {
		return agent.Skill{}, false, err
	}
	return sk, true, nil
}

func (s *Store) get(ctx context.Context, app agent.App, name string) (sk agent.Skill, err error) {
	rev, err := s.st.Doc(ctx, store.Skills, app, name, &sk)
	sk.Rev = rev
	return sk, err
}

// Get returns the skill of exactly that name. One that is not there is a NotFound error, which tells of skills with a name like it.
func (s *Store) Get(ctx context.Context, app agent.App, name string) (agent.Skill, error) {
	if CheckName(name) != nil {
		return agent.Skill{}, s.absent(ctx, app, name)
	}
	sk, err := s.get(ctx, app, name)
	if err != nil && agent.KindOf(err) == agent.NotFound {
		return agent.Skill{}, s.absent(ctx, app, name)
	}
	return sk, err
}

// maxNear is how many names are held against one that is not there.
const maxNear = 5000

func (s *Store) absent(ctx context.Context, app agent.App, name string) error {
	var names []string
	for page := (agent.Page{Limit: agent.MaxPage}); len(names) < maxNear; {
		next, err := s.st.Docs(ctx, store.Skills, app, "", page, func(name string, _ int64, _ []byte) error {
			names = append(names, name)
			return nil
		})
		if err != nil {
			return err
		}
		if page.After = next; next == "" {
			break
		}
	}
	e := &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("there is no skill %.80q", name)}
	switch like := near(name, names); {
	case len(like) > 0:
		e.Hint = "names are taken exactly as they are; there is " + strings.Join(like, ", ")
	case len(names) == 0:
		e.Hint = "the app has no skills yet: add one with skep skill add DIR"
	default:
		e.Hint = fmt.Sprintf("the app has %d others, see skep skill list", len(names))
	}
	return e
}

// List returns skills in the order of their names.
func (s *Store) List(ctx context.Context, app agent.App, page agent.Page) (list []agent.Skill, next string, err error) {
	list = []agent.Skill{}
	next, err = s.st.Docs(ctx, store.Skills, app, "", page, func(name string, rev int64, data []byte) error {
		var sk agent.Skill
		if err := json.Unmarshal(data, &sk); err != nil {
			return fmt.Errorf("skill %s: %w", name, err)
		}
		sk.Rev = rev
		list = append(list, sk)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// Load returns one file of a skill, SKILL.md unless path names another, and what is known of the skill.
func (s *Store) Load(ctx context.Context, app agent.App, name, path string) (sk agent.Skill, f agent.SkillFile, body []byte, err error) {
	if sk, err = s.Get(ctx, app, name); err != nil {
		return sk, f, nil, err
	}
	if path == "" {
		path = Main
	}
	i := slices.IndexFunc(sk.Files, func(f agent.SkillFile) bool { return f.Path == path })
	if i < 0 {
		return sk, f, nil, noFile(sk, path)
	}
	body, err = s.st.Blob(ctx, sk.Files[i].Digest)
	return sk, sk.Files[i], body, err
}

func noFile(sk agent.Skill, path string) error {
	const most = 20
	var names []string
	for _, f := range sk.Files {
		names = append(names, f.Path)
	}
	e := &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("skill %s has no file %.200q", sk.Name, path)}
	e.Hint = "it has " + strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		e.Hint += fmt.Sprintf(" and %d more", more)
	}
	return e
}

// Delete deletes the skill of exactly that name.
func (s *Store) Delete(ctx context.Context, app agent.App, name string) error {
	if _, err := s.Get(ctx, app, name); err != nil {
		return err
	}
	return s.st.DeleteDoc(ctx, store.Skills, app, name, store.AnyRev)
}
