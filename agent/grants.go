package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Grants lists what an agent may do, or in a manifest what it asks for. Nothing is granted by default.
type Grants struct {
	HTTP    []HTTPGrant   `json:"http,omitempty"`    // requests it may make
	Secrets []SecretGrant `json:"secrets,omitempty"` // secrets it may use, and can never read
	Agents  []NamedGrant  `json:"agents,omitempty"`  // other agents of its app that it may call
	Models  []NamedGrant  `json:"models,omitempty"`  // model routes it may use
	Tools   []NamedGrant  `json:"tools,omitempty"`   // tools it may call: "server.tool", or "server.*"
	State   *StateGrant   `json:"state,omitempty"`   // key-value state of its own
}

// Rate bounds how often a grant may be used, by all cells of the agent together. A zero field means no bound.
type Rate struct {
	PerCall   int64 `json:"per_call,omitempty"` // within one call or run
	PerMinute int64 `json:"per_minute,omitempty"`
	PerDay    int64 `json:"per_day,omitempty"` // UTC
}

// HTTPGrant allows the requests of one target. In JSON it is the target's text, or {"allow": TEXT, "limits": {...}}.
type HTTPGrant struct {
	Allow  Target `json:"allow"`
	Limits Rate   `json:"limits,omitzero"`
}

// SecretGrant allows the use of a secret. It can narrow where the secret may go, and never widen what the secret itself is
// bound to. In JSON it is the name, or {"name": NAME, "to": [TARGET...], "limits": {...}}.
type SecretGrant struct {
	Name   string   `json:"name"`
	To     []Target `json:"to,omitempty"` // empty means wherever the secret is bound to
	Limits Rate     `json:"limits,omitzero"`
}

// NamedGrant allows the use of what has a name. In JSON it is the name, or {"name": NAME, "limits": {...}}.
type NamedGrant struct {
	Name   string `json:"name"`
	Limits Rate   `json:"limits,omitzero"`
}

// StateGrant allows key-value state. A zero field means the default.
type StateGrant struct {
	Bytes int64 `json:"bytes,omitempty"` // of all keys and values together
	Keys  int64 `json:"keys,omitempty"`
}

// The sizes of a state grant that names none, and the most that one may name.
const (
	DefaultStateBytes = 16 << 20
	DefaultStateKeys  = 10_000
	MaxStateBytes     = 1 << 30
	MaxStateKeys      = 1_000_000
)

// maxGrants is the most entries of one list of grants.
const maxGrants = 256

// AgentGrants returns grants to call the named agents.
func AgentGrants(names ...string) Grants {
	var g Grants
	for _, n := range names {
		g.Agents = append(g.Agents, NamedGrant{Name: n})
	}
	return g
}

func (g HTTPGrant) MarshalJSON() ([]byte, error) {
	type plain HTTPGrant
	return short(g.Limits == (Rate{}), g.Allow, plain(g))
}

func (g *HTTPGrant) UnmarshalJSON(b []byte) error {
	type plain HTTPGrant
	*g = HTTPGrant{}
	return readShort(b, &g.Allow, (*plain)(g))
}

func (g SecretGrant) MarshalJSON() ([]byte, error) {
	type plain SecretGrant
	return short(g.Limits == (Rate{}) && len(g.To) == 0, g.Name, plain(g))
}

func (g *SecretGrant) UnmarshalJSON(b []byte) error {
	type plain SecretGrant
	*g = SecretGrant{}
	return readShort(b, &g.Name, (*plain)(g))
}

func (g NamedGrant) MarshalJSON() ([]byte, error) {
	type plain NamedGrant
	return short(g.Limits == (Rate{}), g.Name, plain(g))
}

func (g *NamedGrant) UnmarshalJSON(b []byte) error {
	type plain NamedGrant
	*g = NamedGrant{}
	return readShort(b, &g.Name, (*plain)(g))
}

// short is a grant in JSON: a text where that says all, else an object.
func short(all bool, text, object any) ([]byte, error) {
	if all {
		return json.Marshal(text)
	}
	return json.Marshal(object)
}

// readShort reads either form. Fields that are not known are refused: a misspelt limit must not pass for none.
func readShort(b []byte, text, object any) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte(`"`)) {
		return json.Unmarshal(b, text)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(object)
}

