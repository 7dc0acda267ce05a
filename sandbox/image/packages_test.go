package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

func TestDebsOfAnInstalledSystem(t *testing.T) {
	root := t.TempDir()
	if _, err := debsOf(root); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("of nothing: %v", err)
	}
	status := filepath.Join(root, "var/lib/dpkg/status")
	if err := os.MkdirAll(filepath.Dir(status), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "Package: jq\nStatus: install ok installed\nVersion: 1.6\nDescription: a tool\n Package: in a text\n\nPackage: gone\nStatus: deinstall ok config-files\n\nPackage: libjq1\nStatus: hold ok installed\n\n"
	if err := os.WriteFile(status, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := debsOf(root)
	if diff := cmp.Diff([]string{"deb:jq", "deb:libjq1"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestImageHasWhatItsBaseHas(t *testing.T) {
	base := Manifest{Packages: []string{"deb:git", "npm:@a/b@1.0.0", "npm:c@1.0.0"}, CLIs: []CLI{{Name: "b", Package: "@a/b", Version: "1.0.0"}, {Name: "c", Package: "c", Version: "1.0.0"}}}
	var m Manifest
	m.add(CLI{Name: "c", Package: "c", Version: "2.0.0"})
	m.over(&base)
	want := Manifest{Packages: []string{"deb:git", "npm:@a/b@1.0.0", "npm:c@2.0.0"}, CLIs: []CLI{{Name: "b", Package: "@a/b", Version: "1.0.0"}, {Name: "c", Package: "c", Version: "2.0.0"}}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	for word, has := range map[string]bool{"deb:git": true, "deb:gi": false, "npm:c": true, "npm:c@1.0.0": false, "npm:c@2.0.0": true, "npm:@a/b": true, "npm:b": false, "deb:c": false, "c": false} {
		if m.has(word) != has {
			t.Errorf("it has %s: %v", word, !has)
		}
	}
}
