package builtin

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnified(t *testing.T) {
	got, added, removed := unified("a", "b", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n", "1\n2\n3\nfour\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14")
	want := "--- a\n+++ b\n@@ -1,7 +1,7 @@\n 1\n 2\n 3\n-4\n+four\n 5\n 6\n 7\n@@ -11,3 +11,4 @@\n 11\n 12\n 13\n+14\n\\ No newline at end of file\n"
	if got != want || added != 2 || removed != 1 {
		t.Errorf("%d %d\n%s", added, removed, got)
	}
	if got, _, _ := unified("a", "b", "x\n", "x\n"); got != "" {
		t.Error(got)
	}
}

// TestPatch has patch make one random text of another with what unified says.
func TestPatch(t *testing.T) {
	patch, err := exec.LookPath("patch")
	if err != nil {
		t.Skip("there is no patch here")
	}
	dir, r := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	random := func() string {
		var b strings.Builder
		for range r.IntN(60) {
			b.WriteString(string(rune('a'+r.IntN(4))) + "\n")
		}
		return b.String()
	}
	for range 100 {
		a, b := random(), random()
		if r.IntN(2) == 0 { // a few changes of one text
			lines := strings.SplitAfter(a, "\n")
			for range r.IntN(4) {
				i := r.IntN(len(lines))
				lines[i] = string(rune('p'+r.IntN(4))) + "\n"
			}
			b = strings.Join(lines, "")
		}
		text, _, _ := unified("f", "f", a, b)
		if text == "" {
			if a != b {
				t.Fatalf("no difference of %q and %q", a, b)
			}
			continue
		}
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, []byte(a), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(patch, "-s", "-F0", file)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s\n%s\nof %q to %q", err, out, text, a, b)
		}
		got, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			got = nil
		}
		if string(got) != b {
			t.Fatalf("%q, want %q\n%s", got, b, text)
		}
	}
}