// Check returns an Invalid error naming the first grant that cannot be, and puts lists in order.
func (g *Grants) Check() error {
	for _, l := range []struct {
		name string
		n    int
	}{
		{"http", len(g.HTTP)}, {"secrets", len(g.Secrets)}, {"agents", len(g.Agents)}, {"models", len(g.Models)}, {"tools", len(g.Tools)},
	} {
		if l.n > maxGrants {
			return Errorf(Invalid, "grants.%s has %d entries, more than %d", l.name, l.n, maxGrants)
		}
	}
	for _, h := range g.HTTP {
		if _, err := ParseTarget(h.Allow.String()); err != nil {
			return err
		}
		if err := h.Limits.check("grants.http " + h.Allow.String()); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for i := range g.Secrets {
		s := &g.Secrets[i]
		if err := CheckName("grants.secrets: secret", s.Name); err != nil {
			return err
		}
		if seen[s.Name] {
			return Errorf(Invalid, "grants.secrets names %q twice", s.Name)
		}
		seen[s.Name] = true
		if len(s.To) > maxGrants {
			return Errorf(Invalid, "grants.secrets %s.to has %d entries, more than %d", s.Name, len(s.To), maxGrants)
		}
		if err := s.Limits.check("grants.secrets " + s.Name); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		what  string
		list  *[]NamedGrant
		check func(string) error
	}{
		{"agents", &g.Agents, func(n string) error { return CheckName("grants.agents: agent", n) }},
		{"models", &g.Models, func(n string) error { return checkLabel("grants.models", n) }},
		{"tools", &g.Tools, func(n string) error { return checkLabel("grants.tools", n) }},
	} {
		if err := checkNamed(l.what, l.list, l.check); err != nil {
			return err
		}
	}
	if s := g.State; s != nil && (s.Bytes < 0 || s.Bytes > MaxStateBytes || s.Keys < 0 || s.Keys > MaxStateKeys) {
		return Errorf(Invalid, "grants.state: bytes must be between 0 and %d, keys between 0 and %d", int64(MaxStateBytes), MaxStateKeys)
	}
	return nil
}

func checkNamed(what string, list *[]NamedGrant, check func(string) error) error {
	for _, n := range *list {
		if err := check(n.Name); err != nil {
			return err
		}
		if err := n.Limits.check("grants." + what + " " + n.Name); err != nil {
			return err
		}
	}
	slices.SortStableFunc(*list, func(a, b NamedGrant) int { return strings.Compare(a.Name, b.Name) })
	*list = slices.Compact(*list)
	for i := 1; i < len(*list); i++ {
		if (*list)[i].Name == (*list)[i-1].Name {
			return Errorf(Invalid, "grants.%s names %q twice", what, (*list)[i].Name)
		}
	}
	return nil
}

// checkLabel allows what tools and model routes are called: no spaces or control characters.
func checkLabel(what, s string) error {
	if s == "" || len(s) > 200 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Errorf(Invalid, "%s: %s is not a name", what, quote(s))
	}
	return nil
}

func (r Rate) check(what string) error {
	if r.PerCall < 0 || r.PerMinute < 0 || r.PerDay < 0 {
		return Errorf(Invalid, "%s: a limit is negative", what)
	}
	return nil
}

// Words says the bounds in English, beginning with a comma, or nothing when there are none.
func (r Rate) Words() string {
	var w string
	for _, b := range []struct {
		n    int64
		what string
	}{{r.PerCall, "a call"}, {r.PerMinute, "a minute"}, {r.PerDay, "a day"}} {
		if b.n > 0 {
			w += fmt.Sprintf(", at most %d %s", b.n, b.what)
		}
	}
	return w
}

// Words says each grant in a sentence. It returns nothing when nothing is granted.
func (g Grants) Words() []string {
	var out []string
	for _, h := range g.HTTP {
		out = append(out, "make "+h.Allow.Words()+h.Limits.Words())
	}
	for _, s := range g.Secrets {
		where := "wherever it is bound to"
		if len(s.To) > 0 {
			to := make([]string, len(s.To))
			for i, t := range s.To {
				to[i] = t.Words()
			}
			where = "in " + joinWords(to)
		}
		out = append(out, fmt.Sprintf("use the secret %q without reading it, %s%s", s.Name, where, s.Limits.Words()))
	}
	for _, l := range []struct {
		verb, what string
		list       []NamedGrant
	}{{"call", "agent", g.Agents}, {"use", "model", g.Models}, {"call", "tool", g.Tools}} {
		for _, n := range l.list {
			out = append(out, fmt.Sprintf("%s the %s %q%s", l.verb, l.what, n.Name, n.Limits.Words()))
		}
	}
	if g.State != nil {
		s := g.State.Or()
		out = append(out, fmt.Sprintf("keep state of its own, at most %s in %d keys", sizeWords(s.Bytes), s.Keys))
	}
	return out
}

