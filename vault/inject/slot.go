package inject

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// slot is one place of a request with text that has placeholders.
type slot struct {
	place agent.Place
	parts []part
	text  string // with the secrets in it, once filled
	alone bool   // in the only header of its name
}

// names lists the secrets, each once.
func (s *slot) names() []string {
	var out []string
	for _, p := range s.parts {
		if p.secret != "" && !slices.Contains(out, p.secret) {
			out = append(out, p.secret)
		}
	}
	return out
}

// fits returns an Invalid error when a secret of this kind cannot stand in text like the slot's.
func (s *slot) fits(secret agent.Secret) error {
	if secret.Kind == agent.SecretValue {
		return nil
	}
	schemes := map[agent.SecretKind][]string{
		agent.SecretBasic: {"", "Basic "}, agent.SecretAWS: {""}, agent.SecretGitHub: {"", "Bearer ", "token "}, agent.SecretOAuth: {"", "Bearer "},
	}[secret.Kind]
	before := ""
	parts := s.parts
	if len(parts) == 2 {
		before, parts = parts[0].text, parts[1:]
	}
	fit := slices.ContainsFunc(schemes, func(scheme string) bool { return strings.EqualFold(scheme, before) })
	if s.place != agent.PlaceAuthorization() || !s.alone || len(parts) != 1 || parts[0].secret == "" || !fit {
		return invalid("the secret "+quote(secret.Name)+" of kind "+secret.Kind.String()+" goes into the authorization header, alone",
			"send authorization: {{secret:"+secret.Name+"}}")
	}
	return nil
}

// fill makes the text. What a secret's value holds is taken as it is: a placeholder in it stays one.
func (s *slot) fill(secrets map[string]*opened) error {
	var b strings.Builder
	for _, p := range s.parts {
		if p.secret == "" {
			b.WriteString(p.text)
			continue
		}
		o := secrets[p.secret]
		if len(s.parts) == 1 && o.scheme != "" {
			b.WriteString(o.scheme + " ")
		}
		if s.place.Kind == agent.PlaceHeader && !isFieldValue(o.text) {
			return invalid("the value of the secret "+quote(p.secret)+" cannot stand in a header: it has a line break or another control character",
				"set it again without one: printf %s \"$VALUE\" | skep secret set "+p.secret)
		}
		if strings.HasPrefix(s.place.Name, "/") && !utf8.ValidString(o.text) {
			return invalid("the value of the secret "+quote(p.secret)+" cannot stand in JSON: it is not UTF-8", "encode it first, such as in base64")
		}
		b.WriteString(o.text)
	}
	s.text = b.String()
	return nil
}

// isFieldValue reports whether s can be in the value of a header (RFC 9110, section 5.5).
func isFieldValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return isControl(r) && r != '\t' })
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
