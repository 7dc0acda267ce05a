package inject

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// opening and closing stand around a secret's name.
const (
	opening = "{{secret:"
	closing = "}}"
)

// part is a piece of text, or a placeholder of the named secret.
type part struct {
	text   string
	secret string
}

// parse splits text at its placeholders. It returns nil when there is none, and an Invalid error for one that is not whole or
// whose name cannot be.
func parse(text string) ([]part, error) {
	var parts []part
	for {
		before, rest, found := strings.Cut(text, opening)
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, closing)
		if !closed {
			return nil, invalid("a placeholder has no end", "write {{secret:NAME}}")
		}
		if err := agent.CheckName("in a placeholder: secret", name); err != nil {
			return nil, err
		}
		if before != "" {
			parts = append(parts, part{text: before})
		}
		parts = append(parts, part{secret: name})
		text = after
	}
	if parts != nil && text != "" {
		parts = append(parts, part{text: text})
	}
	return parts, nil
}

var nameRE = regexp.MustCompile(`(?i)\{\{ ?secret:([a-z0-9._-]{1,63})`)

// misplaced is the error for what looks like a placeholder in text, at a place where none is replaced.
func misplaced(text, where, hint string) error {
	what := "a secret"
	for range 4 {
		if m := nameRE.FindStringSubmatch(text); m != nil {
			what = "the secret " + quote(m[1])
			break
		}
		plain, err := url.PathUnescape(text)
		if err != nil || plain == text {
			break
		}
		text = plain
	}
	return invalid("a placeholder of "+what+" stands "+where, hint)
}

const places = "a placeholder may stand in the value of a header, of a query parameter, of a form's field, or in a string of JSON; and only where the secret is bound to"

func invalid(msg, hint string) error { return &agent.Error{Kind: agent.Invalid, Msg: msg, Hint: hint} }

func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

// clip cuts what a guest wrote to what a message may hold.
func clip(s string) string { return strings.ToValidUTF8(phrase.Clip(s, 200), "?") }