// Or returns the grant with its zero fields set to the defaults.
func (s StateGrant) Or() StateGrant {
	return StateGrant{Bytes: cmp.Or(s.Bytes, DefaultStateBytes), Keys: cmp.Or(s.Keys, DefaultStateKeys)}
}

// Beyond returns in words what g allows and old does not: nothing when a change from old to g only narrows.
func (g Grants) Beyond(old Grants) []string {
	var more Grants
	for _, h := range g.HTTP {
		if !slices.ContainsFunc(old.HTTP, func(o HTTPGrant) bool { return o.Allow.Covers(h.Allow) && o.Limits.covers(h.Limits) }) {
			more.HTTP = append(more.HTTP, h)
		}
	}
	for _, s := range g.Secrets {
		if !slices.ContainsFunc(old.Secrets, func(o SecretGrant) bool { return o.covers(s) }) {
			more.Secrets = append(more.Secrets, s)
		}
	}
	for _, l := range []struct{ got, old, more *[]NamedGrant }{
		{&g.Agents, &old.Agents, &more.Agents}, {&g.Models, &old.Models, &more.Models}, {&g.Tools, &old.Tools, &more.Tools},
	} {
		for _, n := range *l.got {
			if !slices.ContainsFunc(*l.old, func(o NamedGrant) bool { return nameCovers(o.Name, n.Name) && o.Limits.covers(n.Limits) }) {
				*l.more = append(*l.more, n)
			}
		}
	}
	if g.State != nil && (old.State == nil || g.State.Or().Bytes > old.State.Or().Bytes || g.State.Or().Keys > old.State.Or().Keys) {
		more.State = g.State
	}
	return more.Words()
}

// Loosened returns in words the limits of old that g has no more, or higher, while it still allows some of what they were for.
// A limit moves to no other grant: one that is split would count each part by itself, and one under other words begins anew.
func (g Grants) Loosened(old Grants) []string {
	var out []string
	add := func(kind, what string, was Rate, meets, kept bool) {
		if was != (Rate{}) && meets && !kept {
			out = append(out, fmt.Sprintf("use the %s grant %s without its limit%s", kind, quote(what), was.Words()))
		}
	}
	for _, o := range old.HTTP {
		add("http", o.Allow.String(), o.Limits, slices.ContainsFunc(g.HTTP, func(h HTTPGrant) bool { return o.Allow.meets(h.Allow) }),
			slices.ContainsFunc(g.HTTP, func(h HTTPGrant) bool { return h.Allow.String() == o.Allow.String() && o.Limits.covers(h.Limits) }))
	}
	for _, l := range []struct {
		kind     string
		old, now []NamedGrant
	}{{"agents", old.Agents, g.Agents}, {"models", old.Models, g.Models}, {"tools", old.Tools, g.Tools}} {
		for _, o := range l.old {
			add(l.kind, o.Name, o.Limits, slices.ContainsFunc(l.now, func(n NamedGrant) bool { return o.Has(n.Name) || n.Has(o.Name) }),
				slices.ContainsFunc(l.now, func(n NamedGrant) bool { return n.Name == o.Name && o.Limits.covers(n.Limits) }))
		}
	}
	return out
}

func (s SecretGrant) covers(u SecretGrant) bool {
	if s.Name != u.Name || !s.Limits.covers(u.Limits) {
		return false
	}
	if len(s.To) == 0 {
		return true
	}
	for _, t := range u.To {
		if !slices.ContainsFunc(s.To, func(o Target) bool { return o.Covers(t) }) {
			return false
		}
	}
	return len(u.To) > 0
}

// Has reports whether the grant allows the secret in a request.
func (s SecretGrant) Has(r Request) bool {
	return len(s.To) == 0 || slices.ContainsFunc(s.To, func(t Target) bool { return t.Has(r) })
}

// nameCovers reports whether every name that u stands for is one of t's: "github.*" covers "github.create_issue".
func nameCovers(t, u string) bool {
	prefix, open := strings.CutSuffix(t, "*")
	return t == u || open && strings.HasPrefix(u, prefix)
}

func (r Rate) covers(u Rate) bool {
	within := func(u, r int64) bool { return r == 0 || u != 0 && u <= r }
	return within(u.PerCall, r.PerCall) && within(u.PerMinute, r.PerMinute) && within(u.PerDay, r.PerDay)
}

// Has reports whether the grant allows the use of what has a name.
func (n NamedGrant) Has(name string) bool { return nameCovers(n.Name, name) }

// sizeWords is a number of bytes, exactly.
func sizeWords(n int64) string {
	switch {
	case n > 0 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MB", n>>20)
	case n > 0 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
