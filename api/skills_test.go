package api

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
)

// packed is a small skill.
func packed(t testing.TB, name string) []byte {
	t.Helper()
	b, err := plugins.Pack(map[string][]byte{
		"SKILL.md": []byte("---\nname: " + name + "\ndescription: words of " + name + "\n---\nDo it.\n"), "scripts/do it.py": []byte("print(1)"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var mySkill, _ = plugins.Pack(map[string][]byte{"SKILL.md": []byte("---\nname: mine\ndescription: mine\n---\n")})

func TestSkills(t *testing.T) {
	r := start(t, nil)
	ctx := t.Context()
	sk, changed, err := r.c.PutSkill(ctx, packed(t, "pdf"))
	if err != nil || !changed || sk.Name != "pdf" || len(sk.Files) != 2 {
		t.Fatal(sk, changed, err)
	}
	if _, changed, err := r.c.PutSkill(ctx, packed(t, "pdf")); err != nil || changed {
		t.Error(changed, err)
	}
	if got, err := r.c.Skill(ctx, "pdf"); err != nil || got.Description != "words of pdf" || got.Rev != sk.Rev {
		t.Error(got, err)
	}
	if list, err := r.c.Skills(ctx, agent.Page{}); err != nil || len(list.Items) != 1 {
		t.Error(list, err)
	}
	body, mediaType, err := r.c.SkillFile(ctx, "pdf", "scripts/do it.py")
	if err != nil || string(body) != "print(1)" || mediaType != "text/x-python" {
		t.Error(string(body), mediaType, err)
	}
	for _, c := range []struct {
		method, target, body string
		status               int
		want                 string
	}{
		{"GET", "/v1/skills/pdf/files/scripts/do%20it.py", "", 200, "print(1)"},
		{"GET", "/v1/skills/pdf/files/none", "", 404, "it has SKILL.md, scripts/do it.py"},
		{"GET", "/v1/skills/PDF", "", 404, "there is pdf"},
		{"GET", "/v1/skills/pd", "", 404, "there is pdf"},
		{"POST", "/v1/skills", "", 400, "the body is empty"},
		{"POST", "/v1/skills", "no zip", 400, "zip"},
		{"DELETE", "/v1/skills/pdf", "", 204, ""},
		{"DELETE", "/v1/skills/pdf", "", 404, "no skills yet"},
	} {
		if res := r.do(c.method, c.target, c.body); res.StatusCode != c.status || !strings.Contains(string(res.body), c.want) {
			t.Errorf("%s %s: %s %.300s", c.method, c.target, res.Status, res.body)
		}
	}
	bad, err := plugins.Pack(map[string][]byte{"SKILL.md": []byte("---\nname: X\ndescription: d\n---\n")})
	if err != nil {
		t.Fatal(err)
	}
	res := r.do("POST", "/v1/skills", string(bad))
	if res.StatusCode != 400 || !strings.Contains(string(res.body), `"position":{"file":"SKILL.md","line":2`) {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if log := r.do("GET", "/v1/audit", ""); !strings.Contains(string(log.body), "skill.put") || !strings.Contains(string(log.body), "skill.delete") {
		t.Errorf("%s", log.body)
	}
}
