package skill_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/tools/skill"
)

const app = agent.DefaultApp

func TestStore(t *testing.T) {
	ctx := t.Context()
	st, err := store.Open(ctx, memkv.New(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := skill.NewStore(st)
	hint := func(err error, kind agent.Kind, want string) {
		t.Helper()
		e, ok := errors.AsType[*agent.Error](err)
		if !ok || e.Kind != kind || !strings.Contains(e.Hint, want) {
			t.Errorf("%+v, want a hint of %q", err, want)
		}
	}
	_, err = s.Get(ctx, app, "pdf-forms")
	hint(err, agent.NotFound, "no skills yet")
	put := func(name, text string) (agent.Skill, bool) {
		t.Helper()
		b, err := skill.FromFiles(map[string][]byte{"SKILL.md": md("name: " + name + "\ndescription: d\n"), "a/x.txt": []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		sk, changed, err := s.Put(ctx, app, b)
		if err != nil {
			t.Fatal(err)
		}
		return sk, changed
	}
	first, changed := put("pdf-forms", "one")
	if !changed || first.Rev == 0 || first.App != app {
		t.Errorf("%+v", first)
	}
	if again, changed := put("pdf-forms", "one"); changed || !cmp.Equal(again, first) {
		t.Errorf("%+v", again)
	}
	second, changed := put("pdf-forms", "two")
	if !changed || second.Rev <= first.Rev || !second.Created.Equal(first.Created) || second.Digest == first.Digest {
		t.Errorf("%+v", second)
	}
	put("excel", "x")
	put("word", "x")
	if got, err := s.Get(ctx, app, "pdf-forms"); err != nil || !cmp.Equal(got, second) {
		t.Errorf("%+v, %v", got, err)
	}
	list, next, err := s.List(ctx, app, agent.Page{Limit: 2})
	if err != nil || len(list) != 2 || list[0].Name != "excel" || next == "" {
		t.Errorf("%+v, %q, %v", list, next, err)
	}
	if list, next, err = s.List(ctx, app, agent.Page{After: next}); err != nil || len(list) != 1 || list[0].Name != "word" || next != "" {
		t.Errorf("%+v, %q, %v", list, next, err)
	}
	for path, want := range map[string]string{"": string(md("name: pdf-forms\ndescription: d\n")), "a/x.txt": "two"} {
		_, f, body, err := s.Load(ctx, app, "pdf-forms", path)
		if err != nil || string(body) != want || f.Size != int64(len(want)) {
			t.Errorf("%q: %q, %v", path, body, err)
		}
	}
	_, _, _, err = s.Load(ctx, app, "pdf-forms", "x.txt")
	hint(err, agent.NotFound, "it has SKILL.md, a/x.txt")
	for name, want := range map[string]string{"pdf-from": "pdf-forms", "PDF-forms": "pdf-forms", "pdf": "pdf-forms", "exel": "excel", "quite-other": "3 others", "../x": "3 others"} {
		_, err := s.Get(ctx, app, name)
		hint(err, agent.NotFound, want)
	}
	if err := s.Delete(ctx, app, "pdf-forms"); err != nil {
		t.Error(err)
	}
	hint(s.Delete(ctx, app, "pdf-forms"), agent.NotFound, "2 others")
	if err := st.Verify(ctx); err != nil {
		t.Error(err)
	}
	_, _, err = s.Put(ctx, "nowhere", skill.Bundle{Skill: first, Files: map[string][]byte{}})
	if agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
}
