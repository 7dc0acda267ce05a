package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// expand puts the values of secrets in the place of each ${secret:NAME} of a text, and returns those values besides.
func (s *source) expand(ctx context.Context, text, to string) (out string, values []string, err error) {
	out, err = replace(text, func(name string) (string, error) {
		if s.o.Secret == nil {
			return "", agent.Errorf(agent.Unavailable, "secret %q is named, and there is no vault", name)
		}
		value, err := s.o.Secret(ctx, s.rec.App, name, to)
		values = append(values, value)
		return value, err
	})
	if err != nil {
		return "", nil, err
	}
	return out, values, nil
}

// names checks what secrets a text names.
func names(text string) error {
	_, err := replace(text, func(string) (string, error) { return "", nil })
	return err
}

// replace puts what with returns in the place of each ${secret:NAME}.
func replace(text string, with func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${secret:")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, found := strings.Cut(rest, "}")
		if !found {
			return "", agent.Errorf(agent.Invalid, "${secret: has no } after it")
		}
		if err := agent.CheckName("secret", name); err != nil {
			return "", err
		}
		value, err := with(name)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		text = after
	}
}

func checkEnv(name, value string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
		return agent.Errorf(agent.Invalid, "environment variable %q is not valid", name)
	}
	return names(value)
}

func checkHeader(name, value string) error {
	ok := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", r)
	})
	if !ok || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return agent.Errorf(agent.Invalid, "header %q is not valid", name)
	}
	switch lower := strings.ToLower(name); {
	case lower == "host", lower == "content-length", lower == "transfer-encoding", lower == "connection", lower == "content-type",
		lower == "accept", lower == "last-event-id", strings.HasPrefix(lower, "mcp-"):
		return agent.Errorf(agent.Invalid, "header %s is the protocol's own", name)
	}
	return names(value)
}

// kept is a text of a server's that is shown, cut to a bound.
func kept(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("... (%d bytes more)", len(text)-most)
}
