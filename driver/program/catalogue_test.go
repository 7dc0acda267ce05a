package program

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/driver/backend"
)

// TestCatalogue holds what backends say that they can against the table of the page, where a person reads it. The matrix of containers (cmd/skep) holds it
// against what the agents do.
func TestCatalogue(t *testing.T) {
	page, err := os.ReadFile("../../docs/design/backends.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rule := "| ability |", "|---|"
	for _, b := range Backends() {
		head, rule = head+" "+b.Spec().Name+" |", rule+"---|"
	}
	table := head + "\n" + rule + "\n"
	for _, a := range backend.Abilities() {
		table += "| `" + a + "` |"
		for _, b := range Backends() {
			has := " no |"
			if slices.Contains(b.Spec().Abilities, a) {
				has = " yes |"
			}
			table += has
		}
		table += "\n"
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/design/backends.md has not this table:\n%s", table)
	}
}
