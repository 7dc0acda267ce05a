package image

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

var update = flag.Bool("update", false, "write the goldens")

func TestDockerfile(t *testing.T) {
	for name, s := range map[string]Spec{
		"debian": {Name: "team/agents", Base: Debian, CLIs: []string{"claude", "codex@0.170.0", "gemini"}, Packages: []string{"deb:jq", "npm:cowsay@1.6.0"}},
		"image":  {Name: "team/agents", Base: "team/base:1", CLIs: []string{"opencode"}},
		"bare":   {Name: "team/agents", Base: Host},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			names, err := WriteDockerfile(s, dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "Dockerfile"))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "dockerfile", name)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
			for _, line := range strings.Split(string(got), "\n") { // what it copies is there
				if from, ok := strings.CutPrefix(line, "COPY npm/"); ok {
					from, _, _ = strings.Cut(from, " ")
					if !slices.Contains(names, "npm/"+from+"/package.json") || strings.Contains(line, " ci ") && !slices.Contains(names, "npm/"+from+"/package-lock.json") {
						t.Errorf("%q has nothing to copy: there are %q", line, names)
					}
				}
			}
		})
	}
}

func TestDockerfileKeepsTheHashes(t *testing.T) {
	files, err := (&Spec{Base: Debian, Suite: "bookworm", CLIs: []string{"claude", "codex@0.170.0"}}).dockerContext()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Dockerfile", "npm/claude/package-lock.json", "npm/claude/package.json", "npm/codex/package.json"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Error(diff)
	}
	for _, part := range []string{`"codex-linux-arm64":"npm:@openai/codex@0.170.0-linux-arm64"`, `"codex-linux-x64":"npm:@openai/codex@0.170.0-linux-x64"`} {
		if !strings.Contains(string(files["npm/codex/package.json"]), part) {
			t.Errorf("codex is asked for by %s", files["npm/codex/package.json"])
		}
	}
}

func TestDockerfileThatCannotBe(t *testing.T) {
	for why, s := range map[string]Spec{
		"programs of this machine": {Name: "a", Base: Host, More: []string{"jq"}},
		"unknown":                  {Name: "a", Base: Debian, CLIs: []string{"nothing"}},
		"a range":                  {Name: "a", Base: Debian, Packages: []string{"npm:cowsay@^1"}},
		"a second line":            {Name: "a", Base: "b\nRUN evil"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		if _, err := WriteDockerfile(s, dir); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", why, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: it wrote something", why)
		}
	}
}
