package agent

import (
	"fmt"
	"slices"
	"strings"
)

// With returns g with more added. What more names of a list's kind takes the place of what g has under the same name, limits
// included. Both are left as they are.
func (g Grants) With(more Grants) Grants {
	out := Grants{
		HTTP:    put(g.HTTP, more.HTTP, func(h HTTPGrant) string { return h.Allow.String() }),
		Secrets: put(g.Secrets, more.Secrets, func(s SecretGrant) string { return s.Name }),
		Agents:  put(g.Agents, more.Agents, NamedGrant.key),
		Models:  put(g.Models, more.Models, NamedGrant.key),
		Tools:   put(g.Tools, more.Tools, NamedGrant.key),
		State:   g.State,
	}
	if more.State != nil {
		out.State = more.State
	}
	return out
}

func (n NamedGrant) key() string { return n.Name }

func put[T any](list, more []T, key func(T) string) []T {
	out := slices.Clone(list)
	for _, m := range more {
		if i := slices.IndexFunc(out, func(t T) bool { return key(t) == key(m) }); i >= 0 {
			out[i] = m
		} else {
			out = append(out, m)
		}
	}
	return out
}

// Without returns g without what less allows. It takes whole grants away, never a part of one: when nothing is within what is to
// be taken away, or when a wider grant would still allow it, that is an Invalid error and names the grant to change.
func (g Grants) Without(less Grants) (Grants, error) {
	out, err := g, error(nil)
	out.HTTP, err = take(err, "http", g.HTTP, less.HTTP, func(h HTTPGrant) string { return h.Allow.String() },
		func(a, b HTTPGrant) bool { return a.Allow.Covers(b.Allow) })
	out.Secrets, err = take(err, "secrets", g.Secrets, less.Secrets, func(s SecretGrant) string { return s.Name },
		func(a, b SecretGrant) bool { return a.Name == b.Name })
	for _, l := range []struct {
		kind      string
		list, out *[]NamedGrant
		less      []NamedGrant
	}{
		{"agents", &g.Agents, &out.Agents, less.Agents}, {"models", &g.Models, &out.Models, less.Models},
		{"tools", &g.Tools, &out.Tools, less.Tools},
	} {
		*l.out, err = take(err, l.kind, *l.list, l.less, NamedGrant.key, func(a, b NamedGrant) bool { return nameCovers(a.Name, b.Name) })
	}
	if less.State != nil && err == nil {
		if g.State == nil {
			err = notGranted("state", "state", nil)
		}
		out.State = nil
	}
	if err != nil {
		return g, err
	}
	return out, nil
}

// take does one list of Without, unless an error came before.
func take[T any](before error, kind string, list, less []T, key func(T) string, covers func(a, b T) bool) ([]T, error) {
	if before != nil {
		return list, before
	}
	var out []T
	for _, t := range list {
		if !slices.ContainsFunc(less, func(l T) bool { return covers(l, t) }) {
			out = append(out, t)
		}
	}
	for _, l := range less {
		if i := slices.IndexFunc(out, func(t T) bool { return covers(t, l) }); i >= 0 {
			return list, &Error{
				Kind: Invalid, Msg: fmt.Sprintf("grants.%s: %s would still be allowed by the grant %s", kind, quote(key(l)), quote(key(out[i]))),
				Hint: "take that grant away, and grant the part of it that is to stay",
			}
		}
		if !slices.ContainsFunc(list, func(t T) bool { return covers(l, t) }) {
			var there []string
			for _, t := range list {
				there = append(there, key(t))
			}
			return list, notGranted(kind, key(l), there)
		}
	}
	return out, nil
}

func notGranted(kind, what string, there []string) error {
	hint := "there are no grants of this kind"
	if len(there) > 0 {
		hint = "granted are: " + strings.Join(there, ", ")
	}
	return &Error{Kind: Invalid, Msg: fmt.Sprintf("grants.%s: %s is not granted, so it cannot be taken away", kind, quote(what)), Hint: hint}
}

// Empty reports whether nothing is granted.
func (g Grants) Empty() bool {
	return len(g.HTTP)+len(g.Secrets)+len(g.Agents)+len(g.Models)+len(g.Tools) == 0 && g.State == nil
}
