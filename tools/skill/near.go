package skill

import (
	"strings"

	"github.com/skep-dev/skep/internal/phrase"
)

// near returns up to three of names that one may have meant by name: those that come near to it, else those that it is a part of, or they of it.
func near(name string, names []string) []string {
	const most = 3
	like := phrase.Near(name, names, most)
	if name = strings.ToLower(name); len(like) > 0 || len(name) < 3 {
		return like
	}
	for _, n := range names {
		if len(like) < most && (strings.Contains(n, name) || strings.Contains(name, n)) {
			like = append(like, n)
		}
	}
	return like
}
