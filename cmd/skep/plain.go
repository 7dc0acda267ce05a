package main

import (
	"fmt"
	"strings"
	"unicode"
)

// plain shows the characters that a terminal would obey, and those that turn the direction of a text: what agents say must not
// pass for something else. Line breaks and tabs stay, and so does what is merely unseen, such as the parts of an emoji: what a person
// decides by is shown with package visible, which is stricter.
func plain(s string) string {
	if !strings.ContainsFunc(s, obeyed) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if obeyed(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func obeyed(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}
