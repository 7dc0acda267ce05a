package price

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// rule says of a name, which is in small letters, whether it is one that is meant.
type rule struct {
	or, and                        []*rule
	equals, starts, ends, contains string
	kind                           ruleKind
	regex, not                     *regexp.Regexp // not is what must not stand at the beginning
}

type ruleKind uint8

const (
	ruleOr ruleKind = iota
	ruleAnd
	ruleEquals
	ruleStarts
	ruleEnds
	ruleContains
	ruleRegex
)

// says reports whether the name is meant. No rule means no name.
func (r *rule) says(name string) bool {
	if r == nil {
		return false
	}
	switch r.kind {
	case ruleOr:
		for _, x := range r.or {
			if x.says(name) {
				return true
			}
		}
		return false
	case ruleAnd:
		for _, x := range r.and {
			if !x.says(name) {
				return false
			}
		}
		return true
	case ruleEquals:
		return name == r.equals
	case ruleStarts:
		return strings.HasPrefix(name, r.starts)
	case ruleEnds:
		return strings.HasSuffix(name, r.ends)
	case ruleContains:
		return strings.Contains(name, r.contains)
	}
	return r.regex.MatchString(name) && (r.not == nil || !r.not.MatchString(name))
}

// UnmarshalJSON reads a rule, which is an object with one field.
func (r *rule) UnmarshalJSON(b []byte) error {
	var one map[string]json.RawMessage
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	if len(one) != 1 {
		return fmt.Errorf("a rule has %d fields", len(one))
	}
	for name, raw := range one {
		switch name {
		case "or":
			r.kind = ruleOr
			return json.Unmarshal(raw, &r.or)
		case "and":
			r.kind = ruleAnd
			return json.Unmarshal(raw, &r.and)
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		if name == "regex" {
			r.kind = ruleRegex
			return r.compile(s)
		}
		s = strings.ToLower(s)
		switch name {
		case "equals":
			r.kind, r.equals = ruleEquals, s
		case "starts_with":
			r.kind, r.starts = ruleStarts, s
		case "ends_with":
			r.kind, r.ends = ruleEnds, s
		case "contains":
			r.kind, r.contains = ruleContains, s
		default:
			return fmt.Errorf("there is no rule %q", name)
		}
	}
	return nil
}

// compile takes apart an expression that begins with ^(?!...), which says what must not stand there, and which Go has no word for.
func (r *rule) compile(s string) (err error) {
	if rest, ok := strings.CutPrefix(s, "^(?!"); ok {
		depth, at := 1, 0
		for ; at < len(rest) && depth > 0; at++ {
			switch rest[at] {
			case '\\':
				at++
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		if depth > 0 {
			return fmt.Errorf("%q has no end of what must not be", s)
		}
		if r.not, err = regexp.Compile("^(?:" + rest[:at-1] + ")"); err != nil {
			return err
		}
		s = "^" + rest[at:]
	}
	r.regex, err = regexp.Compile(s)
	return err
}
