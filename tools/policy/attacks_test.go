package policy

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// attack is a row of the table.
type attack struct {
	line   int
	name   string
	policy string
	call   Call
	want   agent.Verdict
	rule   string
}

func readAttacks(t testing.TB) []attack {
	t.Helper()
	f, err := os.Open("testdata/attacks.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []attack
	var text strings.Builder
	inside := false
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	n := 0
	next := func() string { n++; in.Scan(); return in.Text() }
	for in.Scan() {
		n++
		line := in.Text()
		switch {
		case line == "policy":
			text.Reset()
			inside = true
		case line == "end":
			inside = false
		case inside:
			text.WriteString(line + "\n")
		case strings.HasPrefix(line, "== "):
			a := attack{line: n, name: line[3:], policy: text.String()}
			tool, args, _ := strings.Cut(next(), " ")
			name, effect, graded := strings.Cut(tool, "@")
			a.call.Tool.Name, a.call.Tool.Effect = name, agent.Unclassified
			if graded {
				if err := a.call.Tool.Effect.UnmarshalText([]byte(effect)); err != nil {
					t.Fatalf("line %d: %v", n, err)
				}
			}
			if a.call.Args = json.RawMessage(args); !strings.HasPrefix(args, "{") && !strings.HasPrefix(args, "[") || strings.HasPrefix(args, "{ ") || strings.HasPrefix(args, "{rm") || strings.HasPrefix(args, "[[") {
				if q, err := strconv.Unquote(args); err == nil {
					args = q
				}
				a.call.Args, _ = json.Marshal(map[string]string{"command": strings.ReplaceAll(args, "HUGE", "echo "+strings.Repeat("x", 70<<10))})
			}
			a.call.Args = json.RawMessage(strings.ReplaceAll(string(a.call.Args), `"HUGE"`, `"/tmp/`+strings.Repeat("x", 70<<10)+`"`))
			verdict, rule, _ := strings.Cut(next(), " ")
			if err := a.want.UnmarshalText([]byte(verdict)); err != nil {
				t.Fatalf("line %d: %v", n, err)
			}
			a.rule = rule
			out = append(out, a)
		case line != "" && !strings.HasPrefix(line, "#"):
			t.Fatalf("line %d: what is %q?", n, line)
		}
	}
	if in.Err() != nil {
		t.Fatal(in.Err())
	}
	return out
}

func TestAttacks(t *testing.T) {
	rows := readAttacks(t)
	if len(rows) < 200 {
		t.Fatalf("only %d attacks", len(rows))
	}
	parsed := map[string]*Policy{}
	for _, a := range rows {
		p := parsed[a.policy]
		if p == nil {
			var err error
			if p, err = Parse([]byte(a.policy), "policy"); err != nil {
				t.Fatalf("line %d: %v", a.line, err)
			}
			p = p.Guard("/var/lib/skep")
			parsed[a.policy] = p
		}
		d := p.Judge(a.call)
		if d.Verdict != a.want || !strings.Contains(d.Rule+" "+d.Reason, a.rule) && a.rule != "-" {
			t.Errorf("attacks.txt:%d: %s: %s %.200s\n\tgot  %s by %q: %s\n\twant %s by %q", a.line, a.name, a.call.Tool.Name, a.call.Args, d.Verdict, d.Rule, d.Reason, a.want, a.rule)
		}
		if d.Reason == "" || d.Rule == "" {
			t.Errorf("attacks.txt:%d: %s: rule %q, reason %q", a.line, a.name, d.Rule, d.Reason)
		}
	}
}

// TestAttacksCanFail judges each row by a policy that looks at nothing: what has to be stopped gets through, and what has to pass does not. So a
// row that is never stopped, or always, would show.
func TestAttacksCanFail(t *testing.T) {
	open, err := Parse([]byte("read: allow\nmodify: allow\nmodify_execute: allow\nexecute: allow\ncommands: {\"*\": none}\n"), "open")
	if err != nil {
		t.Fatal(err)
	}
	shut, err := Parse([]byte("read: deny\nmodify: deny\nmodify_execute: deny\nexecute: deny\n"), "shut")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range readAttacks(t) {
		c := a.call
		p := open
		if a.want == agent.Allow {
			p = shut
		} else if _, err := decode(c.Args); err != nil {
			c.Args = json.RawMessage(`{"command": "git status"}`)
		}
		if d := p.Judge(c); d.Verdict == a.want {
			t.Errorf("attacks.txt:%d: %s: comes out as %s by a policy that looks at nothing", a.line, a.name, d.Verdict)
		}
	}
}
