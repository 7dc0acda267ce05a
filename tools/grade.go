package tools

import (
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// gradeAll makes the tools of a record of what its server offers.
func gradeAll(s agent.ToolServer, offers []offer) []agent.Tool {
	shipped := shippedFor(s)
	whole := listDigest(offers)
	out := make([]agent.Tool, 0, len(offers))
	for _, o := range offers {
		if len(s.Only) > 0 && !slices.ContainsFunc(s.Only, func(p string) bool { return agent.NamedGrant{Name: p}.Has(o.Method) }) {
			continue
		}
		t := o.Tool
		t.Name, t.Server, t.Digest = agent.ToolName(s.Name, o.Method), s.Name, o.digest
		t.Effect, t.By, t.Idempotent = grade(s, o, shipped)
		t.Changed = changedSince(s, o, whole)
		out = append(out, t)
	}
	return out
}

// grade says what a tool can do, by whom is believed first: the operator, a plugin's manifest or Skep itself, the classification that Skep ships, and
// hints of a server that the operator trusts. Whether a call can be made again is believed of the same.
func grade(s agent.ToolServer, o offer, shipped *classified) (agent.Effect, agent.EffectFrom, bool) {
	own := s.Kind == agent.AgentTools || s.Kind == agent.BuiltIn || o.Own
	again := own && o.Idempotent || s.Trusted && o.Hints != nil && isTrue(o.Hints.Idempotent)
	if e := s.Effects[o.Method]; e != agent.Unclassified {
		return e, agent.FromOperator, again
	}
	if own && o.Declared != agent.Unclassified {
		return o.Declared, agent.FromManifest, again
	}
	if e, idempotent, ok := shipped.of(o.Method); ok {
		if raised := raise(e, o.Hints); raised != e { // hints that nobody believes may make it worse
			return raised, agent.FromHints, false
		}
		return e, agent.FromCatalogue, again || idempotent
	}
	if s.Trusted && o.Hints != nil {
		if e := hinted(*o.Hints); e != agent.Unclassified {
			return e, agent.FromHints, again
		}
	}
	return agent.Unclassified, agent.FromNobody, again
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// hinted reads annotations (MCP, ToolAnnotations). One that says nothing of reading and destroying says nothing.
func hinted(h Hints) agent.Effect {
	switch {
	case isTrue(h.ReadOnly):
		return agent.Read
	case isFalse(h.Destructive):
		return agent.Modify
	case h.ReadOnly == nil && h.Destructive == nil:
		return agent.Unclassified
	}
	return agent.ModifyExecute
}

// raise is what hints add to an effect that comes from elsewhere.
func raise(e agent.Effect, h *Hints) agent.Effect {
	if h == nil {
		return e
	}
	if isFalse(h.ReadOnly) {
		e = max(e, agent.Modify)
	}
	if isTrue(h.Destructive) && !isTrue(h.ReadOnly) {
		e = max(e, agent.ModifyExecute)
	}
	return e
}

// suggest is what a tool's effect may be, for a person who classifies it, and why; it is believed by nobody. Hints say what its server says.
func suggest(t agent.Tool, h *Hints) (agent.Effect, string) {
	if h != nil {
		if e := hinted(*h); e != agent.Unclassified {
			return e, "its server says so"
		}
	}
	words := strings.FieldsFunc(strings.ToLower(splitCamel(t.Method)), func(r rune) bool { return r < 'a' || r > 'z' })
	for _, g := range []struct {
		effect agent.Effect
		words  string
	}{
		{agent.Execute, " run exec execute eval evaluate shell bash command script spawn start process "},
		{agent.ModifyExecute, " delete remove drop kill send post publish merge push pay deploy cancel reset destroy purge write upload click "},
		{agent.Modify, " create add update set edit put insert move rename copy save append comment label assign close open "},
		{agent.Read, " get list read search find show describe fetch query count status view lookup check info tree diff log "},
	} {
		for _, w := range words {
			if strings.Contains(g.words, " "+w+" ") {
				return g.effect, "its name has the word " + w
			}
		}
	}
	return agent.Unclassified, ""
}

// splitCamel puts a space before capitals that follow small letters.
func splitCamel(s string) string {
	var b strings.Builder
	small := false
	for _, r := range s {
		if small && r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
		}
		small = r >= 'a' && r <= 'z'
		b.WriteRune(r)
	}
	return b.String()
}
