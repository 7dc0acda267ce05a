package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// parseRule reads a line: allow|ask|deny PATTERN [for DURATION] [count N] [because TEXT].
func parseRule(line string) (*rule, error) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	r := &rule{text: strings.TrimSpace(line)}
	if err := r.verdict.UnmarshalText([]byte(verb)); err != nil {
		hint := ""
		if near := nearest(strings.ToLower(verb), []string{"allow", "ask", "deny"}); near != "" {
			hint = "; " + near + " is near"
		}
		return nil, agent.Errorf(agent.Invalid, "a rule begins with allow, ask or deny, not with %q%s", clip(verb), hint)
	}
	if strings.TrimSpace(rest) == "" {
		return nil, agent.Errorf(agent.Invalid, "%s what? Write a tool: %s SERVER.TOOL, %s SERVER.* or %s *", verb, verb, verb, verb)
	}
	p, rest, err := parsePattern(rest)
	if err != nil {
		return nil, err
	}
	r.pattern = p
	if p.tool != nil {
		if server, _, ok := strings.Cut(p.tool.text, "."); ok && !strings.ContainsAny(server, `*?{\`) && ascii(server) {
			r.server = server + "."
		}
	}
	return r, r.options(strings.TrimSpace(rest))
}

// options reads what follows the pattern.
func (r *rule) options(rest string) error {
	for rest != "" {
		word, after, _ := strings.Cut(rest, " ")
		after = strings.TrimSpace(after)
		value, more, _ := strings.Cut(after, " ")
		switch word {
		case "because":
			if after == "" {
				return agent.Errorf(agent.Invalid, "because what? Write the reason to the end of the line")
			}
			r.because = after
			r.text = strings.TrimSpace(strings.TrimSuffix(r.text, rest))
			return nil
		case "for", "count":
			if r.verdict != agent.Ask {
				return agent.Errorf(agent.Invalid, "%s says how far an approval reaches, so it is for ask, not for %s", word, r.verdict)
			}
			var err error
			if word == "for" {
				r.hold, err = duration(value, maxHold)
			} else if r.count, err = strconv.Atoi(value); err != nil || r.count < 1 || r.count > 1_000_000 {
				err = agent.Errorf(agent.Invalid, "count %s is no number of calls: write count 20", clip(value))
			}
			if err != nil {
				return err
			}
			rest = strings.TrimSpace(more)
		default:
			return agent.Errorf(agent.Invalid, "%s follows the pattern %s: there may be for 30m, count 20 and because TEXT", clip(rest), r.pattern.text)
		}
	}
	return nil
}

// duration reads 90s, 30m, 12h or 7d.
func duration(s string, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok && err != nil {
		var n int
		if n, err = strconv.Atoi(days); err == nil {
			d = time.Duration(min(max(n, 0), 36500)) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 || d > most {
		return 0, agent.Errorf(agent.Invalid, "%q is no duration up to %s: write 90s, 30m, 12h or 7d", clip(s), long(most))
	}
	return d, nil
}

func long(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// nearest returns which of list comes near to s; "" for none.
func nearest(s string, list []string) string { return strings.Join(phrase.Near(s, list, 1), "") }
