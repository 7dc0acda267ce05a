package gateway_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/design/gateway-faults.md names tests that there are.
func TestThePageOfFaultsNamesTrueTests(t *testing.T) {
	page, err := os.ReadFile("../docs/design/gateway-faults.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, dir := range []string{".", "../api"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
				have[filepath.Base(filepath.Dir(path))+"."+string(m[1])] = true
				have[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile("`((?:[a-z]+\\.)?Test\\w+)`").FindAllSubmatch(page, -1)
	if len(named) < 40 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !have[string(m[1])] {
			t.Errorf("there is no %s", m[1])
		}
	}
}
