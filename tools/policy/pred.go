package policy

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// pred is a condition on an argument: NAME OP VALUE.
type pred struct {
	text  string
	name  string
	path  []string
	op    string
	glob  *glob   // of = and !=
	bound float64 // of the others
}

var predText = regexp.MustCompile(`^\s*([\pL_$*][\pL\pN_$*-]*(?:\.[\pL\pN_$*-]+)*)(==|!=|>=|<=|=|>|<)`)

// parsePred reads a condition. ok is false for what is none.
func parsePred(s string) (p pred, ok bool, err error) {
	m := predText.FindStringSubmatch(s)
	if m == nil {
		return p, false, nil
	}
	p = pred{text: strings.TrimSpace(s), name: m[1], path: strings.Split(m[1], "."), op: m[2]}
	val := strings.TrimSpace(s[len(m[0]):])
	switch p.op {
	case "==":
		return p, true, agent.Errorf(agent.Invalid, "there is no ==: write %s=%s", p.name, val)
	case "=", "!=":
		if val == "" {
			return p, true, agent.Errorf(agent.Invalid, "%s has no value: write %s%sVALUE, with \"\" for an empty one", p.text, p.name, p.op)
		}
		if val, err = unquote(val); err != nil {
			return p, true, err
		}
		p.glob, err = newGlob(val)
	default:
		if p.bound, err = strconv.ParseFloat(val, 64); err != nil || math.IsNaN(p.bound) {
			return p, true, agent.Errorf(agent.Invalid, "%s compares with no number: write %s%s10, or %s=VALUE for a text", p.text, p.name, p.op, p.name)
		}
	}
	return p, true, err
}

// unquote takes quotes off; what stood in them has no special meaning.
func unquote(s string) (string, error) {
	if !strings.ContainsAny(s, `'"`) {
		return s, nil
	}
	var b strings.Builder
	var quote byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote && quote != 0:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(s):
			i++
			b.WriteByte('\\')
			b.WriteByte(s[i])
		case quote != 0 && strings.IndexByte(`*?{\`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", agent.Errorf(agent.Invalid, "a quote is not closed in %s", clip(s))
	}
	return b.String(), nil
}

// eval compares the argument, or the arguments, that the condition is about. For a rule that allows, each of them has to pass surely; for
// one that denies or asks, it is enough that one may.
func (p *pred) eval(s *scene, verdict agent.Verdict) truth {
	found, exact := s.args.find(p.path, nil)
	if verdict == agent.Allow {
		if len(found) == 0 {
			if p.op == "!=" && s.lacks(p) {
				return yes
			}
			return no
		}
		if !exact {
			return no
		}
		for _, v := range found {
			if p.compare(v, true) != yes {
				return no
			}
		}
		return yes
	}
	if len(found) == 0 {
		switch {
		case p.path[0] == "*" || !s.declares(p.path[0]):
			return no
		case p.op == "!=":
			return yes
		}
		return maybe
	}
	t := no
	for _, v := range found {
		t = max(t, p.compare(v, false))
	}
	return t
}

func (p *pred) compare(v *value, sure bool) truth {
	switch p.op {
	case "=", "!=":
		switch v.kind {
		case null:
			return no
		case array, object:
			return unclear
		}
		t := no
		if sure != (p.op == "!=") { // a refusal of what is equal has to find each way to be so
			if p.glob.surely(v.text) {
				t = yes
			}
		} else {
			t = p.glob.perhaps(v.text)
		}
		if p.op == "=" {
			return t
		}
		switch t {
		case yes:
			return no
		case no:
			return yes
		}
		return unclear
	}
	var n float64
	var err error
	switch {
	case v.kind == number:
		n, err = strconv.ParseFloat(v.text, 64)
	case v.kind == text && !sure:
		t := strings.TrimSpace(v.text)
		if n, err = strconv.ParseFloat(t, 64); err != nil {
			var i int64
			i, err = strconv.ParseInt(t, 0, 64)
			n = float64(i)
		}
	default:
		return unclear
	}
	if err != nil || math.IsNaN(n) {
		return unclear
	}
	holds := false
	switch p.op {
	case ">":
		holds = n > p.bound
	case ">=":
		holds = n >= p.bound
	case "<":
		holds = n < p.bound
	case "<=":
		holds = n <= p.bound
	}
	if holds {
		return yes
	}
	return no
}
